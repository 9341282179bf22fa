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

"""The policies and the predictor that a benchmark runs with."""

import argparse
import dataclasses

from oslo_config import cfg

from nova_vhpc.agent.daemon import controller_factory
from nova_vhpc.conf import control as control_conf


@dataclasses.dataclass(frozen=True, slots=True)
class PluginNames:
    """What is measured: names of plugins."""

    slice_policy: str
    pinning_policy: str
    predictor: str

    def check(self) -> None:
        """Complain of a plugin that cannot be had.

        :raises ConfigError: naming option, value and what is allowed.
        """
        for option, name in dataclasses.asdict(self).items():
            controller_factory.load_plugin(option, name)

    def argv(self) -> list[str]:
        """Arguments that :func:`selected` makes the same of."""
        return [
            f'{_flag(option)}={name}'
            for option, name in dataclasses.asdict(self).items()
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare an argument for each kind of plugin."""
    names = dataclasses.asdict(default())
    for option in controller_factory.PLUGINS:
        parser.add_argument(
            _flag(option),
            metavar='NAME',
            help=f'default, as shipped: {names[option]}',
        )


def default() -> PluginNames:
    """The plugins that an agent has without configuration."""
    conf = cfg.ConfigOpts()
    control_conf.register_opts(conf)
    return PluginNames(
        **{
            name: conf[controller_factory.GROUP][name]
            for name in controller_factory.PLUGINS
        }
    )


def selected(args: argparse.Namespace) -> PluginNames:
    """The plugins of the command line, and as shipped for the rest."""
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
