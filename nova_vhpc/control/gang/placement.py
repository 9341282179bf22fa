# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""On which CPUs the gangs of each slot run.

A gang stays on the CPUs that it had, its home, while these are free; moved
vCPUs find cold caches. The CPUs that slots leave clear are the same ones as
far as possible, so that VMs in no gang stay there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from nova_vhpc.control import model
from nova_vhpc.control.gang import gangs

Placement = Mapping[str, tuple[int, ...]]
"""By uuid of each VM that runs in a slot, the CPU of each of its vCPUs."""


def bound_cpus(
    vms: Iterable[model.VmView | model.OtherVm], host_cpus: frozenset[int]
) -> frozenset[int]:
    """Return the CPUs that unmanaged VMs are bound to, if not to all."""
    bound: frozenset[int] = frozenset()
    for vm in vms:
        pins = vm.vcpu_pins if isinstance(vm, model.OtherVm) else None
        allowed = frozenset[int]().union(*(pins or ())) & host_cpus
        if allowed != host_cpus:
            bound |= allowed
    return bound


class Placer:
    """Places the gangs of each slot."""

    def __init__(self) -> None:
        """Start without homes."""
        self._homes: dict[str, tuple[int, ...]] = {}
        self._side = 0

    def place(
        self,
        slots: Sequence[Collection[gangs.Gang]],
        cpus: Sequence[model.Cpu],
        last_cpus: frozenset[int],
        side: int,
    ) -> tuple[Placement, ...]:
        """Return the placement of each slot.

        A gang that finds no CPUs in a slot is left out of that slot.

        :param slots: gangs of each slot.
        :param cpus: CPUs of the host.
        :param last_cpus: CPUs that are taken last, because VMs in no gang are
            bound to them.
        :param side: another number makes gangs run on other CPUs.
        """
        order = sorted(
            cpus,
            key=lambda cpu: (
                *(cpu.id in last_cpus, cpu.socket, cpu.llc, cpu.core, cpu.id),
            ),
        )
        first = len(cpus) - len(last_cpus)
        begin = side % max(1, first)
        order = order[begin:first] + order[:begin] + order[first:]
        if side != self._side:
            self._side = side
            self._homes = {}
        present = frozenset(cpu.id for cpu in cpus)
        allowed = {
            member.uuid: member.cpus & present
            for slot in slots
            for gang in slot
            for member in gang.members
        }
        # A VM may be bound to other CPUs now, or a CPU was taken off.
        self._homes = {
            uuid: home
            for uuid, home in self._homes.items()
            if uuid in allowed and allowed[uuid].issuperset(home)
        }
        return tuple(self._place_slot(slot, order) for slot in slots)

    def _place_slot(
        self, slot: Collection[gangs.Gang], order: Sequence[model.Cpu]
    ) -> Placement:
        free = {cpu.id for cpu in order}
        placement: dict[str, tuple[int, ...]] = {}
        wide_first = sorted(slot, key=lambda gang: (-gang.width, gang.key))
        homeless: list[gangs.Gang] = []
        for gang in wide_first:
            homes = {
                member.uuid: self._homes.get(member.uuid, ())
                for member in gang.members
            }
            needed = [cpu for home in homes.values() for cpu in home]
            if len(needed) == gang.width and free.issuperset(needed):
                placement |= homes
                free.difference_update(needed)
            else:
                homeless.append(gang)
        for gang in homeless:
            chosen = _choose(gang, free, order)
            placement |= chosen
            for uuid, cpus in chosen.items():
                free.difference_update(cpus)
                self._homes.setdefault(uuid, cpus)
        return placement


def _choose(
    gang: gangs.Gang, free: Collection[int], order: Sequence[model.Cpu]
) -> dict[str, tuple[int, ...]]:
    """Return free CPUs for each member; empty if one finds too few."""
    left = set(free)
    chosen: dict[str, tuple[int, ...]] = {}
    for member in gang.members:
        caches: dict[tuple[int, int], list[int]] = {}
        for cpu in order:
            if cpu.id in left and cpu.id in member.cpus:
                caches.setdefault((cpu.socket, cpu.llc), []).append(cpu.id)
        # The cache that the member fills best, else the first CPUs.
        fitting = [
            cpus for cpus in caches.values() if len(cpus) >= member.vcpus
        ]
        found = (
            min(fitting, key=len)
            if fitting
            else [cpu for cpus in caches.values() for cpu in cpus]
        )[: member.vcpus]
        if len(found) < member.vcpus:
            return {}
        chosen[member.uuid] = tuple(found)
        left.difference_update(found)
    return chosen
