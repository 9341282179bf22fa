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

"""Ask Neutron for networks whose packets go astray on some hosts."""

from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.topology import neutron_segments


def notes(connection: Any) -> tuple[str, ...]:
    """Return a sentence for each such network.

    Empty if Neutron cannot be asked, or does not show segments and agents to
    the user, who is then no administrator.

    :param connection: openstacksdk connection.
    """
    try:
        with openstack.asked(), openstack.read():
            agents, networks = (
                openstack.get(connection.network, path, None)
                for path in (
                    neutron_segments.AGENTS,
                    neutron_segments.NETWORKS,
                )
            )
            return tuple(
                f'Servers are not to be on this network: {problem}.'
                for problem in neutron_segments.problems(
                    networks['networks'],
                    neutron_segments.mappings(agents['agents']),
                )
            )
    except openstack.CloudError:
        return ()
