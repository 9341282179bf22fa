# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Read hosts, clusters and VMs of a cloud as an inventory to be simulated.

The document has the form of :mod:`nova_vhpc_lab.sim.cloud.inventory`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.explain import cloud
from nova_vhpc.explain.cloud import server_groups
from nova_vhpc.flavor import cpu_policy, extra_specs
from nova_vhpc.scheduler.sources import host_places

PLACEMENT_VERSION = '1.36'

SERVERS_VERSION = '2.64'
"""From 2.47 on each server has its flavor's vCPUs, RAM and extra specs."""

PROGRAMS = {'parallel': 'cg', 'latency': 'web', 'general': 'compile'}
"""What stands for the unknown program of a VM, by ``vhpc:workload``."""


def read(
    connection: Any,
    switch_key: str = 'vhpc:switch',
    rack_key: str = 'vhpc:rack',
) -> dict[str, Any]:
    """Return the inventory of a cloud.

    VMs whose vCPUs have dedicated CPUs, and those CPUs, are left out: they
    share with nobody.

    :param connection: openstacksdk connection.
    :param switch_key: key of aggregate metadata that names the switch.
    :param rack_key: key of aggregate metadata that names the rack.
    :raises CloudError: the cloud does not answer, has no host with shared
        CPUs, or its answer is not what its API describes.
    """
    with openstack.asked(), openstack.read():
        hosts, vcpus = _hosts(connection, switch_key, rack_key)
        if not hosts:
            raise openstack.CloudError(
                'the cloud has no compute host that is up, enabled and has '
                'CPUs to share'
            )
        servers = {server['id']: server for server in _servers(connection)}
        clusters = list(_clusters(connection, servers))
        return {
            'overcommit': vcpus / sum(host['cpus'] for host in hosts),
            'hosts': hosts,
            'clusters': clusters,
            'vms': _vms(servers.values()),
        }


def _hosts(
    connection: Any, switch_key: str, rack_key: str
) -> tuple[list[dict[str, Any]], float]:
    """Return the hosts that take VMs, and the vCPUs that all may hold."""
    places = host_places.places(
        openstack.get(
            connection.compute, '/os-aggregates', cloud.AGGREGATES_VERSION
        )['aggregates'],
        switch_key,
        rack_key,
    )
    hosts = []
    vcpus = 0.0
    for hypervisor in cloud.hypervisors(connection):
        if (hypervisor['state'], hypervisor['status']) != ('up', 'enabled'):
            continue
        try:
            resources = openstack.get(
                connection.placement,
                f'/resource_providers/{hypervisor["id"]}/inventories',
                PLACEMENT_VERSION,
            )['inventories']
        except openstack.GoneError:
            # It was removed after the hypervisors were listed.
            continue
        if 'VCPU' not in resources:
            continue
        name = openstack.text(hypervisor['service']['host'])
        switch, rack = places.get(name, (None, None))
        hosts.append(
            {
                'name': name,
                'cpus': openstack.count(resources['VCPU']['total']),
                'ram_mb': int(_capacity(resources['MEMORY_MB'])),
                'switch': switch,
                'rack': rack,
            }
        )
        vcpus += _capacity(resources['VCPU'])
    return hosts, vcpus


def _capacity(resource: Mapping[str, Any]) -> float:
    """Return how much of a resource Placement gives away."""
    total = openstack.count(resource['total'])
    reserved = openstack.count(resource['reserved'])
    return (total - reserved) * float(resource['allocation_ratio'])


def _servers(connection: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the servers on hosts, with CPUs that they share."""
    for server in cloud.pages(
        connection.compute,
        '/servers/detail?all_tenants=1',
        'servers',
        SERVERS_VERSION,
    ):
        # Servers of a cell that is down may be stubs without flavor.
        flavor = server.get('flavor')
        if flavor and server.get('OS-EXT-SRV-ATTR:host'):
            specs = flavor.get('extra_specs') or {}
            if not cpu_policy.dedicated_by(specs):
                yield server


def _clusters(
    connection: Any, servers: dict[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the virtual clusters, and take their members out of the servers.

    :param servers: by ID.
    """
    names: Counter[str] = Counter()
    for group in server_groups.every(connection):
        members = [
            servers[uuid]
            for uuid in group['members']
            if uuid in servers and extra_specs.requested(_specs(servers[uuid]))
        ]
        if len(members) < 2:
            continue
        for member in members:
            del servers[member['id']]
        name = openstack.text(group['name'])
        names[name] += 1
        # Members of an inventory's cluster are alike: as the largest.
        flavors = [member['flavor'] for member in members]
        yield {
            'name': name if names[name] == 1 else f'{name}/{group["id"]}',
            'members': len(members),
            'vcpus': max(openstack.count(one['vcpus']) for one in flavors),
            'ram_mb': max(openstack.count(one['ram']) for one in flavors),
            'program': PROGRAMS['parallel'],
            'group_policy': openstack.text(group['policy']),
        }


def _vms(servers: Any) -> list[dict[str, Any]]:
    """Return the servers of no cluster, those that are alike as one entry."""
    counts: dict[tuple[int, int, str], int] = defaultdict(int)
    for server in servers:
        workload = extra_specs.parse(_specs(server)).workload
        flavor = server['flavor']
        counts[
            openstack.count(flavor['vcpus']),
            openstack.count(flavor['ram']),
            PROGRAMS[workload],
        ] += 1
    return [
        {'count': count, 'vcpus': vcpus, 'ram_mb': ram_mb, 'program': program}
        for (vcpus, ram_mb, program), count in sorted(counts.items())
    ]


def _specs(server: Mapping[str, Any]) -> Mapping[str, str]:
    specs: Mapping[str, str] = server['flavor'].get('extra_specs') or {}
    return specs
