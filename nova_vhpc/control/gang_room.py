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
vCPU there: they wait for that vCPU. On a host wider than its gangs it costs
less to pin these elsewhere, so that such VMs find CPUs without them. What
that is worth is estimated for each number of CPUs, and the best is taken.
They must be CPUs that such VMs can be on, as some are bound to a NUMA node.
"""

import collections
import dataclasses
import math
from collections.abc import Collection, Iterable

from nova_vhpc.control import gang_contest, gang_demand, model
from nova_vhpc.control.pinning import usable_cpus

GAIN = 0.1
"""Of the host's CPU time, by which it must be better than now: VMs are pinned
anew for it, and it is only an estimate."""

NEARLY = 0.2
FAR = 0.5
"""Of a CPU. So much less than what is fair may be missing for one more to be
left clear; so much more may one have than is fair before it is taken back."""

STEPS = 8
"""Between none and the most; on wide hosts to try all takes too long."""

LITTLE = 0.08
"""Others that have what is fair are not held off: whoever finds no clear CPU
then takes what he can get of another."""


MOST_LOOKS = 64
"""That must agree where what is best goes back and forth."""

MOST_BEFORE = 8
"""Sets of CPUs that were clear before, to which it may change back."""


@dataclasses.dataclass(frozen=True, slots=True)
class Others:
    """Those who never sleep, and can be on the same CPUs.

    :ivar cpus: how many these are.
    :ivar fair: CPUs that are fair for them.
    :ivar awake: how many vCPUs of theirs do not sleep.
    :ivar free: how many of these CPUs have no gang now.
    """

    cpus: int
    fair: float
    awake: int
    free: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """Who is to be served on a host.

    :ivar cpus: of the host.
    :ivar widths: CPUs of each gang.
    :ivar others: by where they can be.
    :ivar order: CPUs to be left clear, the first one first, and for which of
        the others.
    """

    cpus: int
    widths: tuple[int, ...] = ()
    others: tuple[Others, ...] = ()
    order: tuple[tuple[int, int], ...] = ()

    def efficiency(self, clear: int, now: int | None = None) -> float:
        """Part of the host's CPU time in which gangs get on.

        :param clear: CPUs that are left to the others.
        :param now: that are clear now; so it is known who is on the rest.
        """
        room = self.cpus - clear
        if not self.widths or max(self.widths) > room:
            return 0.0
        together = sum(self.widths)
        packed = together / (_rows(self.widths, room) * self.cpus)
        used = min(room, together)
        per_cpu = together / len(self.widths) / used
        own = collections.Counter(place for _, place in self.order[:clear])
        lost = 0.0
        for place, group in enumerate(self.others):
            rest = group.cpus - own[place]
            # Gangs may be anywhere in their room.
            free = own[place] + rest * (room - used) / room
            if group.cpus == self.cpus:
                free = self.cpus - used - (clear - own[place])
            elif clear == now:
                free = group.free
            contested = min(used, rest, group.awake - free)
            if contested <= 0:
                continue
            part = (group.fair - free) / contested
            if part < LITTLE:
                part = gang_contest.MOST_OF_A_CPU
            part = min(gang_contest.MOST_OF_A_CPU, part)
            lost += part * min(1.0, contested * per_cpu, rest / room)
        return packed * (1 - min(1.0, lost))

    def best(self, now: int | None) -> int:
        """How many of the CPUs to leave clear.

        :param now: that are clear now; None if others are.
        """
        held = now or 0
        spare = self.cpus - max(self.widths, default=self.cpus)
        most = min(spare, len(self.order))
        fair = sum(group.fair for group in self.others)
        if held > min(spare, fair + FAR):
            held, now = 0, None
        steps = min(most, STEPS) or 1
        best = max(
            (most * step // steps for step in range(steps + 1)),
            key=lambda clear: self.efficiency(clear, now),
        )
        if self.efficiency(best, now) < self.efficiency(held, now) + GAIN:
            return held
        return best


class Room:
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
        order = [cpu for cpu, _ in need.order]
        now: int | None = len(self.clear_cpus)
        if not self.clear_cpus.issubset(order):
            # Some serve nobody.
            now = None
        clear = frozenset(order[: need.best(now)])
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
    sides: gang_contest.Sides,
    demands: gang_demand.DemandTracker,
    members: Collection[model.VmView],
    pinned: Collection[str],
    clear_cpus: frozenset[int] = frozenset(),
) -> Need:
    """Whom to leave CPUs to: of all that never sleep, who is not pinned.

    :param members: that take turns, or could.
    :param pinned: uuids of the VMs that we pin.
    :param clear_cpus: that are clear now; these come first.
    """
    cpus = len(view.cpus)
    floating = sides.hungry.difference(pinned)
    if not floating:
        return Need(cpus)
    fair = gang_contest.fair_cpus(view, sides, demands)
    # What is fair for each vCPU, by the CPUs that it can be on.
    groups: dict[frozenset[int], list[float]] = {}
    for uuid in sorted(floating):
        awake = demands.awake_vcpus(uuid)
        for vcpu in awake:
            groups.setdefault(sides.reach_of(uuid, vcpu), []).append(
                fair.get(uuid, 0.0) / len(awake)
            )
    reaches = sorted(groups, key=lambda reach: (len(reach), sorted(reach)))
    ranked = [cpu.id for cpu in usable_cpus.from_the_last(view.cpus)]
    ranked.sort(key=lambda cpu: cpu not in clear_cpus)
    order: dict[int, int] = {}
    others: list[Others] = []
    for place, reach in enumerate(reaches):
        part = min(sum(groups[reach]), float(len(reach)))
        here = [cpu for cpu in ranked if cpu in reach and cpu not in order]
        kept = min(len(clear_cpus.intersection(here)), math.floor(part + FAR))
        most = max(kept, math.floor(part + NEARLY))
        order |= dict.fromkeys(here[:most], place)
        others.append(
            Others(
                len(reach),
                part,
                len(groups[reach]),
                len(reach - sides.cpus),
            )
        )
    return Need(
        cpus,
        widths(members, cpus),
        tuple(others),
        tuple(
            sorted(order.items(), key=lambda item: item[0] not in clear_cpus)
        ),
    )


def widths(members: Iterable[model.VmView], cpus: int) -> tuple[int, ...]:
    """CPUs of each gang: of a cluster's members where they fit side by side.

    :param cpus: of the host.
    """
    clusters: dict[str, list[int]] = {}
    for vm in members:
        clusters.setdefault(vm.cluster or vm.uuid, []).append(
            min(vm.vcpus, cpus)
        )
    found: list[int] = []
    for sizes in clusters.values():
        found += [sum(sizes)] if sum(sizes) <= cpus else sizes
    return tuple(found)


def _rows(sizes: Iterable[int], room: int) -> int:
    """Turns that gangs need, if they never cross each other's CPUs."""
    free: list[int] = []
    for size in sorted(sizes, reverse=True):
        for row, left in enumerate(free):
            if left >= size:
                free[row] -= size
                break
        else:
            free.append(room - size)
    return len(free)
