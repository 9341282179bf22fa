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

"""What Nova's HostState says, in the words of filter and planner.

A host state of a compute node that has just been created lacks most of
its values; nothing here raises for that.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nova.pci import utils as pci_utils
from nova.scheduler import utils
from oslo_log import log as logging

from nova_vhpc.scheduler import room
from nova_vhpc.scheduler.planner_model import NO_LIMIT, HostFacts, one_of

LOG = logging.getLogger(__name__)

MULTIPLIER_KEY = 'vhpc_weight_multiplier'
"""Aggregate metadata key that overrides the weight multiplier."""

NOTHING: room.Resources = {}


# Pairs of names of which this process has told already.
_told: set[tuple[str, frozenset[str]]] = set()


class Fabric:
    """Which switch and rack a host is on, by its aggregates' metadata.

    One object serves one request: thousands of hosts share a few
    aggregates, and reading one costs more than all else about a host.

    :param switch_key: metadata key that names the switch.
    :param rack_key: metadata key that names the rack.
    """

    def __init__(self, switch_key: str, rack_key: str) -> None:
        self._keys = (switch_key, rack_key)
        self._places: dict[int, tuple[str | None, str | None]] = {}
        self._by_host: dict[str, tuple[str | None, str | None]] = {}

    def place(self, state: Any) -> tuple[str | None, str | None]:
        """Switch and rack of a host state."""
        switch = rack = None
        for aggregate in state.aggregates:
            # Nova keeps one object per aggregate, shared by all hosts.
            found = self._places.get(id(aggregate))
            if found is None:
                found = self._learn(aggregate)
            switch = one_of(switch, found[0])
            rack = one_of(rack, found[1])
        return switch, rack

    def place_of(self, host: str) -> tuple[str | None, str | None]:
        """Switch and rack of a host that did not pass the filters."""
        return self._by_host.get(host, (None, None))

    def racks_missing(self, names: Iterable[str]) -> set[str]:
        """Hosts of unknown rack; none as long as no rack is known at all."""
        if not any(rack for _, rack in self._by_host.values()):
            return set()
        return {name for name in names if self.place_of(name)[1] is None}

    def add_racks(self, racks: Mapping[str, str]) -> None:
        """Take note of the racks of hosts that did not pass the filters.

        :param racks: by host.
        """
        for host, rack in racks.items():
            self._by_host[host] = (self.place_of(host)[0], rack)

    @property
    def rack_key(self) -> str:
        """Metadata key that names the rack."""
        return self._keys[1]

    def _learn(self, aggregate: Any) -> tuple[str | None, str | None]:
        metadata = aggregate.metadata
        place = (metadata.get(self._keys[0]), metadata.get(self._keys[1]))
        self._places[id(aggregate)] = place
        if place != (None, None):
            for host in aggregate.hosts:
                switch, rack = self.place_of(host)
                self._tell(host, self._keys[0], switch, place[0])
                self._tell(host, self._keys[1], rack, place[1])
                self._by_host[host] = (
                    one_of(switch, place[0]),
                    one_of(rack, place[1]),
                )
        return place

    def _tell(
        self, host: str, key: str, one: str | None, other: str | None
    ) -> None:
        """Tell once of two names that aggregates give one host."""
        if not one or not other or one == other:
            return
        told = (key, frozenset((one, other)))
        if told not in _told:
            _told.add(told)
            LOG.warning(
                'Aggregates of host %s, for one, have two values of %s: %s; '
                'the first counts',
                host,
                key,
                ', '.join(sorted((one, other))),
            )


def multiplier(state: Any, default: float) -> float:
    """Weight multiplier of a host: its aggregates' least, or the default.

    What is no finite number is told of and left out: one NaN would make
    the order of all hosts undefined.
    """
    found = float(utils.get_weight_multiplier(state, MULTIPLIER_KEY, default))
    if math.isfinite(found):
        return found
    LOG.warning(
        '%s of an aggregate of host %s is no finite number, it counts as %s',
        MULTIPLIER_KEY,
        state.host,
        default,
    )
    return default


class Cpus(NamedTuple):
    """The CPUs of a host that guests of one kind run on.

    :ivar total: how many there are.
    :ivar used: vCPUs of the guests on them.
    :ivar dedicated: whether Nova gives each of them to one vCPU only.
    """

    total: int
    used: int
    dedicated: bool = False


def cpus(state: Any, pinned: bool) -> Cpus:
    """CPUs of a host, those in ``cpu_dedicated_set`` apart from the others.

    Nova's total leaves the dedicated ones out, but its count of vCPUs in use
    has those of all guests.

    :param pinned: whether it is asked for guests with dedicated CPUs.
    """
    total, used = state.vcpus_total or 0, state.vcpus_used or 0
    dedicated = taken = shared = 0
    if state.numa_topology is not None:
        for cell in state.numa_topology.cells:
            # Without cpu_dedicated_set, Nova has all CPUs in both sets.
            if not cell.pcpuset <= cell.cpuset:
                dedicated += len(cell.pcpuset)
                taken += len(cell.pinned_cpus)
                shared += cell.cpu_usage
    if pinned and dedicated:
        return Cpus(dedicated, taken, True)
    # Taken are also CPUs of emulator threads, which are no vCPUs. At least
    # those are shared that Nova counts by NUMA node.
    return Cpus(total, max(shared, used - taken))


def pinned_vcpus(spec_obj: Any) -> int:
    """vCPUs of one member that get a dedicated CPU each."""
    found = spec_obj.numa_topology if 'numa_topology' in spec_obj else None
    return sum(len(cell.pcpuset) for cell in found.cells) if found else 0


def emulator_cpus(spec_obj: Any) -> int:
    """Dedicated CPUs of one member that its emulator threads get."""
    found = spec_obj.numa_topology if 'numa_topology' in spec_obj else None
    return int(found is not None and found.emulator_threads_isolated)


class Member(NamedTuple):
    """What one member takes of a host.

    :ivar pinned: whether it gets dedicated CPUs, and no shared ones.
    :ivar cpus: of that kind.
    """

    pinned: bool = False
    cpus: int = 1
    ram_mb: int = 0


def facts(
    state: Any,
    name: str,
    slots: int,
    link_mbps: int,
    fabric: Fabric,
    defaults: room.Defaults,
    member: Member,
    resources: room.Resources = NOTHING,
    landed: int = 0,
) -> HostFacts:
    """What the planner must know of a host that passed the filter.

    :param resources: what Placement has of the host's own, as far as known.
    :param landed: members of this very request that are on the host.
    """
    own = cpus(state, member.pinned)
    total_ram_mb = state.total_usable_ram_mb or 0
    switch, rack = fabric.place(state)
    return HostFacts(
        name,
        own.total,
        own.used,
        room.free(
            _stock(state, own, defaults, landed * member.cpus),
            resources.get('PCPU' if own.dedicated else 'VCPU'),
        ),
        room.free(
            room.Stock(
                total_ram_mb,
                state.ram_allocation_ratio or defaults.ram_ratio,
                total_ram_mb - (state.free_ram_mb or 0),
                landed * member.ram_mb,
                defaults.ram_mb,
            ),
            resources.get('MEMORY_MB'),
        ),
        slots,
        link_mbps,
        switch,
        rack,
    )


def members_beside(
    state: Any,
    asked: Mapping[str, int],
    defaults: room.Defaults,
    pinned: bool,
    resources: room.Resources,
    landed: int = 0,
) -> int:
    """Members that a host has disk for, and dedicated CPUs beside shared ones.

    :param asked: what Placement is asked for one member, of the host itself.
    :param pinned: whether the dedicated CPUs are those of :func:`facts`.
    :param resources: as for :func:`facts`; what is not known is no limit.
    :param landed: members of this very request that are on the host.
    """
    members = NO_LIMIT
    disk_gb, pcpus = asked.get('DISK_GB'), asked.get('PCPU')
    if disk_gb and 'DISK_GB' in resources:
        new_gb = landed * disk_gb
        own = room.Stock(
            state.total_usable_disk_gb or 0,
            state.disk_allocation_ratio or defaults.disk_ratio,
            # The state takes new members off its free disk only.
            (state.disk_mb_used or 0) / 1024 + new_gb,
            new_gb,
            defaults.disk_mb / 1024,
        )
        left_gb = room.free(own, resources['DISK_GB'])
        members = max(0, int(left_gb // disk_gb))
    if pcpus and not pinned and (dedicated := cpus(state, True)).dedicated:
        left = room.free(
            _stock(state, dedicated, defaults, landed * pcpus),
            resources.get('PCPU'),
        )
        members = min(members, max(0, int(left // pcpus)))
    return members


def _stock(
    state: Any, own: Cpus, defaults: room.Defaults, landed: int
) -> room.Stock:
    if own.dedicated:
        return room.Stock(own.total, 1.0, own.used, landed)
    ratio = state.cpu_allocation_ratio or defaults.cpu_ratio
    return room.Stock(own.total, ratio, own.used, landed, defaults.cpus)


def devices_asked(requests: Iterable[Any]) -> int:
    """PCI devices that a server asks for, by alias and by port."""
    return sum(int(request.count) for request in requests)


def device_members(state: Any, requests: Iterable[Any]) -> int:
    """Members whose PCI devices the host has free at the same time."""
    members = NO_LIMIT
    for share in _shares(state, list(requests)):
        members = min(members, share.free // (share.needed or 1))
    return members


def devices_lack(state: Any, requests: Iterable[Any]) -> str | None:
    """Why a host's free PCI devices do not serve a server, or None."""
    if state.pci_stats is None:
        return 'its nova-compute has reported no PCI devices yet'
    for share in _shares(state, list(requests)):
        if share.free < share.needed:
            return (
                f'it has {share.free} free PCI device(s) for '
                f'{share.name}, {share.needed} are needed'
            )
    return None


