# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What Neutron has in Placement, and the ports that ask for it."""

import uuid

from nova import objects

from nova_vhpc.scheduler.sources import neutron_uplink, snapshot
from nova_vhpc_lab.bench.scheduler import world

OVN = 'OVN Controller agent'
OVS = 'Open vSwitch agent'

LINK_KBPS = 1_000_000


def both(kbps):
    """Bandwidth in both directions."""
    return dict.fromkeys(neutron_uplink.DIRECTIONS, kbps)


def traits(physnet, vnic_type='NORMAL'):
    """Traits that a port on a physical network requires."""
    return [f'CUSTOM_PHYSNET_{physnet}', f'CUSTOM_VNIC_TYPE_{vnic_type}']


def provider_uuid(name):
    """UUID of a provider, from its name."""
    return str(uuid.uuid5(world.NAMESPACE, name))


class Providers:
    """Adds Neutron's providers to answers of Placement.

    :ivar names: answer to the read of names.
    """

    def __init__(self, body):
        self.summaries = body['provider_summaries']
        self.names = []

    def add(
        self, node, physnet, agent=OVN, kbps=LINK_KBPS, used=0, **bandwidth
    ):
        """Add the agent of a host, and its bridge on a physical network.

        :param bandwidth: bandwidth by resource class, instead of the same in
            both directions.
        :returns: uuid of the bridge's provider.
        """
        root = world.root_uuid(node)
        parent = self._provider(f'{node}:{agent}', root, root, {}, [])
        return self._provider(
            f'{node}:{agent}:br-{physnet.lower()}',
            root,
            parent,
            {
                name: {'capacity': total, 'used': used}
                for name, total in (bandwidth or both(kbps)).items()
            },
            [
                *traits(physnet),
                # Neutron's drivers publish all types that they bind.
                'CUSTOM_VNIC_TYPE_DIRECT',
            ],
        )

    def _provider(self, name, root, parent, resources, more_traits):
        uuid_ = provider_uuid(name)
        self.summaries[uuid_] = {
            'resources': resources,
            'traits': more_traits,
            'parent_provider_uuid': parent,
            'root_provider_uuid': root,
        }
        if {'uuid': uuid_, 'name': name} not in self.names:
            self.names.append({'uuid': uuid_, 'name': name})
        return uuid_


def hosts(*uplinks, **kwargs):
    """Uplinks of one host with these uplinks of Neutron.

    :param uplinks: arguments of :meth:`Providers.add` without the node.
    :param kwargs: fields of the host's uplinks.
    """
    body = world.bulk_body(1)
    providers = Providers(body)
    node = world.node_name(0)
    for uplink in uplinks:
        providers.add(node, **uplink)
    parsed = snapshot.parse(body, snapshot.parse_names(providers.names))
    found = parsed.hosts[world.root_uuid(node)]
    return snapshot.HostUplinks(
        kwargs.get('uplinks', ()),
        found.stamp_minutes,
        found.resources,
        found.neutron_uplinks,
    )


def group(physnet, kbps=LINK_KBPS, port='port', **resources):
    """A request group as Nova makes it of a port's resource request."""
    (made,) = objects.RequestGroup.from_extended_port_request(
        None,
        {
            'request_groups': [
                {
                    'id': provider_uuid(port),
                    'required': traits(physnet),
                    'resources': resources or both(kbps),
                }
            ],
            'same_subtree': [provider_uuid(port)],
        },
    )
    return made
