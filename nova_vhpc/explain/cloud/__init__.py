# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read flavor, server group and hosts of a cloud.

Role
    Fill in the hosts of a question from Nova's, Placement's and Neutron's API.
Doors
    :func:`look_up`, :func:`hosts` and :func:`with_running_rails`;
    :func:`pages` for whoever reads a list of Nova's.
Invariants
    Placement is asked with the requests of filter and nova-scheduler. Every
    list is read to its end. What could not be found out is a note.
Tests
    ``nova_vhpc/tests/unit/explain/cloud``,
    ``nova_vhpc/tests/functional/explain``.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nova_vhpc.clients import neutron, openstack
from nova_vhpc.explain import member_ports
from nova_vhpc.explain import model as explain_model
from nova_vhpc.explain.cloud import (
    host_aggregates,
    nova_options,
    pci_devices,
    placement,
    server_groups,
)
from nova_vhpc.explain.request import ExplainRequest, Flavor
from nova_vhpc.flavor import pci_aliases
from nova_vhpc.flavor.request_groups import GROUP_POLICY
from nova_vhpc.scheduler.hosts.requirements import HostView
from nova_vhpc.scheduler.planner.model import HostFacts
from nova_vhpc.scheduler.sources import claimed_rails, host_places, snapshot
from nova_vhpc.topology import model

HYPERVISORS_VERSION = '2.87'
"""The last microversion that has host CPUs and used vCPUs."""

AGGREGATES_VERSION = '2.64'


def look_up(connection: Any, request: ExplainRequest) -> ExplainRequest:
    """Return the request with the flavor and server group that it names.

    :param connection: openstacksdk connection.
    :raises CloudError: there is no flavor or group of that name, or the
        cloud's answer is not what its API describes.
    """
    with openstack.read():
        return _look_up(connection, request)


def _look_up(connection: Any, request: ExplainRequest) -> ExplainRequest:
    if request.flavor_name is not None:
        request = dataclasses.replace(
            request, flavor=_flavor(connection, request.flavor_name)
        )
    if request.group_name is not None:
        request = server_groups.look_up(
            connection, request, request.group_name
        )
    return request


def hosts(
    connection: Any,
    request: ExplainRequest,
    switch_key: str = 'vhpc:switch',
    rack_key: str = 'vhpc:rack',
    options: nova_options.NovaOptions = nova_options.DEFAULTS,
) -> tuple[explain_model.Host, ...]:
    """Return all compute hosts, with the values for filter and planner.

    :param connection: openstacksdk connection.
    :param request: request with its flavor.
    :param switch_key: key of aggregate metadata that names the switch.
    :param rack_key: key of aggregate metadata that names the rack.
    :param options: options of nova-scheduler.
    :raises CloudError: there is no host, the cloud does not answer, or its
        answer is not what its API describes.
    """
    with openstack.read():
        return _hosts(connection, request, switch_key, rack_key, options)


def _hosts(
    connection: Any,
    request: ExplainRequest,
    switch_key: str,
    rack_key: str,
    options: nova_options.NovaOptions,
) -> tuple[explain_model.Host, ...]:
    assert request.flavor is not None
    specs = request.flavor.extra_specs
    topology = uplinks(connection).hosts
    offers = placement.read(
        connection.placement,
        request.flavor,
        options,
        in_group=request.policy is not None,
        port_requests=member_ports.requests(request.ports),
    )
    free_devices: Mapping[str, tuple[int, ...]] = {}
    if not request.devices:
        free_devices = pci_devices.free(
            connection.placement, specs, options.aliases
        )
    devices = pci_aliases.devices(specs)
    isolated = (
        options.pci_in_placement and specs.get(GROUP_POLICY) == 'isolate'
    )
    aggregates = openstack.get(
        connection.compute, '/os-aggregates', AGGREGATES_VERSION
    )['aggregates']
    places = host_places.places(aggregates, switch_key, rack_key)
    multipliers = host_aggregates.multipliers(aggregates)
    vcpus, _ = request.flavor.checked_vcpus
    rejections = host_aggregates.Rejections(aggregates, specs, options)
    requests_uplinks = any(model.UPLINK in key for key in specs)
    compute_hosts = []
    names: set[str] = set()
    for hypervisor in hypervisors(connection):
        uuid = hypervisor['id']
        host = openstack.text(hypervisor['service']['host'])
        name = host
        if name in names:
            # One nova-compute may have several nodes, as with Ironic.
            name = f'{host}/{hypervisor["hypervisor_hostname"]}'
        names.add(name)
        total, used = offers.cpus(
            uuid,
            openstack.count(hypervisor['vcpus'] or 0),
            openstack.count(hypervisor['vcpus_used'] or 0),
        )
        switch, rack = places.get(host, (None, None))
        free_cpus, free_ram_mb = offers.free(uuid)
        offered = offers.uplinks.get(uuid)
        slots = offers.members(uuid, vcpus, request.flavor.ram_mb)
        free = free_devices.get(uuid)
        if free is not None and devices:
            slots = min(slots, pci_devices.members(free, devices, isolated))
        compute_hosts.append(
            explain_model.Host(
                facts=HostFacts(
                    name,
                    total,
                    used,
                    free_cpus,
                    free_ram_mb,
                    slots,
                    switch=switch,
                    rack=rack,
                ),
                view=HostView(
                    total,
                    used,
                    topology.get(uuid),
                    frozenset(offered)
                    if requests_uplinks and offered
                    else None,
                ),
                nova_reason=_nova_reason(
                    hypervisor,
                    offered is not None,
                    options.max_placement_results if offers.truncated else 0,
                )
                or rejections.reason(host),
                devices=None if free is None else sum(free),
                multiplier=multipliers.get(host),
            )
        )
    if not compute_hosts:
        raise openstack.CloudError('Nova has no compute host')
    return tuple(compute_hosts)