def supports_devices(
    state: Any, requests: list[Any], candidate: Mapping[str, Any]
) -> bool:
    """Whether the devices can be had with an allocation candidate."""
    return bool(
        state.pci_stats.support_requests(
            requests, provider_mapping=candidate['mappings']
        )
    )


class _Share(NamedTuple):
    """Devices that serve some of a server's requests, and no others."""

    name: str
    free: int
    needed: int


def _shares(state: Any, requests: Sequence[Any]) -> Iterator[_Share]:
    """What the requests take of the devices that serve them.

    Several may take from the same ones, as two ports on one physical
    network do: then they count together.
    """
    if not requests:
        return
    pools = state.pci_stats.pools if state.pci_stats is not None else ()
    served_by = [_pools(state, request) for request in requests]
    sets = dict.fromkeys([*served_by, frozenset[int]().union(*served_by)])
    for devices in sets:
        within = [
            request
            for request, found in zip(requests, served_by, strict=True)
            if found == devices or (found and found < devices)
        ]
        yield _Share(
            ' and '.join(dict.fromkeys(map(_named, within))),
            sum(int(pools[number]['count']) for number in devices),
            sum(int(request.count) for request in within),
        )


def _pools(state: Any, request: Any) -> frozenset[int]:
    """Which pools of devices serve a request, by their position."""
    if state.pci_stats is None:
        return frozenset()
    ignored = getattr(state.pci_stats, 'ignored_spec_tags', ())
    specs = [
        {key: tag for key, tag in spec.items() if key not in ignored}
        for spec in request.spec
    ]
    return frozenset(
        number
        for number, pool in enumerate(state.pci_stats.pools)
        if pci_utils.pci_device_prop_match(pool, specs)
    )


def _named(request: Any) -> str:
    if request.alias_name:
        return f'alias {request.alias_name}'
    for spec in request.spec:
        if 'physical_network' in spec:
            return f'a port on physical network {spec["physical_network"]}'
    return 'a port'
