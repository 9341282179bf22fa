# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-status upgrade check``: checks whether this host is ready.

The exit codes are those of ``nova-status upgrade check``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from nova_vhpc import conf as conf_package
from nova_vhpc import version
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.conf import placement as placement_conf
from nova_vhpc.conf import scheduler as scheduler_conf
from nova_vhpc.upgradecheck import facts

PROGRAM = 'nova-vhpc-status'

NOVA_FILE = '/etc/nova/nova.conf'
OWN_FILE = '/etc/nova-vhpc/nova-vhpc.conf'


class _Options(conf_package.Options):
    """Options with ``--version``, which upgradecheck.main() does not add."""

    def __call__(
        self, args: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        kwargs = {
            'prog': PROGRAM,
            'version': version.version_string(),
            **kwargs,
        }
        super().__call__(args, **kwargs)
        if kwargs.get('project'):
            conf_package.report_missing_files(self)


def make_conf() -> conf_package.Options:
    """Return the options that the checks read, also Nova's if installed."""
    conf = _Options()
    agent_conf.register_opts(conf)
    placement_conf.register_opts(conf)
    scheduler_conf.register_opts(conf)
    try:
        from nova.conf import scheduler as nova_scheduler_conf
    except ImportError:
        return conf
    nova_scheduler_conf.register_opts(conf)
    return conf


def default_files() -> list[str]:
    """Return the configuration files: those of nova-scheduler, then ours.

    Files in directories of nova-scheduler are among them, because oslo.config
    reads directories last, and ours comes last.
    """
    directories = cfg.find_config_dirs('nova', 'nova-scheduler')
    parts = [
        str(path)
        for directory in directories
        for path in sorted(Path(directory).glob('*.conf'))
    ]
    return [
        name for name in (NOVA_FILE, *parts, OWN_FILE) if Path(name).exists()
    ]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    conf = make_conf()
    upgradecheck.register_cli_options(conf, facts.Checks(conf))
    return conf.parser(PROGRAM)


def main(argv: list[str] | None = None) -> int:
    """Run the checks.

    :returns: exit status: 0 success, 1 a warning, 2 a failure or a
        configuration that cannot be read, 255 an unexpected error.
    """
    conf = make_conf()
    try:
        status: int = upgradecheck.main(
            conf,
            project='nova-vhpc',
            upgrade_command=facts.Checks(conf),
            argv=sys.argv[1:] if argv is None else argv,
            default_config_files=default_files(),
        )
    except (cfg.Error, OSError, ValueError) as error:
        # Not a traceback: Python's exit status for it, 1, means a warning.
        text = conf_package.reason(error)
        print(f'nova-vhpc-status: {text}', file=sys.stderr)
        return 2
    return status


if __name__ == '__main__':
    sys.exit(main())
