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

"""How many CPUs gangs leave to VMs that never sleep and have no windows.

Such a VM takes its fair part of any CPU that it is on, from all gangs with a
vCPU there: they wait for that vCPU. One vCPU that is to have nearly a whole
CPU leaves gangs that are on all CPUs next to nothing. On a host wider than its
gangs it costs less to pin these elsewhere, so that such VMs find CPUs without
them. For each number of CPUs it is estimated what gangs keep if each of the
others is to have what is fair (:mod:`nova_vhpc.control.gang.entitlement`),
and the best is taken. They must be CPUs that such VMs can be on, as some are
bound to a NUMA node.
"""

import collections
import dataclasses
import math
from collections.abc import Collection, Iterable

from nova_vhpc.control import model
from nova_vhpc.control.gang import competitors, demand, entitlement
from nova_vhpc.control.pinning import usable_cpus

GAIN = 0.1
"""Of the host's CPU time, by which it must be better than now: VMs are pinned
anew for it, and it is only an estimate."""

SERVED = 0.1
"""Of the time, lost where all others have what is fair without gangs, and some
are on the gangs' CPUs all the same: so much was it in simulations."""

STEPS = 8
"""Between none and the most; on wide hosts to try all takes too long."""

MOST_LOOKS = 64
"""That must agree where what is best goes back and forth."""

