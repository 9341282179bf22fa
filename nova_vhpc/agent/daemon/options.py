# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The agent's options: command line, configuration files, log set-up."""

import importlib
import logging
import pathlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from oslo_config import cfg
from oslo_log import log

from nova_vhpc import conf as conf_package
from nova_vhpc import version
from nova_vhpc.agent import errors
from nova_vhpc.agent.rpc import transport
from nova_vhpc.clients import credentials
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.conf import log_format, nova_api, opts, unknown_options
from nova_vhpc.conf import placement as placement_conf

LOG = logging.getLogger(__name__)

OTHER_SERVICES = (*opts.HELPERS, 'scheduler', 'vendordata')
"""Modules of ``nova_vhpc.conf`` that have no options of the agent."""

CREDENTIALS = (nova_api.GROUP, placement_conf.GROUP)

CLI_OPTS = [
    cfg.BoolOpt(
        'restore',
        default=False,
        help='Give every server the settings back that it had before the '
        'agent wrote to it, then exit. For use after a crash; systemd calls '
        'it.',
    ),
    cfg.BoolOpt(
        'withdraw',
        default=False,
        help='Remove from Placement what the agent published about this '
        'host, then exit. Stop the agent first; nova-compute may run.',
    ),
    cfg.IntOpt(
        'withdraw-wait',
        default=360,
        min=0,
        help='Seconds that --withdraw waits between emptying its resource '
        'providers and deleting them. nova-compute fails on servers that come '
        'or go while its cached provider tree has a provider that no longer '
        'exists, so use one minute more than '
        '[compute]resource_provider_association_refresh of nova-compute. 0 '
        'on a host whose nova-compute is stopped.',
    ),
    cfg.BoolOpt(
        'dry-run',
        default=False,
        help='Decide and show the decisions, but write nothing: to no '
        'server, NIC or journal, and nothing to Placement.',
    ),
]


class AgentOptions(conf_package.Options):
    """Options that are reloaded only if every new value is valid.

    oslo.config itself accepts invalid values on a reload, and raises an
    exception later in whichever thread reads the option next.

    :ivar argv: command line arguments, without the program's name.
    """

    argv: list[str]

    def register_mutate_hook(self, hook: Callable[..., Any]) -> None:
        """Register oslo.log's hook, which sets up ``log_config_append`` again.

        An error in that file is logged, and the agent keeps its present log.
        """

        def guarded_hook(conf: cfg.ConfigOpts, fresh: Any) -> None:
            try:
                with conf_package.described_log(conf):
                    hook(conf, fresh)
            except cfg.Error as error:
                LOG.error('Keeping the present log configuration: %s', error)

        super().register_mutate_hook(guarded_hook)

    def mutate_config_files(self) -> Any:
        """Read the configuration files again.

        :raises cfg.Error: a new value is invalid; the present values stay.
        """
        check(make_conf(self.argv))
        report_unknown_options(self)
        fresh = super().mutate_config_files()
        # oslo.log has replaced the handlers if log_config_append is set.
        log_format.set_up(self)
        return fresh


def option_modules() -> Iterator[Any]:
    """Yield the modules of ``nova_vhpc.conf`` with options of the agent."""
    for module_info in pkgutil.iter_modules(conf_package.__path__):
        if module_info.name not in OTHER_SERVICES:
            yield importlib.import_module(
                f'{conf_package.__name__}.{module_info.name}'
            )


def load(argv: list[str]) -> cfg.ConfigOpts:
    """Read command line and configuration files, and set up the log.

    :raises AgentError: a file cannot be read, or cannot be used for the log.
    """
    try:
        return _load(argv)
    except (cfg.Error, ValueError, OSError) as error:
        raise errors.AgentError(conf_package.reason(error)) from error


def _load(argv: list[str]) -> cfg.ConfigOpts:
    try:
        conf = make_conf(argv)
        check_default(conf)
        conf_package.set_up_log(conf, 'nova-vhpc-agent')
    except (cfg.Error, ValueError, OSError):
        if '--restore' not in argv:
            raise
        # A wrong log option must not leave servers throttled.
        conf = make_conf(argv, with_log=False)
        logging.basicConfig(level=logging.INFO)
    return conf


def make_conf(
    argv: list[str] | None = None, with_log: bool = True
) -> cfg.ConfigOpts:
    """Return the options that command line and configuration files give.

    :param argv: command line arguments; None for the arguments of this
        process.
    :param with_log: register oslo.log's options, too.
    :raises SystemExit: on --help, --version and invalid arguments.
    :raises cfg.Error: a configuration file cannot be read.
    """
    conf = unread(with_log)
    conf.argv = list(sys.argv[1:] if argv is None else argv)
    try:
        conf(
            conf.argv,
            project='nova-vhpc',
            prog='nova-vhpc-agent',
            version=version.version_string(),
        )
    except SystemExit as exit_request:
        if exit_request.code != 1:
            raise
        # oslo.config exits with 1 also if a file has an invalid value for a
        # command line option, and has already printed which one. A running
        # agent that reloads its options must not exit because of that.
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


def unread(with_log: bool = True) -> AgentOptions:
    """Return the options before command line and files are read.

    :param with_log: register oslo.log's options, too.
    """
    conf = AgentOptions()
    if with_log:
        log.register_options(conf)
    conf.register_cli_opts(CLI_OPTS)
    for module in option_modules():
        module.register_opts(conf)
    return conf


def check(conf: cfg.ConfigOpts) -> None:
    """Read every option in a group once: the agent's and its libraries'.

    :raises cfg.Error: naming the first option whose value is invalid.
    :raises AgentError: the message bus cannot be used as configured.
    """
    for module in option_modules():
        conf_package.check(conf, module.list_opts())
    _check_together(conf)
    credentials.check(conf, CREDENTIALS)
    transport.check(conf)


def _check_together(conf: cfg.ConfigOpts) -> None:
    """Check options that depend on the host or on another one.

    :raises cfg.Error: naming the option that is wrong, and what to do.
    """
    options = conf.vhpc_agent
    for name in (option.dest for option in agent_conf.ROOTS):
        if not pathlib.Path(options[name]).is_dir():
            raise cfg.Error(
                f'[vhpc_agent]{name} = {options[name]}: no such directory; '
                'name the one that is mounted there, or remove the option'
            )
    for name in ('metrics_key_file', 'metrics_client_ca_file'):
        if options[name] and not options.metrics_cert_file:
            raise cfg.Error(
                f'[vhpc_agent]{name} = {options[name]}: it needs '
                'metrics_cert_file, without which metrics are served by HTTP'
            )
    if options.bind_uplinks and not conf.vhpc_topology.publish:
        raise cfg.Error(
            '[vhpc_agent]bind_uplinks = true: it needs [vhpc_topology]publish '
            '= true, because servers claim published uplinks only'
        )


def check_default(conf: cfg.ConfigOpts) -> None:
    """Read every option in ``[DEFAULT]`` once: arguments and log options.

    A log format that cannot be used would otherwise print a traceback to
    stderr for every line.

    :raises cfg.Error: naming the first option whose value is invalid.
    """
    for name in conf:
        conf_package.read(conf, conf_package.DEFAULT, name)


def report_unknown_options(conf: cfg.ConfigOpts) -> None:
    """Log which options in the configuration files do not exist."""
    for sentence in unknown_options.find(conf):
        LOG.warning('%s', sentence)
