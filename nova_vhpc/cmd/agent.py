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

"""``nova-vhpc-agent``: the daemon of a compute host."""

import importlib
import logging
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_reports import opts as reports_opts

from nova_vhpc import conf as conf_package
from nova_vhpc import version
from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import guru_report, restore_host, service
from nova_vhpc.agent.rpc import transport
from nova_vhpc.clients import credentials
from nova_vhpc.cmd import withdraw
from nova_vhpc.conf import log_format, nova_api, opts, unknown_options
from nova_vhpc.conf import placement as placement_conf

LOG = logging.getLogger(__name__)

NOT_OURS = (*opts.HELPERS, 'scheduler', 'vendordata')
"""Modules of ``nova_vhpc.conf`` that other services read."""

CREDENTIALS = (nova_api.GROUP, placement_conf.GROUP)

CLI_OPTS = [
    cfg.BoolOpt(
        'restore',
        default=False,
        help='Put every VM back to what it was before the agent wrote to '
        'it, then end. For use after a crash; systemd calls it.',
    ),
    cfg.BoolOpt(
        'withdraw',
        default=False,
        help='Take what the agent published about this host out of '
        'Placement, then end. Stop the agent first; nova-compute may run.',
    ),
    cfg.IntOpt(
        'withdraw-wait',
        default=360,
        min=0,
        help='Seconds for which --withdraw leaves what it has emptied, until '
        'it deletes it. nova-compute fails when servers come or go while it '
        'has in mind what is no longer there: let it be one minute more than '
        '[compute]resource_provider_association_refresh there. 0 on a host '
        'whose nova-compute is stopped.',
    ),
    cfg.BoolOpt(
        'dry-run',
        default=False,
        help='Decide and show, but write nothing: to no VM and no NIC, '
        'to no journal, and nothing to Placement.',
    ),
]


class _Options(cfg.ConfigOpts):
    """Reads its files again only if every value in them is right.

    oslo.config itself takes them as they are; whoever next reads a wrong
    value gets an exception, for instance the thread that reconciles.
    """

    argv: list[str]

    def register_mutate_hook(self, hook: Callable[..., Any]) -> None:
        """Take that of oslo.log, which makes the described log anew.

        A mistake there must not leave the agent without any.
        """

        def guarded(conf: cfg.ConfigOpts, fresh: Any) -> None:
            try:
                with conf_package.described_log(conf):
                    hook(conf, fresh)
            except cfg.Error as error:
                LOG.error('The log stays as it is: %s', error)

        super().register_mutate_hook(guarded)

    def mutate_config_files(self) -> Any:
        """Read the files again.

        :raises cfg.Error: for a wrong value; what is in force stays.
        """
        check(make_conf(self.argv))
        tell_unread(self)
        fresh = super().mutate_config_files()
        # Of log_config_append, oslo.log has made the handlers anew.
        log_format.set_up(self)
        return fresh


def option_modules() -> Iterator[Any]:
    """The modules of ``nova_vhpc.conf`` with the agent's options."""
    for module_info in pkgutil.iter_modules(conf_package.__path__):
        if module_info.name not in NOT_OURS:
            yield importlib.import_module(
                f'{conf_package.__name__}.{module_info.name}'
            )


