# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Convert Nova's HostState to the values that filter and planner use.

In the host state of a compute node that was just created, most values are
None; no function here raises because of that.
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
    """The host CPUs for guests of one kind: with dedicated or shared CPUs.

    :ivar total: number of the CPUs.
    :ivar used: number of vCPUs of the guests on them.
    :ivar dedicated: whether Nova gives each CPU to one vCPU only.
    """

    total: int
    used: int
    dedicated: bool = False


def cpus(state: Any, pinned: bool) -> Cpus:
    """Return the CPUs of a host for guests with or without dedicated CPUs.

    Nova's ``vcpus_total`` excludes the CPUs in ``cpu_dedicated_set``, but its
    ``vcpus_used`` counts the vCPUs of all guests.

    :param pinned: whether the guests have dedicated CPUs.
    """
    total, used = state.vcpus_total or 0, state.vcpus_used or 0
    dedicated = taken = shared = 0
    if state.numa_topology is not None:
        for cell in state.numa_topology.cells:
            # Without cpu_dedicated_set, all CPUs are in both sets.
            if not cell.pcpuset <= cell.cpuset:
                dedicated += len(cell.pcpuset)
                taken += len(cell.pinned_cpus)
                shared += cell.cpu_usage
    if pinned and dedicated:
        return Cpus(dedicated, taken, True)
    # "taken" includes CPUs of emulator threads, which are no vCPUs; "shared"
    # excludes guests without NUMA topology. Both are therefore lower bounds.
    return Cpus(total, max(shared, used - taken))


def pinned_vcpus(spec_obj: Any) -> int:
    """Return how many vCPUs of one member get a dedicated CPU each."""
    numa = spec_obj.numa_topology if 'numa_topology' in spec_obj else None
    return sum(len(cell.pcpuset) for cell in numa.cells) if numa else 0


def emulator_cpus(spec_obj: Any) -> int:
    """Return how many dedicated CPUs a member's emulator threads get."""
    numa = spec_obj.numa_topology if 'numa_topology' in spec_obj else None
    return int(numa is not None and numa.emulator_threads_isolated)


class Member(NamedTuple):
    """The CPUs and RAM that one member needs.

    :ivar pinned: whether it gets dedicated CPUs and no shared ones.
    :ivar cpus: number of CPUs of that kind.
    :ivar ram_mb: RAM in MB.
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
    """Return the facts that the planner needs about a host.

    :param state: Nova's host state.
    :param name: name of the host that is unique in the request.
    :param slots: number of members that its uplinks, devices and disk serve.
    :param link_mbps: speed of its slowest uplink in Mbit/s; 0 if unknown.
    :param defaults: ratios and reserved amounts of nova.conf.
    :param member: CPUs and RAM of one member.
    :param resources: the host's own resources in Placement, as far as known.
    :param placed_members: number of members of this request on the host.
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
    member_resources: Mapping[str, int],
    defaults: capacity.Defaults,
    pinned: bool,
    resources: capacity.Resources,
    placed_members: int = 0,
) -> int:
    """Return how many members the resources beyond CPUs and RAM allow.

    These are disk, and for members with both kinds of CPUs the dedicated
    ones: :func:`facts` contains the shared CPUs then.

    :param member_resources: amounts that one member takes of the host itself,
        by resource class.
    :param defaults: ratios and reserved amounts of nova.conf.
    :param pinned: whether :func:`facts` contains the dedicated CPUs.
    :param resources: the host's own resources in Placement; an unknown one
        is no limit.
    :param placed_members: number of members of this request on the host.
    """
    members = NO_LIMIT
    disk_gb = member_resources.get('DISK_GB')
    pcpus = member_resources.get('PCPU')
    if disk_gb and 'DISK_GB' in resources:
        new_gb = placed_members * disk_gb
        own = capacity.Inventory(
            state.total_usable_disk_gb or 0,
            state.disk_allocation_ratio or defaults.disk_ratio,
            # Nova's consume_from_request() lowers the free disk, but does not
            # raise disk_mb_used.
            (state.disk_mb_used or 0) / 1024 + new_gb,
            new_gb,
            defaults.disk_mb / 1024,
        )
        free_gb = capacity.free(own, resources['DISK_GB'])
        members = max(0, int(free_gb // disk_gb))
    if pcpus and not pinned and (dedicated := cpus(state, True)).dedicated:
        free = capacity.free(
            _inventory(state, dedicated, defaults, placed_members * pcpus),
            resources.get('PCPU'),
        )
        members = min(members, max(0, int(free // pcpus)))
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
