# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Free CPUs, RAM and disk of a host, from Nova's and Placement's figures.

Nova's host states are up to date, but do not contain ratios that were set in
Placement, and count reserved amounts as used. Placement's figures decide
whether a claim succeeds, but those of the last bulk read may be half a minute
old.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nova_vhpc.scheduler.sources.snapshot import Resource

Resources = Mapping[str, Resource]


class Inventory(NamedTuple):
    """One of a host's resources in Nova's host state.

    :ivar total: total amount.
    :ivar ratio: allocation ratio.
    :ivar used: amount that guests use, plus the reserved amount.
    :ivar placed: part of ``used`` that members of this request took.
    :ivar reserved: reserved amount according to nova.conf.
    """

    total: float
    ratio: float
    used: float
    placed: float = 0
    reserved: float = 0


class Defaults(NamedTuple):
    """nova.conf's options for compute nodes that report no ratio of their own.

    :ivar cpu_ratio: ``initial_cpu_allocation_ratio``.
    :ivar ram_ratio: ``initial_ram_allocation_ratio``.
    :ivar disk_ratio: ``initial_disk_allocation_ratio``.
    :ivar cpus: ``reserved_host_cpus``.
    :ivar ram_mb: ``reserved_host_memory_mb``.
    :ivar disk_mb: ``reserved_host_disk_mb``.
    """

    cpu_ratio: float
    ram_ratio: float
    disk_ratio: float
    cpus: int = 0
    ram_mb: int = 0
    disk_mb: int = 0

    @classmethod
    def from_conf(cls, conf: Any) -> 'Defaults':
        """Return the options of nova-scheduler's ConfigOpts."""
        return cls(
            conf.initial_cpu_allocation_ratio,
            conf.initial_ram_allocation_ratio,
            conf.initial_disk_allocation_ratio,
            conf.reserved_host_cpus,
            conf.reserved_host_memory_mb,
            conf.reserved_host_disk_mb,
        )


def free(inventory: Inventory, placement: Resource | None) -> float:
    """Return how much of a resource Placement would still allocate.

    :param inventory: the resource as Nova's host state has it.
    :param placement: the resource as Placement has it, None if unknown: then
        Nova's figures alone count.
    """
    if placement is None:
        return inventory.total * inventory.ratio - inventory.used
    # An amount that Nova counts as used and Placement does not is reserved,
    # or was claimed since the last read. The reserved part is at most the
    # difference of the capacities, unless Placement's ratio is the greater
    # one: then it is at most what nova.conf reserves.
    missing = round(
        inventory.total - placement.capacity / (inventory.ratio or 1.0), 6
    )
    most = missing if missing >= 0 else inventory.reserved
    reserved = min(inventory.used - inventory.placed - placement.used, most)
    return placement.capacity - inventory.used + max(0.0, reserved)
