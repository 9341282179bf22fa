# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ask Neutron for networks whose packets go astray on some hosts."""

from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.explain import cloud
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
                list(cloud.pages(connection.network, path, name, None))
                for path, name in (
                    (neutron_segments.AGENTS, 'agents'),
                    (neutron_segments.NETWORKS, 'networks'),
                )
            )
            return tuple(
                f'Servers are not to be on this network: {problem}.'
                for problem in neutron_segments.problems(
                    networks, neutron_segments.mappings(agents)
                )
            )
    except openstack.CloudError:
        return ()