def make_conf(
    argv: list[str] | None = None, with_log: bool = True
) -> cfg.ConfigOpts:
    """Read command line and files into a ``ConfigOpts`` of our own.

    :param argv: arguments; None for those of the process.
    :param with_log: take the options of the log, too.
    :raises SystemExit: on --help, --version and bad arguments.
    :raises cfg.Error: on files that cannot be read.
    """
    conf = _Options()
    conf.argv = list(sys.argv[1:] if argv is None else argv)
    if with_log:
        log.register_options(conf)
    conf.register_cli_opts(CLI_OPTS)
    guru_report.register_opts(conf)
    for module in option_modules():
        module.register_opts(conf)
    try:
        conf(
            conf.argv,
            project='nova-vhpc',
            prog='nova-vhpc-agent',
            version=version.version_string(),
        )
    except SystemExit as ending:
        if ending.code != 1:
            raise
        # Of a file's value for what is an argument, too; oslo.config has
        # told which. An agent that runs must not end by it.
        raise cfg.Error(
            'an argument, or a value in [DEFAULT] of the configuration, is '
            'wrong'
        ) from None
    except RecursionError:
        raise cfg.Error(
            'a value in [DEFAULT] of the configuration names itself by $; a '
            'dollar sign is written $$'
        ) from None
    if conf.dry_run:
        conf.set_override('dry_run', True, group='vhpc_agent')
    return conf


def check(conf: cfg.ConfigOpts) -> None:
    """Read every option in a group once: ours, and those of libraries.

    :raises cfg.Error: naming the first one whose value is wrong.
    :raises AgentError: for a message bus that cannot be used.
    """
    for module in option_modules():
        conf_package.check(conf, module.list_opts())
    conf_package.check(conf, reports_opts.list_opts())
    credentials.check(conf, CREDENTIALS)
    transport.check(conf)


def check_default(conf: cfg.ConfigOpts) -> None:
    """Read what is in ``[DEFAULT]`` once: arguments, and how the log looks.

    A line that cannot be formatted would be a traceback on stderr each time.

    :raises cfg.Error: naming the first one whose value is wrong.
    """
    for name in conf:
        conf_package.read(conf, conf_package.DEFAULT, name)


def tell_unread(conf: cfg.ConfigOpts) -> None:
    """Log which options in the files nobody reads."""
    for sentence in unknown_options.find(conf):
        LOG.warning('%s', sentence)


def _start(argv: list[str]) -> cfg.ConfigOpts:
    """Read the configuration and set up the log.

    :raises AgentError: on files that cannot be read, or used for the log.
    """
    try:
        return _set_up(argv)
    except (cfg.Error, ValueError, OSError) as error:
        raise errors.AgentError(conf_package.reason(error)) from error


def _set_up(argv: list[str]) -> cfg.ConfigOpts:
    try:
        conf = make_conf(argv)
        check_default(conf)
        conf_package.set_up_log(conf, 'nova-vhpc-agent')
    except (cfg.Error, ValueError, OSError):
        if '--restore' not in argv:
            raise
        # How the log looks must not keep VMs throttled.
        conf = make_conf(argv, with_log=False)
        logging.basicConfig(level=logging.INFO)
    return conf


def _restore(conf: cfg.ConfigOpts) -> int:
    """Put all back. Options that this does not need may be wrong.

    :raises cfg.Error: naming the one that is needed and wrong.
    """
    try:
        return restore_host.restore_host(conf)
    except (cfg.Error, RecursionError):
        check(conf)
        raise


def main(argv: list[str] | None = None) -> int:
    """Run the agent.

    :returns: 0; 1 when something could not be restored; 2 when it cannot
        start, with one line on stderr that says why.
    """
    try:
        conf = _start(list(sys.argv[1:] if argv is None else argv))
        if conf.dry_run and (conf.restore or conf.withdraw):
            raise errors.AgentError(
                '--dry-run writes nothing, so it goes with neither '
                '--restore nor --withdraw'
            )
        if conf.restore or conf.withdraw:
            status = _restore(conf) if conf.restore else 0
            if conf.withdraw:
                status = max(status, withdraw.withdraw(conf))
            return status
        # Only here: what is wrong elsewhere must not keep VMs throttled.
        check(conf)
        tell_unread(conf)
        return service.Service(conf).run()
    except (errors.AgentError, cfg.Error, ValueError) as error:
        text = ' '.join(str(error).split())
        print(f'nova-vhpc-agent: {text}', file=sys.stderr)
        return 2


if __name__ == '__main__':
    sys.exit(main())