MOST_BEFORE = 8
"""Sets of CPUs that were clear before, to which it may change back."""


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """Who is to be served on a host.

    :ivar host: its CPUs.
    :ivar clusters: vCPUs of each member of those that take turns, or could.
    :ivar others: who never sleeps, and is not pinned by us.
    :ivar order: CPUs that may be left clear, the first one first.
    :ivar free: CPUs that have no gang now.
    """

    host: frozenset[int]
    clusters: tuple[tuple[int, ...], ...] = ()
    others: tuple[entitlement.CpuBoundVm, ...] = ()
    order: tuple[int, ...] = ()
    free: frozenset[int] = frozenset()

    def efficiency(self, clear: int, now: int | None = None) -> float:
        """Part of the host's CPU time in which gangs get on.

        What is left for it by pauses that give each of the others what is
        fair, or by gangs that weigh little beside them.

        :param clear: CPUs that are left to the others.
        :param now: that are clear now; so it is known which the rest are.
        """
        room = len(self.host) - clear
        if not self.clusters or self._widest > room:
            return 0.0
        sizes = widths(self.clusters, room)
        used = min(room, sum(sizes))
        left = frozenset(self.order[:clear])

        def without_gangs(reach: frozenset[int] | None) -> float:
            if clear == now:
                return len(self.free if reach is None else self.free & reach)
            if reach is None:
                return len(self.host) - used
            # Gangs may be anywhere in their room.
            return len(reach & left) + max(0, len(reach - left) - used)

        touched = entitlement.contested(self.others, without_gangs) * (
            sum(sizes) / len(sizes) / used
        )
        reaches = [one.claim.allowed_cpus for one in self.others]
        if None not in reaches:
            touched = min(
                touched,
                len(frozenset().union(*filter(None, reaches)) - left) / room,
            )
        missing = entitlement.needs(self.others, without_gangs)
        if not missing:
            part = SERVED
        elif touched < 1:
            part = max(need.beside for need in missing)
        else:
            part = max(need.pauses for need in missing)
        lost = part * min(1.0, touched)
        return _packed(sizes, room) / len(self.host) * (1 - lost)

    def best(self, now: int | None) -> int:
        """How many of the CPUs to leave clear.

        :param now: that are clear now; None if others are.
        """
        most = min(len(self.host) - self._widest, len(self.order))
        if not self.clusters or most <= 0:
            return 0
        held = now or 0
        if held > most:
            held, now = 0, None
        tried = {most * step // STEPS for step in range(STEPS + 1)}
        tried |= {max(0, most - 1), max(0, most - 2), max(0, most - 3), held}
        efficiency = {
            clear: self.efficiency(clear, now) for clear in sorted(tried)
        }
        best = max(efficiency, key=efficiency.__getitem__)
        if efficiency[best] < efficiency[held] + GAIN:
            return held
        return best

    @property
    def _widest(self) -> int:
        """CPUs that must be left to gangs."""
        widest = max(map(max, self.clusters), default=1)
        return min(widest, len(self.host))


class ReservedCpus:
    """Follows what is best, without haste.

    Two looks in a row must agree before anything changes, and twice as many
    each time that it changes back; two again when it has stayed for long.

    :param periods: control periods between two looks.
    :ivar clear_cpus: that gangs are to be kept off.
    """

    def __init__(self, periods: int) -> None:
        self._periods = max(1, periods)
        self._calls = 0
        self._wanted: frozenset[int] = frozenset()
        self._agreed = 0
        self._patience = 2
        # More than one: where each changes what is best, they may go round.
        self._before: collections.deque[frozenset[int]] = collections.deque(
            maxlen=MOST_BEFORE
        )
        self.clear_cpus: frozenset[int] = frozenset()

    def is_due(self) -> bool:
        """Count a control period; whether to look in this one."""
        self._calls += 1
        return self._calls % self._periods == 0

    def look(self, need: Need) -> None:
        """See what is best now."""
        now: int | None = len(self.clear_cpus)
        if not self.clear_cpus.issubset(need.order):
            # Some serve nobody.
            now = None
        clear = frozenset(need.order[: need.best(now)])
        self._agreed = self._agreed + 1 if clear == self._wanted else 1
        self._wanted = clear
        if clear == self.clear_cpus:
            if self._agreed >= MOST_LOOKS:
                self._patience = 2
                self._before.clear()
            return
        if self._agreed < self._patience:
            return
        if clear in self._before:
            self._patience = min(MOST_LOOKS, 2 * self._patience)
        self._before.append(self.clear_cpus)
        self.clear_cpus = clear


def need(
    view: model.HostView,
    sides: competitors.Competition,
    demands: demand.DemandTracker,
    found: Iterable[entitlement.CpuBoundVm],
    members: Iterable[model.VmView],
    pinned: Collection[str],
    clear_cpus: frozenset[int] = frozenset(),
) -> Need:
    """Whom to leave CPUs to: of all that never sleep, who is not pinned.

    :param found: all that never sleep.
    :param members: that take turns, or could.
    :param pinned: uuids of the VMs that we pin.
    :param clear_cpus: that are clear now; these come first.
    """
    if sides.hungry.issubset(pinned):
        return Need(sides.host)
    others = [one for one in found if one.uuid not in pinned]
    # What is fair for each vCPU, by the CPUs that it can be on.
    groups: dict[frozenset[int], list[float]] = {}
    for one in others:
        for vcpu in demands.awake_vcpus(one.uuid):
            groups.setdefault(sides.reach_of(one.uuid, vcpu), []).append(
                one.fair / one.vcpus
            )
    ranked = [cpu.id for cpu in usable_cpus.last_first(view.cpus)]
    ranked.sort(key=lambda cpu: cpu not in clear_cpus)
    # By CPU, whether it is more than what is fair: one, as they are whole.
    order: dict[int, bool] = {}
    for reach in sorted(groups, key=lambda one: (len(one), sorted(one))):
        # Six times a third of a CPU are two, whatever rounding says.
        whole = math.floor(round(sum(groups[reach]), 6))
        here = [cpu for cpu in ranked if cpu in reach and cpu not in order]
        order |= {
            cpu: number >= whole
            for number, cpu in enumerate(
                here[: min(whole + 1, len(groups[reach]))]
            )
        }
    return Need(
        sides.host,
        clusters_of(members),
        tuple(others),
        tuple(
            sorted(order, key=lambda cpu: (cpu not in clear_cpus, order[cpu]))
        ),
        sides.host - sides.cpus,
    )


def clusters_of(
    members: Iterable[model.VmView],
) -> tuple[tuple[int, ...], ...]:
    """How wide the members are, cluster by cluster."""
    found: dict[str, list[int]] = {}
    for vm in members:
        found.setdefault(vm.cluster or vm.uuid, []).append(vm.vcpus)
    return tuple(map(tuple, found.values()))


def widths(clusters: Iterable[tuple[int, ...]], cpus: int) -> list[int]:
    """CPUs of each gang: of a cluster's members where they fit side by side.

    :param cpus: that there are for gangs.
    """
    found: list[int] = []
    for members in clusters:
        sizes = [min(size, cpus) for size in members]
        found += [sum(sizes)] if sum(sizes) <= cpus else sizes
    return found


def _packed(sizes: Collection[int], room: int) -> float:
    """On how many CPUs gangs run at a time, about.

    Between turns of gangs that never cross each other's CPUs, and those where
    whoever is narrow enough for what a turn leaves fits there: on simulated
    hosts it was half way.
    """
    rows: list[list[int]] = []
    # What each leaves.
    spare: list[int] = []
    for size in sorted(sizes, reverse=True):
        for number, left in enumerate(spare):
            if size <= left:
                rows[number].append(size)
                spare[number] -= size
                break
        else:
            rows.append([size])
            spare.append(room - size)
    narrowest = min(sizes)
    filled = 0
    for number, left in enumerate(spare):
        for other, fitting in enumerate(rows):
            if left < narrowest:
                break
            for size in fitting if other != number else ():
                if size <= left:
                    left -= size
        filled += room - left
    return (sum(sizes) + filled) / 2 / len(rows)
