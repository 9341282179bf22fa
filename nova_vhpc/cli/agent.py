# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-agent``: the daemon of a compute host."""

import argparse
import sys

from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import (
    options,
    restore_host,
    service,
    systemd,
)
from nova_vhpc.cli import withdraw
from nova_vhpc.conf import agent as agent_conf


def _restore(conf: cfg.ConfigOpts) -> int:
    """Restore every server of this host.

    Only the options that this needs are read, so any other may be invalid;
    of those for places, which are seldom elsewhere, the defaults are tried.

    :raises cfg.Error: naming the needed option whose value is invalid.
    """
    conf_package.replace_wrong(conf, agent_conf.GROUP.name, agent_conf.ROOTS)
    try:
        return restore_host.restore_host(conf)
    except (cfg.Error, RecursionError):
        options.check(conf)
        raise


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    return options.unread().parser('nova-vhpc-agent')


def main(
    argv: list[str] | None = None, signals: systemd.Signals | None = None
) -> int:
    """Run the agent.

    :param argv: command line arguments; None for the arguments of this
        process.
    :param signals: handles the signals of this process; the service makes
        its own if None.
    :returns: exit status: 0; 1 if something could not be restored or
        withdrawn; 2 if the agent cannot start, with the reason on stderr in
        one line.
    """
    try:
        conf = options.load(list(sys.argv[1:] if argv is None else argv))
        conf_package.report_missing_files(conf)
        if conf.dry_run and (conf.restore or conf.withdraw):
            raise errors.AgentError(
                '--dry-run writes nothing, so it cannot be combined with '
                '--restore or --withdraw'
            )
        if conf.restore or conf.withdraw:
            if signals is not None:
                signals.release()
            status = _restore(conf) if conf.restore else 0
            if conf.withdraw:
                status = max(status, withdraw.withdraw(conf))
            return status
        # Not before --restore: an invalid option that it does not need must
        # not leave servers throttled.
        options.check(conf)
        options.report_unknown_options(conf)
        return service.Service(conf, signals).run()
    except (errors.AgentError, cfg.Error, ValueError) as error:
        text = conf_package.reason(error)
        print(f'nova-vhpc-agent: {text}', file=sys.stderr)
        return 2


if __name__ == '__main__':
    sys.exit(main())
