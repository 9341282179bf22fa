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
"""

import dataclasses
import math
from collections.abc import Collection, Iterable

from nova_vhpc.control import gang_contest, gang_demand, model

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


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """Who is to be served on a host.

    :ivar cpus: of the host.
    :ivar widths: CPUs of each gang.
    :ivar fair: CPUs that are fair for the others who never sleep.
    :ivar awake: how many vCPUs of theirs do not.
    """

    cpus: int
    widths: tuple[int, ...] = ()
    fair: float = 0.0
    awake: int = 0

    def efficiency(self, clear: int) -> float:
        """Part of the host's CPU time in which gangs get on.

        :param clear: CPUs that are left to the others.
        """
        room = self.cpus - clear
        if not self.widths or max(self.widths) > room:
            return 0.0
        together = sum(self.widths)
        packed = together / (_rows(self.widths, room) * self.cpus)
        used = min(room, together)
        missing = self.fair - (self.cpus - used)
        contested = min(used, self.awake - (self.cpus - used))
        if contested <= 0:
            return packed
        part = missing / contested
        if part < LITTLE:
            part = gang_contest.MOST_OF_A_CPU
        part = min(gang_contest.MOST_OF_A_CPU, part)
        touched = contested * together / len(self.widths) / used
        return packed * (1 - part * min(1.0, touched))

    def best(self, now: int) -> int:
        """CPUs to leave clear.

        :param now: that are clear now.
        """
        spare = self.cpus - max(self.widths, default=self.cpus)
        most = min(spare, math.floor(self.fair + NEARLY))
        if now > min(spare, self.fair + FAR):
            now = 0
        steps = min(most, STEPS) or 1
        best = max(
            (most * step // steps for step in range(steps + 1)),
            key=self.efficiency,
        )
        if self.efficiency(best) < self.efficiency(now) + GAIN:
            return now
        return best


class Room:
    """Follows what is best, without haste.

    :param periods: control periods between two looks. Two in a row must
        agree before anything changes.
    """

    def __init__(self, periods: int) -> None:
        self._periods = max(1, periods)
        self._calls = 0
        self._wanted = 0
        self.clear_cpus = 0

    def is_due(self) -> bool:
        """Count a control period; whether to look in this one."""
        self._calls += 1
        return self._calls % self._periods == 0

    def look(self, need: Need) -> None:
        """See what is best now."""
        best = need.best(self.clear_cpus)
        if best == self._wanted:
            self.clear_cpus = best
        self._wanted = best


def need(
    view: model.HostView,
    sides: gang_contest.Sides,
    demands: gang_demand.DemandTracker,
    members: Collection[model.VmView],
    pinned: Collection[str],
) -> Need:
    """Whom to leave CPUs to: of all that never sleep, who is not pinned.

    :param members: that take turns, or could.
    :param pinned: uuids of the VMs that we pin.
    """
    cpus = len(view.cpus)
    floating = sides.hungry.difference(pinned)
    if not floating:
        return Need(cpus)
    fair = gang_contest.fair_cpus(view, sides, demands)
    return Need(
        cpus,
        widths(members, cpus),
        sum(fair.get(uuid, 0.0) for uuid in floating),
        sum(demands.awake(uuid) for uuid in floating),
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
