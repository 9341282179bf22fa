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


"""Reads from a cloud what ``nova-vhpc-explain`` needs.

Asks Placement for the flavor's allocation candidates as nova-scheduler
does, and for the uplinks with the filter's own bulk read.
"""

import dataclasses
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc.cmd import cloud, explain_devices, explain_groups
from nova_vhpc.scheduler import explain, snapshot
from nova_vhpc.scheduler.explain_request import Flavor, Request
from nova_vhpc.scheduler.planner_model import HostFacts
from nova_vhpc.scheduler.requirements import HostView
from nova_vhpc.topology import model

HYPERVISORS_VERSION = '2.87'
"""The last one that tells host CPUs and used vCPUs."""

AGGREGATES_VERSION = '2.64'
CANDIDATES_VERSION = '1.36'


_GROUP_KEY = re.compile('(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.+)')


def look_up(connection: Any, request: Request) -> Request:
    """Fill in the flavor and the server group that are named.

    :raises CloudError: if there is none of that name.
    """
    if request.flavor_name is not None:
        request = dataclasses.replace(
            request, flavor=_flavor(connection, request.flavor_name)
        )
    if request.group_name is not None:
        request = explain_groups.look_up(
            connection, request, request.group_name
        )
    return request


def hosts(
    connection: Any,
    request: Request,
    switch_key: str = 'vhpc:switch',
    rack_key: str = 'vhpc:rack',
    classes: Mapping[str, str] | None = None,
) -> tuple[explain.Host, ...]:
    """All compute hosts, as filter and planner would see them.

    :param classes: resource class of PCI devices by alias.
    """
    assert request.flavor is not None
    topology = _snapshot(connection).hosts
    offers = _Offers(
        cloud.get(
            connection.placement,
            candidates_query(request.flavor),
            CANDIDATES_VERSION,
        ),
        dedicated(request.flavor.extra_specs),
    )
    devices: Mapping[str, int] = {}
    if not request.devices:
        devices = explain_devices.free(
            connection.placement, request.flavor.extra_specs, classes or {}
        )
    places = _places(connection, switch_key, rack_key)
    claims = any(model.UPLINK in key for key in request.flavor.extra_specs)
    found = []
    for hypervisor in _hypervisors(connection):
        uuid = hypervisor['id']
        name = hypervisor['service']['host']
        total, used = offers.cpus(
            uuid, hypervisor['vcpus'] or 0, hypervisor['vcpus_used'] or 0
        )
        switch, rack = places.get(name, (None, None))
        free_cpus, free_ram_mb = offers.free(uuid)
        offered = offers.uplinks.get(uuid)
        found.append(
            explain.Host(
                facts=HostFacts(
                    name,
                    total,
                    used,
                    free_cpus,
                    free_ram_mb,
                    switch=switch,
                    rack=rack,
                ),
                view=HostView(
                    total,
                    used,
                    topology.get(uuid),
                    frozenset(offered) if claims and offered else None,
                ),
                nova_lack=_nova_lack(hypervisor, offered is not None),
                devices=devices.get(uuid),
            )
        )
    if not found:
        raise cloud.CloudError('Nova knows no compute host')
    return tuple(found)


def candidates_query(flavor: Flavor) -> str:
    """The question that Nova asks Placement for one member."""
    specs = flavor.extra_specs
    resources: dict[str, dict[str, str]] = {
        '': {
            'PCPU' if dedicated(specs) else 'VCPU': str(flavor.vcpus),
            'MEMORY_MB': str(flavor.ram_mb),
        }
    }
    if flavor.disk_gb:
        resources['']['DISK_GB'] = str(flavor.disk_gb)
    required: dict[str, list[str]] = {}
    for key, value in specs.items():
        match = _GROUP_KEY.fullmatch(key)
        if match is None:
            continue
        kind, suffix, name = match[1], match[2] or '', match[3]
        if kind == 'resources':
            resources.setdefault(suffix, {})[name] = value
        elif value in ('required', 'forbidden'):
            mark = '!' if value == 'forbidden' else ''
            required.setdefault(suffix, []).append(mark + name)
    query = [
        (
            'resources' + suffix,
            ','.join(f'{n}:{v}' for n, v in wanted.items() if v != '0'),
        )
        for suffix, wanted in resources.items()
    ]
    query += [
        ('required' + suffix, ','.join(traits))
        for suffix, traits in required.items()
    ]
    if 'group_policy' in specs and len(resources) > 1:
        query.append(('group_policy', specs['group_policy']))
    return '/allocation_candidates?' + urllib.parse.urlencode(query)


