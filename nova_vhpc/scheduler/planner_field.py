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


"""The hosts of one request, sorted once and grouped by the fabric.

All that the search asks a group is answered without walking its hosts:
they are sorted by room, and their room is summed up from the front.
"""

import dataclasses
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from nova_vhpc.scheduler.cost_table import PAPER_LINK_MBPS
from nova_vhpc.scheduler.planner_model import PlanRequest
from nova_vhpc.scheduler.planner_objective import Counts, Objective

_BIG = 1 << 20
_LINK_BITS = 30
_LOAD_STEPS = 64


class Group:
    """Hosts of one switch, one rack, or all; roomiest first.

    :ivar order: positions of the hosts.
    :ivar children: smaller groups that make it up; empty for a leaf.
    :ivar total: members that fit.
    """

    __slots__ = ('_negative', '_sums', 'children', 'order', 'total')

    def __init__(
        self,
        order: list[int],
        room: Sequence[int],
        children: Sequence['Group'] = (),
    ) -> None:
        self.order = order
        self.children = children
        rooms = [room[index] for index in order]
        self.total = sum(rooms)
        self._negative = [-free for free in rooms]
        # Most groups are too small for the job and never asked again.
        self._sums: list[int] = []

    def holds(self, level: int) -> int:
        """Members that fit with at most ``level`` new ones per host."""
        full = bisect_right(self._negative, -level)
        if full == len(self.order):
            return level * full
        return level * full + self.total - self._sum(full)

    def needed(self, level: int, members: int) -> int:
        """Hosts that ``members`` take, ``level`` new ones per host."""
        full = bisect_right(self._negative, -level)
        if level * full >= members:
            return -(-members // level)
        rest = members - level * full
        before = self._sum(full)
        return bisect_right(self._sums, before + rest - 1)

    def _sum(self, hosts: int) -> int:
        """Room of so many of the roomiest hosts."""
        if not self._sums:
            self._sums.extend(
                accumulate((-free for free in self._negative), initial=0)
            )
        return self._sums[hosts]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """All hosts with room.

    :ivar room: new members by position of the host, policy observed.
    :ivar switches: hosts with room by switch.
    :ivar racks: hosts with room by rack.
    """

    objective: Objective
    room: list[int]
    everything: Group
    switches: dict[str, Group]
    racks: dict[str, Group]


def make_field(objective: Objective, room: list[int]) -> Field:
    """Sort and group the hosts of a request; costs a sort of all hosts.

    :param room: new members that each host may get.
    """
    hosts = objective.hosts
    keys = [
        (free << _LINK_BITS)
        + min(host.link_mbps or PAPER_LINK_MBPS, _BIG) * _LOAD_STEPS
        - _LOAD_STEPS * host.used_vcpus // (host.total_cpus or 1)
        for free, host in zip(room, hosts, strict=True)
    ]
    order = sorted(
        (index for index, free in enumerate(room) if free),
        key=keys.__getitem__,
        reverse=True,
    )
    return _grouped(objective, room, order)


def limited(
    objective: Objective, room: list[int], limit: int | None
) -> list[int]:
    """Room with a limit on members per host, running ones included.

    :param limit: None for none.
    """
    if limit is None:
        return room
    found = [limit if free > limit else free for free in room]
    for index, count in objective.existing.items():
        found[index] = max(0, min(room[index], limit - count))
    return found


def rooms(request: PlanRequest, objective: Objective) -> list[int]:
    """New members that each host can take by CPUs, RAM and uplinks.

    One loop without calls: this is most of the planner's time.
    """
    vcpus = request.vcpus
    ram_mb = request.ram_mb or 1
    spare = request.spare_cpus
    ratio = request.max_overcommit
    most = request.members
    found = []
    for _, total, used, cpus, ram, slots, _, _, _ in objective.hosts:
        limit = (total - spare) * ratio - used + 1e-9
        if limit > cpus:
            limit = cpus
        free = int(limit // vcpus)
        if free > slots:
            free = slots
        if free > most:
            free = most
        if free > 0:
            by_ram = int(ram // ram_mb)
            if by_ram < free:
                free = max(0, by_ram)
        else:
            free = 0
        found.append(free)
    return found


def _grouped(objective: Objective, room: list[int], order: list[int]) -> Field:
    """Group hosts with room by switch and by rack, keeping their order."""
    by_switch: dict[str, list[int]] = {}
    by_rack: dict[str, list[int]] = {}
    loose: list[int] = []
    hosts = objective.hosts
    for index in order:
        host = hosts[index]
        switch = host.switch
        rack = host.rack
        if switch is not None:
            by_switch.setdefault(switch, []).append(index)
        if rack is not None:
            by_rack.setdefault(rack, []).append(index)
        elif switch is None:
            loose.append(index)
    switches = {name: Group(ids, room) for name, ids in by_switch.items()}
    racks = {}
    top = []
    in_racks: set[str] = set()
    for rack, ids in by_rack.items():
        parts: dict[str | None, list[int]] = {}
        for index in ids:
            parts.setdefault(hosts[index].switch, []).append(index)
        inside = []
        whole = []
        for name, part in parts.items():
            if name is None:
                inside.append(Group(part, room))
                whole.append(inside[-1])
                continue
            in_racks.add(name)
            whole.append(switches[name])
            # Of a switch that serves several racks, the hosts in this one.
            shared = len(part) < len(by_switch[name])
            inside.append(Group(part, room) if shared else switches[name])
        racks[rack] = Group(ids, room, inside)
        # A job that needs several racks better keeps to whole switches.
        top.append(racks[rack] if inside == whole else Group(ids, room, whole))
    top += [group for name, group in switches.items() if name not in in_racks]
    if loose:
        top.append(Group(loose, room))
    everything = Group(order, room, top if len(top) > 1 else ())
    if len(top) == 1:
        everything = Group(order, room, top[0].children)
    return Field(objective, room, everything, switches, racks)


def fill(
    group: Group,
    level: int,
    members: int,
    room: Sequence[int],
    into: Counts,
) -> int:
    """Put members into a group, whole smaller groups before parts.

    The roomiest child first, and for the rest the smallest child that
    takes it: so a job touches few switches and leaves big holes whole.

    :param into: changed; hosts that it has already are left out.
    :returns: members that found no room.
    """
    if not group.children:
        return fill_hosts(group.order, level, members, room, into)
    children = sorted(
        ((child.holds(level), child) for child in group.children),
        key=lambda pair: pair[0],
        reverse=True,
    )
    for position, (holds, child) in enumerate(children):
        if members <= 0 or holds == 0:
            break
        if holds >= members:
            for other, next_child in children[position + 1 :]:
                if other < members:
                    break
                child = next_child
        members = fill(child, level, members, room, into)
    # A switch that serves several racks is counted in each of them.
    return fill_hosts(group.order, level, members, room, into)


def fill_hosts(
    order: Iterable[int],
    level: int,
    members: int,
    room: Sequence[int],
    into: Counts,
) -> int:
    """Put members on hosts in order, at most ``level`` on each."""
    for index in order:
        if members <= 0:
            break
        if index in into:
            continue
        new = min(room[index], level, members)
        if new > 0:
            into[index] = new
            members -= new
    return members
