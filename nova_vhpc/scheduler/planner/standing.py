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


"""Members that run already, and what they cost as long as they are left alone.

A large cluster that grows by a few members has hundreds of hosts that the
search never touches. Their cost only changes where members are added in
the same part of the fabric, so it is summed up once per part.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_vhpc.scheduler.planner.objective import Objective

Counts = dict[int, int]
_Place = tuple[str | None, str | None]


class Standing:
    """The running members of one request.

    :ivar switches: running members by switch.
    :ivar racks: running members by rack.
    :ivar pairs: pairs of co-located ones.
    """

    def __init__(self, objective: 'Objective') -> None:
        self.switches: dict[str, int] = {}
        self.racks: dict[str, int] = {}
        self.pairs = 0
        self._objective = objective
        self._parts: dict[_Place, Counts] = {}
        # No sets: sums depend, in the last digit, on the order of what is
        # summed up, and that of strings in a set on the process.
        self._of_switch: dict[str, dict[_Place, None]] = {}
        self._of_rack: dict[str, dict[_Place, None]] = {}
        self._costs: dict[_Place, tuple[float, float]] | None = None
        self._total = 0.0
        self._slowest: list[tuple[float, _Place]] = []
        for index, here in objective.existing.items():
            self.pairs += here * (here - 1) // 2
            host = objective.hosts[index]
            place = (host.switch, host.rack)
            self._parts.setdefault(place, {})[index] = here
            if host.switch is not None:
                self._add(self.switches, host.switch, here)
                self._of_switch.setdefault(host.switch, {})[place] = None
            if host.rack is not None:
                self._add(self.racks, host.rack, here)
                self._of_rack.setdefault(host.rack, {})[place] = None

    def around(
        self,
        switches: Iterable[str],
        racks: Iterable[str],
        counts: Counts,
    ) -> tuple[Counts, float, float]:
        """Hosts whose members' cost a placement changes, and the rest's.

        :param switches: on which members are added.
        :param racks: in which members are added.
        :param counts: the members that are added.
        :returns: all members by host of those that must be looked at;
            the sum and the slowest of all others.
        """
        if not self._parts:
            return {i: new for i, new in counts.items() if new}, 0.0, 0.0
        if self._costs is None:
            self._learn()
        assert self._costs is not None
        changed: dict[_Place, None] = {}
        for name in switches:
            changed |= self._of_switch.get(name, {})
        for name in racks:
            changed |= self._of_rack.get(name, {})
        hosts = self._objective.hosts
        walked: Counts = {}
        for index, new in counts.items():
            if new:
                host = hosts[index]
                place = (host.switch, host.rack)
                if place in self._parts:
                    changed[place] = None
                walked[index] = new
        total = self._total
        for place in changed:
            total -= self._costs[place][0]
            for index, here in self._parts[place].items():
                walked[index] = walked.get(index, 0) + here
        worst = 0.0
        for slowest, place in self._slowest:
            if place not in changed:
                worst = slowest
                break
        return walked, total, worst

    def _learn(self) -> None:
        """Sum up every part of the fabric, once: it needs all members."""
        self._costs = {
            place: self._objective.walk(part, {}, self.switches, self.racks)
            for place, part in self._parts.items()
        }
        self._total = sum(total for total, _ in self._costs.values())
        self._slowest = sorted(
            ((worst, place) for place, (_, worst) in self._costs.items()),
            key=lambda item: item[0],
            reverse=True,
        )

    @staticmethod
    def _add(sums: dict[str, int], name: str, here: int) -> None:
        sums[name] = sums.get(name, 0) + here
