# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read a flavor's allocation candidates for ``nova-vhpc-explain``.

The query to Placement is the same as nova-scheduler's.
"""

import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.explain.cloud import pci_devices
from nova_vhpc.explain.cloud.nova_options import NovaOptions
from nova_vhpc.explain.request import Flavor
from nova_vhpc.flavor import cpu_policy
from nova_vhpc.scheduler.hosts.ports import PortRequest
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.topology import model

VERSION = '1.36'

_GROUP_KEY = re.compile('(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.+)')

_HYPERTHREADING = 'HW_CPU_HYPERTHREADING'
_THREAD_POLICIES = {'isolate': 'forbidden', 'require': 'required'}


def read(
    placement: Any,
    flavor: Flavor,
    options: NovaOptions,
    in_group: bool,
    port_requests: Sequence[PortRequest] = (),
) -> 'Offers':
    """Return what Placement offers for one member on each host.

    :param placement: adapter of an openstacksdk connection.
    :param options: options of nova-scheduler.
    :param in_group: whether the member is in a server group.
    :param port_requests: bandwidth that the ports of the member request.
    :raises CloudError: Placement does not answer or refuses the query.
    """
    # Nova asks for all candidates if there is a hint for a server group.
    limit = None if in_group else options.max_placement_results
    devices: Sequence[pci_devices.Alias] = ()
    if options.pci_in_placement:
        devices = pci_devices.requested(
            placement, flavor.extra_specs, options.aliases
        )
    offers = Offers(flavor.pinned, limit)
    path = query(
        flavor, devices=devices, limit=limit, port_requests=port_requests
    )
    offers.add(openstack.get(placement, path, VERSION))
    if options.falls_back and cpu_policy.falls_back(flavor.extra_specs):
        path = query(
            flavor,
            translated=False,
            devices=devices,
            limit=limit,
            port_requests=port_requests,
        )
        offers.add(openstack.get(placement, path, VERSION), fallback=True)
    return offers


def query(
    flavor: Flavor,
    translated: bool = True,
    devices: Sequence[pci_devices.Alias] = (),
    limit: int | None = None,
    port_requests: Sequence[PortRequest] = (),
) -> str:
    """Return the path of Nova's query to Placement for one member.

    :param translated: whether to translate ``hw:cpu_policy`` to resources and
        traits; if not, all vCPUs are requested as shared ones (VCPU).
    :param devices: PCI devices that Placement allocates.
    :param limit: most candidates to ask for.
    :param port_requests: bandwidth that the ports of the member request.
    """
    specs = dict(flavor.extra_specs)
    traits = {}
    if translated:
        cpus = cpu_policy.resources(flavor.vcpus, specs)
        policy = _THREAD_POLICIES.get(specs.get('hw:cpu_thread_policy', ''))
        if policy:
            traits['trait:' + _HYPERTHREADING] = policy
    else:
        cpus = {'VCPU': flavor.vcpus}
    resources: dict[str, dict[str, int]] = {}
    required: dict[str, list[str]] = {}
    for key, value in {**specs, **traits}.items():
        match = _GROUP_KEY.fullmatch(key)
        if match is None:
            continue
        kind, suffix, name = match[1], match[2] or '', match[3]
        if kind == 'resources':
            # Nova ignores a value that is no number.
            if re.fullmatch(r'\s*\+?\d+\s*', value):
                resources.setdefault(suffix, {})[name] = int(value)
        elif value in ('required', 'forbidden'):
            mark = '!' if value == 'forbidden' else ''
            required.setdefault(suffix, []).append(mark + name)
    group_policy = specs.get('group_policy')
    if group_policy not in ('none', 'isolate'):
        # Nova ignores another value, and has a default for groups that are
        # not the flavor's.
        own = len((resources.keys() | required.keys()) - {''})
        defaults = own < 2 <= own + len(devices) + len(port_requests)
        group_policy = 'none' if defaults else None
    for number, device in enumerate(devices):
        suffix = f'_pci-{number}'
        resources[suffix] = {device.resource_class: 1}
        if device.traits:
            required[suffix] = sorted(device.traits)
    for request in port_requests:
        resources[request.group] = dict(request.kbps)
        required[request.group] = sorted(request.traits)
    amounts = {
        **cpus,
        'MEMORY_MB': flavor.ram_mb,
        'DISK_GB': flavor.disk_gb,
    }
    in_groups = {name for group in resources.values() for name in group}
    for name, amount in amounts.items():
        if name not in in_groups:
            resources.setdefault('', {})[name] = amount
    texts = {
        suffix: ','.join(f'{n}:{v}' for n, v in group.items() if v)
        for suffix, group in resources.items()
    }
    parameters = [('resources' + s, text) for s, text in texts.items() if text]
    parameters += [('required' + s, ','.join(t)) for s, t in required.items()]
    if group_policy:
        parameters.append(('group_policy', group_policy))
    if limit is not None:
        parameters.append(('limit', str(limit)))
    return '/allocation_candidates?' + urllib.parse.urlencode(parameters)


class Offers:
    """What Placement offers for one member, by the host's root provider.

    :param pinned: whether all vCPUs get a dedicated CPU each.
    :param limit: most candidates that Placement was asked for.
    :ivar truncated: whether Placement may have more candidates.
    :ivar uplinks: uuids of the uplinks in the candidates of each host that
        has candidates.
    :ivar host_resources: amounts that one member takes of each of these hosts
        itself, by resource class.
    """

    def __init__(self, pinned: bool, limit: int | None = None) -> None:
        self.truncated = False
        self.uplinks: dict[str, set[str]] = {}
        self.host_resources: dict[str, Mapping[str, int]] = {}
        self._pinned = pinned
        self._limit = limit
        self._summaries: dict[str, Any] = {}

    def add(self, body: Mapping[str, Any], fallback: bool = False) -> None:
        """Add the candidates of one answer.

        :param body: decoded body of ``GET /allocation_candidates``.
        :param fallback: whether it answers Nova's fallback query for pinned
            members, which is for hosts that report no dedicated CPUs.
        """
        self._summaries.update(body['provider_summaries'])
        if self._limit is not None:
            found = len(body['allocation_requests'])
            self.truncated = self.truncated or found >= self._limit
        for candidate in body['allocation_requests']:
            uplinks = set()
            root = ''
            for uuid, allocation in candidate['allocations'].items():
                root = self._summaries[uuid]['root_provider_uuid']
                if model.UPLINK in allocation['resources']:
                    uplinks.add(uuid)
            if not (fallback and 'PCPU' in self._resources(root)):
                self.uplinks.setdefault(root, set()).update(uplinks)
                own = candidate['allocations'].get(root, {})
                self.host_resources[root] = own.get('resources', {})

    def cpus(self, root: str, total: int, used: int) -> tuple[int, int]:
        """Return the number of a host's CPUs for the flavor, and of vCPUs.

        The same as :func:`nova_vhpc.scheduler.hosts.state.cpus`, from
        Placement's figures.

        :param root: uuid of the host's root provider.
        :param total: number of the host's CPUs in Nova.
        :param used: number of vCPUs of all guests in Nova.
        """
        dedicated = self._resources(root).get('PCPU')
        if dedicated is None:
            return total, used
        if self._pinned:
            return (
                openstack.count(dedicated['capacity']),
                openstack.count(dedicated['used']),
            )
        # Emulator threads have dedicated CPUs, too, but are no vCPUs.
        shared = self._resources(root).get('VCPU', {'used': 0})
        return total, max(
            openstack.count(shared['used']),
            used - openstack.count(dedicated['used']),
        )

    def free(self, root: str) -> tuple[float, float]:
        """Return the CPUs and the RAM in MB that a host can still allocate."""
        resources = self._resources(root)
        cpus = resources.get(self._kind(root), {'capacity': 0, 'used': 0})
        ram = resources.get('MEMORY_MB', {'capacity': 0, 'used': 0})
        return float(_free(cpus)), float(_free(ram))

    def members(self, root: str, vcpus: int, ram_mb: int) -> int:
        """Return how many members the resources beyond CPUs and RAM allow.

        The plan itself counts CPUs and RAM (:meth:`free`) and names the one
        that is short.

        :param root: uuid of the host's root provider.
        :param vcpus: number of vCPUs that the plan counts for one member. A
            request group may take more; the excess counts here.
        :param ram_mb: RAM that the plan counts for one member, in MB;
            likewise.
        """
        members = NO_LIMIT
        counted = {self._kind(root): vcpus, 'MEMORY_MB': ram_mb}
        for name, amount in self.host_resources.get(root, {}).items():
            resource = self._resources(root).get(name)
            if resource is not None and amount > counted.get(name, 0):
                members = min(members, max(0, _free(resource) // amount))
        return members

    def _kind(self, root: str) -> str:
        """Return the resource class of the CPUs that the plan counts."""
        pinned = self._pinned and 'PCPU' in self._resources(root)
        return 'PCPU' if pinned else 'VCPU'

    def _resources(self, root: str) -> Mapping[str, Any]:
        summary = self._summaries.get(root, {})
        resources: Mapping[str, Any] = summary.get('resources', {})
        return resources


def _free(resource: Mapping[str, Any]) -> int:
    """Return how much of a resource can still be allocated.

    :raises TypeError: Placement's figures are no integers.
    """
    capacity = openstack.count(resource['capacity'])
    return capacity - openstack.count(resource['used'])
