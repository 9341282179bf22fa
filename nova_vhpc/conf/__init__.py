# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Options of nova-vhpc: one module per group, as OpenStack keeps them.

Each module has ``register_opts(conf)`` and ``list_opts()``. Options are
registered on a ``ConfigOpts`` that the caller passes: nova-scheduler its
own global one, the agent a private one.
"""

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

from oslo_config import cfg
from oslo_log import log

from nova_vhpc.conf import log_format

DEFAULT = 'DEFAULT'
"""Name in files of the options that are in no group."""


def check(
    conf: cfg.ConfigOpts, groups: Iterable[tuple[Any, Iterable[Any]]]
) -> None:
    """Read every option once.

    oslo.config looks at a value when it is first read: a wrong one should
    stop a service at its start and not when it is needed at last.

    :param groups: as ``list_opts()`` of the modules here gives them.
    :raises cfg.Error: naming the first option whose value is wrong.
    """
    for group, options in groups:
        name = group if isinstance(group, str) else group.name
        for option in options:
            read(conf, name, option.dest, secret=option.secret)


def read(
    conf: cfg.ConfigOpts, group: str, name: str, *, secret: bool = False
) -> Any:
    """The value of an option; None where nobody has registered it.

    :param secret: nothing of its value may be told.
    :raises cfg.Error: naming the option, if its value is wrong.
    """
    where = conf if group == DEFAULT else conf[group]
    if name not in where:
        # keystoneauth registers those of the chosen plugin only.
        return None
    try:
        return where[name]
    except (cfg.Error, ValueError, RecursionError) as error:
        cause: BaseException | None = error
        if group == DEFAULT and isinstance(error, cfg.NoSuchOptError):
            # oslo.config makes this of whatever went wrong there.
            cause = error.__context__
        raise cfg.Error(f'[{group}]{name}: {_reason(cause, secret)}') from None


def reason(error: Exception) -> str:
    """Why a configuration cannot be read, in one line for people."""
    text = ' '.join(str(error).split())
    if isinstance(error, UnicodeDecodeError):
        # oslo.config does not say of which file.
        for frame, _ in traceback.walk_tb(error.__traceback__):
            parser = frame.f_locals.get('self')
            if isinstance(parser, cfg.ConfigParser):
                return f'{parser.filename}: no UTF-8 text: {text}'
    return text


def set_up_log(conf: cfg.ConfigOpts, program: str) -> None:
    """Open the log that the options of oslo.log describe.

    :raises cfg.Error: naming the options of a file that cannot be written,
        of a system's log that cannot be used, or of what describes it all.
    :raises OSError: the system's log cannot be reached.
    """
    if conf.log_config_append:
        with described_log(conf):
            log.setup(conf, program)
    else:
        _set_up_log(conf, program)
    log_format.set_up(conf)


@contextlib.contextmanager
def described_log(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Let a log be made of a file; all stay as they are if that fails.

    :raises cfg.Error: naming the file, and what is wrong there.
    """
    try:
        with log_format.kept():
            yield
    except log.LogConfigError as error:
        text = error.err_msg
    except Exception as error:
        # Python evaluates what is written there: names, classes, arguments.
        text = f'{type(error).__name__}: {error}'
    else:
        return
    raise cfg.Error(
        f'[DEFAULT]log_config_append: {conf.log_config_append} describes no '
        f"log as Python's logging.config.fileConfig takes it: {text}"
    )


def _set_up_log(conf: cfg.ConfigOpts, program: str) -> None:
    try:
        log.setup(conf, program)
    except OSError as error:
        if error.filename is None:
            raise
        raise cfg.Error(
            f'[DEFAULT]log_dir or log_file: {error.filename} cannot be '
            f'written: {error.strerror}; its directory must be there, and a '
            'systemd unit needs LogsDirectory= for it'
        ) from error
    except (RuntimeError, TypeError) as error:
        # No Python package for journald, or no such facility of syslog.
        raise cfg.Error(
            f'[DEFAULT]use_journal, use_syslog or syslog_log_facility: {error}'
        ) from error


def _reason(error: BaseException | None, secret: bool) -> str:
    if isinstance(error, RecursionError):
        text = 'its value names itself by $'
    elif isinstance(error, cfg.TemplateSubstitutionError):
        text = 'its value names a group by $'
    elif isinstance(error, cfg.NoSuchOptError | cfg.NoSuchGroupError):
        text = 'its value names an option by $' + (
            ' that there is not' if secret else f', and there is {error}'
        )
    else:
        return str(error)
    return f'{text}; a dollar sign is written $$'
