# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The policies and the predictor that a benchmark runs with."""

import argparse
import dataclasses

from oslo_config import cfg

from nova_vhpc.agent.daemon import controller_factory
from nova_vhpc.conf import control


@dataclasses.dataclass(frozen=True, slots=True)
class PluginNames:
    """Names of the plugins of one measurement."""

    slice_policy: str
    pinning_policy: str
    predictor: str

    def check(self) -> None:
        """Check that all plugins can be loaded.

        :raises ConfigError: if not; it says which values are allowed.
        """
        for option, name in dataclasses.asdict(self).items():
            controller_factory.load_plugin(option, name)

    def argv(self) -> list[str]:
        """Return the command line arguments that select these plugins."""
        return [
            f'{_flag(option)}={name}'
            for option, name in dataclasses.asdict(self).items()
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add an argument for each kind of plugin."""
    names = dataclasses.asdict(default())
    for option in controller_factory.PLUGINS:
        parser.add_argument(
            _flag(option),
            metavar='NAME',
            help=f'name of the plugin (default: {names[option]})',
        )


def default() -> PluginNames:
    """Return the plugins that an agent without configuration uses."""
    conf = cfg.ConfigOpts()
    control.register_opts(conf)
    return PluginNames(
        **{
            name: conf[controller_factory.GROUP][name]
            for name in controller_factory.PLUGINS
        }
    )


def selected(args: argparse.Namespace) -> PluginNames:
    """Return the plugins of the command line, or else the defaults."""
    return dataclasses.replace(
        default(),
        **{
            option: getattr(args, option)
            for option in controller_factory.PLUGINS
            if getattr(args, option) is not None
        },
    )


def _flag(option: str) -> str:
    return '--' + option.replace('_', '-')