def dedicated(specs: Mapping[str, str]) -> bool:
    """Whether a flavor's vCPUs are claimed as dedicated CPUs."""
    return specs.get('hw:cpu_policy') == 'dedicated'


class _Offers:
    """What Placement would give one member, by root provider."""

    def __init__(self, body: Mapping[str, Any], pcpu: bool) -> None:
        self._summaries = body['provider_summaries']
        self._cpus = 'PCPU' if pcpu else 'VCPU'
        self.uplinks: dict[str, set[str]] = {}
        for candidate in body['allocation_requests']:
            uplinks = set()
            root = ''
            for uuid, allocation in candidate['allocations'].items():
                root = self._summaries[uuid]['root_provider_uuid']
                if model.UPLINK in allocation['resources']:
                    uplinks.add(uuid)
            self.uplinks.setdefault(root, set()).update(uplinks)

    def cpus(self, root: str, total: int, used: int) -> tuple[int, int]:
        """CPUs of a host that the flavor's guests run on, and vCPUs there.

        As :func:`nova_vhpc.scheduler.hosts.cpus`, by what Placement has.

        :param total: of the host's CPUs, as Nova counts them.
        :param used: vCPUs of all guests.
        """
        resources = self._summaries.get(root, {}).get('resources', {})
        dedicated = resources.get('PCPU')
        if dedicated is None:
            return total, used
        if self._cpus == 'PCPU':
            return dedicated['capacity'], dedicated['used']
        return total, max(0, used - dedicated['used'])

    def free(self, root: str) -> tuple[float, float]:
        """CPUs and RAM in MB that may still be claimed on a host."""
        summary = self._summaries.get(root)
        if summary is None:
            return 0.0, 0.0
        resources = summary['resources']
        cpus = resources.get(self._cpus, {'capacity': 0, 'used': 0})
        ram = resources.get('MEMORY_MB', {'capacity': 0, 'used': 0})
        return (
            float(cpus['capacity'] - cpus['used']),
            float(ram['capacity'] - ram['used']),
        )


def _nova_lack(hypervisor: Mapping[str, Any], offered: bool) -> str | None:
    if hypervisor['state'] != 'up':
        return 'its nova-compute is down'
    if hypervisor['status'] != 'enabled':
        why = hypervisor['service'].get('disabled_reason')
        return 'its nova-compute is disabled' + (f': {why}' if why else '')
    if not offered:
        return (
            'Placement has no candidate there: CPUs, RAM, disk, traits or '
            'uplinks are short'
        )
    return None


def _flavor(connection: Any, name: str) -> Flavor:
    found = cloud.find_flavor(connection, name)
    return Flavor(
        vcpus=found.vcpus,
        ram_mb=found.ram,
        disk_gb=(found.disk or 0) + (found.ephemeral or 0),
        name=found.name,
        extra_specs=dict(found.extra_specs),
    )


def _snapshot(connection: Any) -> snapshot.Snapshot:
    """The uplinks of all hosts; of none while no agent has run yet."""
    try:
        body = cloud.get(
            connection.placement,
            snapshot.BULK_READ,
            snapshot.BULK_READ_VERSION,
        )
    except cloud.NothingPublishedError:
        return snapshot.Snapshot({}, 0.0)
    names: snapshot.Names = {}
    path = snapshot.names_read(body, names)
    if path is not None:
        found = cloud.get(
            connection.placement, path, snapshot.NAMES_READ_VERSION
        )
        names = snapshot.parse_names(found['resource_providers'])
    return snapshot.parse(body, names)


def _places(
    connection: Any, switch_key: str, rack_key: str
) -> dict[str, tuple[str | None, str | None]]:
    """Switch and rack of every host that is in an aggregate with them."""
    places: dict[str, tuple[str | None, str | None]] = {}
    body = cloud.get(connection.compute, '/os-aggregates', AGGREGATES_VERSION)
    for aggregate in body['aggregates']:
        metadata = aggregate['metadata']
        for host in aggregate['hosts']:
            switch, rack = places.get(host, (None, None))
            places[host] = (
                metadata.get(switch_key) or switch,
                metadata.get(rack_key) or rack,
            )
    return places


def _hypervisors(connection: Any) -> Iterator[Mapping[str, Any]]:
    path: str | None = '/os-hypervisors/detail'
    while path:
        body = cloud.get(connection.compute, path, HYPERVISORS_VERSION)
        yield from body['hypervisors']
        path = None
        for link in body.get('hypervisors_links', ()):
            if link['rel'] == 'next':
                query = urllib.parse.urlsplit(link['href']).query
                path = '/os-hypervisors/detail?' + query