def with_running_rails(
    connection: Any,
    request: ExplainRequest,
    compute_hosts: Iterable[explain_model.Host],
) -> ExplainRequest:
    """Return the request with the rails of its running members.

    :param connection: openstacksdk connection.
    """
    if not (request.running_members and request.tunneled):
        return request
    found = claimed_rails.of_members(
        request.running_members,
        {
            host.facts.name: host.view.topology
            for host in compute_hosts
            if host.view.topology is not None
        },
        lambda path, version: openstack.get(
            connection.placement, path, version
        ),
    )
    return dataclasses.replace(request, running_rails=found)


def _nova_reason(
    hypervisor: Mapping[str, Any], offered: bool, limit: int
) -> str | None:
    """Return why Nova leaves a host out, None if it does not.

    :param offered: whether Placement offers a candidate on it.
    :param limit: number of candidates after which Placement stopped, 0 if it
        did not.
    """
    if hypervisor['state'] != 'up':
        return 'its nova-compute is down'
    if hypervisor['status'] != 'enabled':
        why = hypervisor['service'].get('disabled_reason')
        return 'its nova-compute is disabled' + (f': {why}' if why else '')
    if not offered:
        reason = (
            'Placement offers no allocation candidate on it: CPUs, RAM, disk, '
            'traits, uplinks or devices are missing'
        )
        if limit:
            reason += (
                f', or it is not among the first {limit} candidates: without '
                'a server group Nova asks for no more ([scheduler] '
                'max_placement_results)'
            )
        return reason
    return None


def _flavor(connection: Any, name: str) -> Flavor:
    flavor = openstack.find_flavor(connection, name)
    return Flavor(
        vcpus=flavor.vcpus,
        ram_mb=flavor.ram,
        # Swap is in MB; Nova counts it in whole GB.
        disk_gb=(flavor.disk or 0)
        + (flavor.ephemeral or 0)
        + -(-int(flavor.swap or 0) // 1024),
        name=flavor.name,
        extra_specs=dict(flavor.extra_specs),
    )


def uplinks(connection: Any) -> snapshot.Snapshot:
    """Return the uplinks of all hosts; none before the first agent runs."""
    try:
        body = openstack.get(
            connection.placement,
            snapshot.BULK_READ,
            snapshot.BULK_READ_VERSION,
        )
    except openstack.NothingPublishedError:
        return snapshot.Snapshot({}, 0.0)
    names: snapshot.Names = {}
    path = snapshot.names_read(body, names)
    if path is not None:
        answer = openstack.get(
            connection.placement, path, snapshot.NAMES_READ_VERSION
        )
        names = snapshot.parse_names(answer['resource_providers'])
    return snapshot.parse(body, names)


def hypervisors(connection: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the hypervisors of all pages of Nova's list.

    :raises CloudError: Nova does not list them, as while a cell is down.
    """
    with server_groups.cells(connection.compute):
        yield from pages(
            connection.compute,
            '/os-hypervisors/detail',
            'hypervisors',
            HYPERVISORS_VERSION,
        )


def pages(
    adapter: Any, path: str, key: str, version: str | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of all pages of a list of Nova or Neutron.

    :param path: path and query of the first page.
    :param key: key of the list in an answer.
    """
    yield from neutron.pages(
        lambda page: openstack.get(adapter, page, version), path, key
    )
