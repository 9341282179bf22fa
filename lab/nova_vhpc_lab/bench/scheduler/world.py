# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Invented hosts and requests for ``nova-vhpc-bench scheduler``.

They are objects of Nova's own classes HostState, RequestSpec, InstanceGroup
and Aggregate.
"""

import uuid
from collections.abc import Iterable
from typing import Any

from nova import objects
from nova.scheduler import host_manager

from nova_vhpc.topology import model

UPLINKS = 4
HOSTS_PER_SWITCH = 16
SWITCHES_PER_RACK = 8
GUESTS_PER_HOST = 10
CPUS = 32
RAM_MB = 131072

VHPC_SPECS = {
    'vhpc:workload': 'parallel',
    'vhpc:network': 'separate',
    'vhpc:min_link_mbps': '1000',
    'resources_uplink:CUSTOM_VHPC_UPLINK': '1',
    'trait_uplink:CUSTOM_VHPC_BRIDGE_SEPARATE': 'required',
}

PLAIN_SPECS = {'hw:mem_page_size': 'any', 'quota:cpu_shares': '1024'}

NAMESPACE = uuid.UUID('00000000-0000-4000-8000-000000000000')


def root_uuid(node: str) -> str:
    """Return the UUID of a compute node."""
    return str(uuid.uuid5(NAMESPACE, node))


def node_name(number: int) -> str:
    """Return the name of a compute node."""
    return f'host{number:05d}'


def uplink_uuids(node: str) -> list[str]:
    """Return the UUIDs of a compute node's uplink providers."""
    return [
        model.provider_uuid(node, f'br{number}', f'eth{number}')
        for number in range(UPLINKS)
    ]


def bulk_body(hosts: int) -> dict[str, Any]:
    """Return Placement's response to the filter's bulk read."""
    summaries: dict[str, Any] = {}
    for number in range(hosts):
        node = node_name(number)
        root = root_uuid(node)
        place = {'root_provider_uuid': root}
        summaries[root] = {
            **place,
            'parent_provider_uuid': None,
            'resources': {
                'VCPU': {'capacity': CPUS * 16, 'used': GUESTS_PER_HOST},
                'MEMORY_MB': {'capacity': RAM_MB, 'used': 1024},
            },
            'traits': [model.TRAIT_HOST],
        }
        summaries[model.marker_uuid(node)] = {
            **place,
            'parent_provider_uuid': root,
            'resources': {model.STAMP: {'capacity': 29000000, 'used': 0}},
            'traits': [],
        }
        for uplink in uplink_uuids(node):
            summaries[uplink] = {
                **place,
                'parent_provider_uuid': root,
                'resources': {
                    model.UPLINK: {'capacity': 1, 'used': 0},
                    model.MBPS: {'capacity': 10000, 'used': 0},
                },
                'traits': [model.TRAIT_SEPARATE],
            }
    return {'allocation_requests': [], 'provider_summaries': summaries}


def names(hosts: int) -> list[dict[str, str]]:
    """Return UUID and name of all uplink providers."""
    return [
        {
            'uuid': model.provider_uuid(node, f'br{port}', f'eth{port}'),
            'name': model.provider_name(node, f'br{port}', f'eth{port}'),
        }
        for node in map(node_name, range(hosts))
        for port in range(UPLINKS)
    ]


class World:
    """The host states of the cloud.

    :param hosts: number of hosts.
    """

    def __init__(self, hosts: int) -> None:
        aggregates: dict[int, Any] = {}
        self.states = []
        for number in range(hosts):
            switch = number // HOSTS_PER_SWITCH
            if switch not in aggregates:
                aggregates[switch] = objects.Aggregate(
                    id=switch,
                    metadata={
                        'vhpc:switch': f'switch{switch}',
                        'vhpc:rack': f'rack{switch // SWITCHES_PER_RACK}',
                    },
                    hosts=[],
                )
            node = node_name(number)
            aggregates[switch].hosts.append(node)
            state = host_manager.HostState(node, node, 'cell')
            state.uuid = root_uuid(node)
            state.aggregates = [aggregates[switch]]
            self.states.append(state)
        self.reset()

    def reset(self) -> list[Any]:
        """Return the host states as they were before any placement."""
        for number, state in enumerate(self.states):
            state.__dict__.pop('_vhpc', None)
            state.vcpus_total = CPUS
            state.vcpus_used = 8 + number % 8
            state.total_usable_ram_mb = RAM_MB
            state.free_ram_mb = RAM_MB - 4096
            state.free_disk_mb = 1 << 20
            state.cpu_allocation_ratio = 4.0
            state.ram_allocation_ratio = 1.0
            state.num_instances = GUESTS_PER_HOST
            state.instances = {
                f'{number}-{guest}': None for guest in range(GUESTS_PER_HOST)
            }
            state.allocation_candidates = [
                {
                    'allocations': {
                        state.uuid: {
                            'resources': {'VCPU': 2, 'MEMORY_MB': 1024}
                        },
                        uplink: {'resources': {model.UPLINK: 1}},
                    },
                    'mappings': {'': [state.uuid], '_uplink': [uplink]},
                }
                for uplink in uplink_uuids(state.nodename)
            ]
        return list(self.states)


def group_of_servers(uuids: Iterable[str]) -> dict[str, str]:
    """Return the server groups of guests: four per host, eight hosts each.

    :param uuids: names of guests, as in ``HostState.instances``.
    :returns: group by guest. Eight neighbouring hosts have the same groups.
    """
    groups = {}
    for name in uuids:
        host, _, guest = name.partition('-')
        if guest.isdigit():
            groups[name] = f'{int(host) // 8}-{int(guest) % 4}'
    return groups


def request(members: int, policy: str, extra_specs: dict[str, str]) -> Any:
    """Return a request for a virtual cluster in a new server group.

    :param members: number of servers.
    :param policy: policy of the server group.
    :param extra_specs: extra specs of the flavor.
    """
    uuids = [str(uuid.uuid4()) for _ in range(members)]
    return objects.RequestSpec(
        instance_uuid=uuids[0],
        num_instances=members,
        flavor=objects.Flavor(
            name='bench',
            flavorid='bench',
            vcpus=2,
            memory_mb=1024,
            root_gb=1,
            ephemeral_gb=0,
            swap=0,
            extra_specs=dict(extra_specs),
        ),
        instance_group=objects.InstanceGroup(
            uuid=str(uuid.uuid4()),
            policy=policy,
            _rules={},
            members=list(uuids),
            hosts=[],
        ),
        pci_requests=None,
        numa_topology=None,
        scheduler_hints={},
        requested_resources=[],
        requested_destination=None,
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
    )
