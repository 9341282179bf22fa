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

"""Seeds that put new members where the slowest running ones gain most.

The whole cluster waits for its slowest member. Where several are as slow,
no single move pays: the next one is then the slowest. So new members go to
one after the other of them, and for some of their numbers a seed results.
"""

import heapq
import itertools
from collections.abc import Iterator, Sequence

from nova_vhpc.scheduler.planner.host_groups import (
    Group,
    HostPool,
    fill,
    fill_hosts,
)
from nova_vhpc.scheduler.planner.objective import Counts

MOST_SLOW = 12
"""Hosts of running members that are looked at."""

MOST_EASING = 32
"""New members that are spent on them."""


def relieving(pool: HostPool, nearest: Sequence[Group]) -> Iterator[Counts]:
    """Placements that help the slowest running members, each complete.

    :param nearest: groups that members run in, for all other new ones.
    """
    objective = pool.objective
    if not objective.existing:
        return
    capacity = pool.capacity
    members = objective.request.members
    order = sorted(
        (index for index in objective.existing if capacity[index]),
        key=lambda index: (-objective.existing[index], index),
    )
    for eased in _eased(pool):
        rest = members - sum(eased.values())
        for grow in (members, 0) if rest else (0,):
            counts = dict(eased)
            remaining = fill_hosts(order, grow, rest, capacity, counts)
            for group in nearest:
                if remaining <= 0:
                    break
                remaining = fill(group, members, remaining, capacity, counts)
            if not fill_hosts(
                pool.everything.order, members, remaining, capacity, counts
            ):
                yield counts


def _eased(pool: HostPool) -> Iterator[Counts]:
    """Members for the slowest: one, two, four... up to all."""
    objective = pool.objective
    hosts = objective.hosts
    capacity = pool.capacity
    eased: Counts = {}
    switches, racks = objective.spread(eased)
    known_us: dict[tuple[int, int, int | None, int | None], float] = {}

    def each_us(index: int) -> float:
        """What a running member on a host costs."""
        new = eased.get(index, 0)
        host = hosts[index]
        # A new member changes it for few of the others.
        key = (
            index,
            new,
            switches.get(host.switch or ''),
            racks.get(host.rack or ''),
        )
        found = known_us.get(key)
        if found is None:
            here = {index: objective.existing[index] + new}
            found = objective.walk(here, eased, switches, racks)[1]
            known_us[key] = found
        return found

    def near(index: int) -> int | None:
        """Where a new member helps those of a host."""
        groups = (
            pool.switches.get(hosts[index].switch or ''),
            pool.racks.get(hosts[index].rack or ''),
        )
        orders = [group.order for group in groups if group is not None]
        for other in itertools.chain((index,), *orders):
            if capacity[other] > eased.get(other, 0):
                return other
        return None

    slow = heapq.nlargest(MOST_SLOW, objective.existing, key=each_us)
    members = objective.request.members
    for number in range(1, min(members, MOST_EASING) + 1):
        for index in sorted(slow, key=each_us, reverse=True):
            target = near(index)
            if target is not None:
                break
        else:
            return
        eased[target] = eased.get(target, 0) + 1
        switches, racks = objective.spread(eased)
        if number == members or number.bit_count() == 1:
            yield dict(eased)
