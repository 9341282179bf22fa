# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find options in configuration files that no program reads.

oslo.config ignores them silently, because a file may be for several
services. A misspelt name or group therefore leaves the default in force. Our
groups contain options of nova-vhpc only, so there an unknown option is an
error.
"""

import contextlib
import glob
import os
from collections.abc import Iterable, Mapping

from oslo_config import cfg, iniparser

from nova_vhpc import close_match
from nova_vhpc.conf import nova_api, opts

PREFIX = 'vhpc_'
"""Prefix of the names of our groups."""

_NOT_LISTED = (nova_api.GROUP,)
"""Groups whose options depend on a keystoneauth plugin."""


def find(conf: cfg.ConfigOpts) -> list[str]:
    """Return one sentence for each unknown option or group of nova-vhpc.

    A file that cannot be read is skipped: oslo.config reports the files that
    it needs.

    :param conf: configuration whose files are searched.
    """
    known = _known()
    return [
        sentence
        for path in _files(conf)
        for group, names in _sections(path).items()
        for sentence in _sentences(path, group, names, known)
    ]


def _known() -> dict[str, set[str]]:
    """Return the names of our options, as written in files, by group."""
    known: dict[str, set[str]] = {}
    for group, options in opts.list_opts():
        name = group if isinstance(group, str) else group.name
        if name.startswith(PREFIX):
            names = known.setdefault(name, set())
            for option in options:
                names.add(option.dest)
                names |= {old.name for old in option.deprecated_opts}
    return known


def _files(conf: cfg.ConfigOpts) -> list[str]:
    """Return the configuration files in the order of oslo.config."""
    files = list(conf.config_file or ())
    for directory in conf.config_dirs or conf.config_dir or ():
        pattern = os.path.join(os.path.expanduser(directory), '*.conf')
        files += sorted(glob.glob(pattern))
    return [os.path.expanduser(file) for file in files]


def _sections(path: str) -> dict[str, list[str]]:
    """Return the options in our groups of a file.

    Names of groups are not case-sensitive.
    """
    sections: dict[str, dict[str, list[str]]] = {}
    with contextlib.suppress(OSError, ValueError, iniparser.ParseError):
        cfg.ConfigParser(path, sections).parse()
    found: dict[str, list[str]] = {}
    for group, names in sections.items():
        if group.lower().startswith(PREFIX):
            found.setdefault(group.lower(), []).extend(names)
    return found


def _sentences(
    path: str,
    group: str,
    names: Iterable[str],
    known: Mapping[str, set[str]],
) -> Iterable[str]:
    if group not in known:
        hint = close_match.hint(group, known, '[{}]')
        yield f'{path}: there is no group [{group}]{hint}'
        return
    if group in _NOT_LISTED:
        return
    for name in names:
        if name not in known[group]:
            yield (
                f'{path}: [{group}]{name} is no option'
                f'{_hint(group, name.replace("-", "_"), known)}'
            )


def _hint(group: str, name: str, known: Mapping[str, set[str]]) -> str:
    elsewhere = [other for other in known if name in known[other]]
    if elsewhere and elsewhere != [group]:
        return f'; it belongs to [{elsewhere[0]}]'
    return close_match.hint(name, known[group])
