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

"""Read Nova's HostState into the values of filter and planner.

The host state of a compute node that was just created lacks most of its
values; no function here raises for that.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from nova.scheduler import utils
from oslo_log import log as logging

from nova_vhpc.scheduler.hosts import capacity
from nova_vhpc.scheduler.hosts.fabric import Fabric
from nova_vhpc.scheduler.planner.host_weights import MULTIPLIER_KEY
from nova_vhpc.scheduler.planner.model import NO_LIMIT, HostFacts

LOG = logging.getLogger(__name__)

NOTHING: capacity.Resources = {}


def weight_multiplier(state: Any, default: float) -> float:
    """Return the host's weight multiplier, the smallest of its aggregates.

    A value that is not finite is ignored with a warning: a single NaN would
    make Nova's sort order of all hosts undefined.

    :param default: ``[vhpc_scheduler] weight_multiplier``.
    """
    multiplier = float(
        utils.get_weight_multiplier(state, MULTIPLIER_KEY, default)
    )
    if math.isfinite(multiplier):
        return multiplier
    LOG.warning(
        'Ignoring %s=%s of an aggregate of host %s: not a finite number; '
        'using %s',
        MULTIPLIER_KEY,
        multiplier,
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
    defaults: capacity.Defaults,
    member: Member,
    resources: capacity.Resources = NOTHING,
    placed_members: int = 0,
) -> HostFacts:
    """What the planner must know of a host that passed the filter.

    :param resources: what Placement has of the host's own, as far as known.
    :param placed_members: members of this very request that are on the host.
    """
    own = cpus(state, member.pinned)
    total_ram_mb = state.total_usable_ram_mb or 0
    switch, rack = fabric.place(state)
    return HostFacts(
        name,
        own.total,
        own.used,
        capacity.free(
            _inventory(state, own, defaults, placed_members * member.cpus),
            resources.get('PCPU' if own.dedicated else 'VCPU'),
        ),
        capacity.free(
            capacity.Inventory(
                total_ram_mb,
                state.ram_allocation_ratio or defaults.ram_ratio,
                total_ram_mb - (state.free_ram_mb or 0),
                placed_members * member.ram_mb,
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
    defaults: capacity.Defaults,
    pinned: bool,
    resources: capacity.Resources,
    placed_members: int = 0,
) -> int:
    """Members that a host has disk for, and dedicated CPUs beside shared ones.

    :param asked: what Placement is asked for one member, of the host itself.
    :param pinned: whether the dedicated CPUs are those of :func:`facts`.
    :param resources: as for :func:`facts`; what is not known is no limit.
    :param placed_members: members of this very request that are on the host.
    """
    members = NO_LIMIT
    disk_gb, pcpus = asked.get('DISK_GB'), asked.get('PCPU')
    if disk_gb and 'DISK_GB' in resources:
        new_gb = placed_members * disk_gb
        own = capacity.Inventory(
            state.total_usable_disk_gb or 0,
            state.disk_allocation_ratio or defaults.disk_ratio,
            # The state takes new members off its free disk only.
            (state.disk_mb_used or 0) / 1024 + new_gb,
            new_gb,
            defaults.disk_mb / 1024,
        )
        left_gb = capacity.free(own, resources['DISK_GB'])
        members = max(0, int(left_gb // disk_gb))
    if pcpus and not pinned and (dedicated := cpus(state, True)).dedicated:
        left = capacity.free(
            _inventory(state, dedicated, defaults, placed_members * pcpus),
            resources.get('PCPU'),
        )
        members = min(members, max(0, int(left // pcpus)))
    return members


def _inventory(
    state: Any, own: Cpus, defaults: capacity.Defaults, placed_members: int
) -> capacity.Inventory:
    if own.dedicated:
        return capacity.Inventory(own.total, 1.0, own.used, placed_members)
    ratio = state.cpu_allocation_ratio or defaults.cpu_ratio
    return capacity.Inventory(
        own.total, ratio, own.used, placed_members, defaults.cpus
    )
