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

"""What a host has left of its own CPUs, RAM and disk.

Nova's host states are fresh, but know of no ratio that was set in Placement,
and count as used what is reserved. Placement's figures, from the last bulk
read, are what a claim is judged by, but may be half a minute old.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nova_vhpc.scheduler.sources.snapshot import Resource

Resources = Mapping[str, Resource]


class Inventory(NamedTuple):
    """One of a host's resources as Nova has it.

    :ivar total: how much there is.
    :ivar ratio: allocation ratio.
    :ivar used: by guests, and what is reserved.
    :ivar placed: part of ``used`` that members of this request took.
    :ivar reserved: what nova.conf says is reserved.
    """

    total: float
    ratio: float
    used: float
    placed: float = 0
    reserved: float = 0


class Defaults(NamedTuple):
    """nova.conf's options for compute nodes that report no ratio of their own.

    :ivar cpu_ratio: ``initial_cpu_allocation_ratio``.
    :ivar cpus: ``reserved_host_cpus``; and so on.
    """

    cpu_ratio: float
    ram_ratio: float
    disk_ratio: float
    cpus: int = 0
    ram_mb: int = 0
    disk_mb: int = 0

    @classmethod
    def of(cls, conf: Any) -> 'Defaults':
        """Read them from nova-scheduler's ConfigOpts."""
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
    # What Nova counts as used, but Placement does not, is reserved or was
    # claimed since the last read. The reserved part is at most what is
    # missing in Placement's capacity, unless its ratio is the greater one.
    missing = round(
        inventory.total - placement.capacity / (inventory.ratio or 1.0), 6
    )
    most = missing if missing >= 0 else inventory.reserved
    reserved = min(inventory.used - inventory.placed - placement.used, most)
    return placement.capacity - inventory.used + max(0.0, reserved)
