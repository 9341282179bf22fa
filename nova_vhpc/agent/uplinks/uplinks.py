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

"""This host's uplinks: found as configured, and named for people."""

from pathlib import Path

from oslo_config import cfg

from nova_vhpc.agent import errors
from nova_vhpc.topology import bridge_rules as rules
from nova_vhpc.topology import discovery, model


def make_discovery(conf: cfg.ConfigOpts) -> discovery.Discovery:
    """What finds them.

    :raises ConfigError: when an option has a value that is not allowed.
    """
    options = conf.vhpc_topology
    try:
        bridge_rules = rules.parse_rules(options.bridges)
    except ValueError as error:
        raise errors.ConfigError(f'[vhpc_topology] bridges: {error}') from None
    return discovery.Discovery(
        bridge_rules,
        nic_patterns=options.nic_patterns,
        shared_slots=options.shared_slots,
        default_mbps=options.default_mbps,
        sysfs=Path(options.sysfs),
    )


def describe(topology: model.HostTopology) -> str:
    """All of them in one line for people."""
    return (
        ', '.join(
            f'{uplink.bridge}/{uplink.nic} '
            + (f'{uplink.mbps} Mbit/s' if uplink.up else 'down')
            for uplink in topology.uplinks
        )
        or 'none'
    )
