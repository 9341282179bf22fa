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

"""A host's allocation candidates, in the order in which to claim them.

Nova reads the candidates of a host once per request and only ever claims
``host.allocation_candidates[0]``. Left alone, the second member of a
multi-create on a host claims the very uplink that the first one took, and
the host is passed over although others of its uplinks are free; and of
several schedulers that race for one uplink, the losers never try the
next. :class:`Candidates` therefore keeps count of what was claimed, and
hands out the next candidate each time that its first element is taken.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from nova_vhpc.scheduler.hosts import network_fit
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources.snapshot import UplinkState
from nova_vhpc.topology import model

Candidate = Mapping[str, Any]

_UPLINK = model.UPLINK


def uplinks_of(candidate: Candidate) -> tuple[str, ...]:
    """Return the uuids of the uplinks that a candidate would claim."""
    # Lists are faster than generators here and in offered(), which run for
    # every candidate of thousands of hosts.
    return tuple(
        [
            uuid
            for uuid, allocation in candidate['allocations'].items()
            if _UPLINK in allocation['resources']
        ]
    )


def offered(candidates: Iterable[Candidate]) -> frozenset[str]:
    """Return the uuids of all uplinks that these candidates offer."""
    return frozenset(
        [
            uuid
            for candidate in candidates
            for uuid, allocation in candidate['allocations'].items()
            if _UPLINK in allocation['resources']
        ]
    )


def host_resources(
    candidates: Iterable[Candidate], root: str
) -> Mapping[str, int]:
    """Return what a member takes of the host itself, by resource class.

    :param root: uuid of the host's root provider.
    """
    for candidate in candidates:
        allocation = candidate['allocations'].get(root)
        if allocation is not None:
            resources: Mapping[str, int] = allocation['resources']
            return resources
    return {}


def dedicated(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """A pinned member's candidates, without those of Nova's fallback.

    For hosts that report no dedicated CPUs Nova asks Placement for shared
    ones, too. A host that has both offers either, those first that are
    right; Nova alone would never come to the others.
    """
    own = [
        candidate
        for candidate in candidates
        if any(
            'PCPU' in allocation['resources']
            for allocation in candidate['allocations'].values()
        )
    ]
    return own or candidates


class Candidates(list[Candidate]):
    """Allocation candidates whose first element moves on when taken.

    Reading ``[0]`` hands out the next one, round and round. Iterating,
    counting and all else are those of a list, so that Nova's other
    filters may prune it.

    :param on_take: called when a candidate is handed out.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate] = (),
        on_take: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(candidates)
        self.handed_out: list[Candidate] = []
        self._on_take = on_take

    def __getitem__(self, index: Any) -> Any:
        if index != 0 or len(self) < 2:
            candidate = super().__getitem__(index)
        else:
            candidate = super().__getitem__(len(self.handed_out) % len(self))
        if index == 0:
            self.handed_out.append(candidate)
            if self._on_take is not None:
                self._on_take()
        return candidate


class UplinkReservations:
    """Uplinks that the members of one session have claimed on one host.

    :param uplinks: those that serve the request there and are offered.
    :param rule: of the network configuration.
    :param unknown: whether the host's topology is unknown; then all
        uplinks are taken to serve, and to have one slot.
    """

    def __init__(
        self,
        uplinks: Sequence[UplinkState],
        rule: network_fit.Rule | None,
        unknown: bool = False,
    ) -> None:
        self._uplinks = {uplink.uuid: uplink for uplink in uplinks}
        self._rule = network_fit.ANY if rule is None else rule
        self._unknown = unknown
        # Plain dicts: there are thousands of these objects, mostly empty.
        self._used: dict[str, int] = {}
        self._lost: dict[str, int] = {}

    def members_left(self) -> int:
        """Return how many further members can claim uplinks here."""
        if self._unknown:
            return NO_LIMIT
        return network_fit.members(self._rule, self._free())

    def _free(self) -> Iterable[tuple[str, int]]:
        """Return bridge and free slots of each uplink."""
        return (
            (u.bridge, max(0, _offered_slots(u) - self._used.get(u.uuid, 0)))
            for u in self._uplinks.values()
        )

    def note_outcome(
        self, candidates: Sequence[Candidate], placed: bool
    ) -> None:
        """Take note of which handed-out candidates were claimed.

        :param candidates: those of the host as they are now.
        :param placed: whether a member was placed on the host since.
        """
        if isinstance(candidates, Candidates):
            tried = candidates.handed_out
        else:
            # A later filter replaced our list.
            tried = list(candidates[:1]) if placed else []
        for number, candidate in enumerate(tried, 1):
            won = placed and number == len(tried)
            counts = self._used if won else self._lost
            for uuid in uplinks_of(candidate):
                counts[uuid] = counts.get(uuid, 0) + 1

    def order(
        self,
        candidates: Iterable[Candidate],
        on_take: Callable[[], None] | None = None,
        chance: Callable[[], float] = random.random,
        more: int = 0,
    ) -> Candidates:
        """Return the candidates that may still be claimed, the best first.

        Fast links first, then those with most free slots; chance decides
        between equals, so that schedulers do not race for the same. On a
        shared bridge, the one that this host's other members are on comes
        before all: co-located peers are to meet there and not in the
        switch (HPCVirt'09 section 4).

        :param more: members that are to follow; a pair of bridges that
            leaves others without one comes last if they may need it.
        """
        peers: dict[str, int] = {}
        if self._used and self._rule.kind is network_fit.SHARED:
            for uuid, members in self._used.items():
                if uuid in self._uplinks:
                    bridge = self._uplinks[uuid].bridge
                    peers[bridge] = peers.get(bridge, 0) + members
        stranded = self._stranded(more)
        kept = []
        for candidate in candidates:
            key = self._rank(uplinks_of(candidate), peers, chance, stranded)
            if key is not None:
                kept.append((key, candidate))
        kept.sort(key=lambda pair: pair[0])
        return Candidates([pair[1] for pair in kept], on_take)

    def _stranded(self, more: int) -> Callable[[Set[str]], int]:
        """Of the members to follow, how many a pair leaves without one.

        The bridges with most free slots must be paired with the others, or
        in the end their slots are left with nothing to be paired with.
        """
        if self._rule.bridges < 2 or self._unknown or more <= 0:
            return lambda bridges: 0
        free: Counter[str] = Counter()
        for bridge, slots in self._free():
            free[bridge] += slots
        more = min(more, network_fit.members(self._rule, free.items()) - 1)
        if more <= free.total() - 2 - max(free.values(), default=0):
            # Enough beside the fullest bridge, whichever pair is taken.
            return lambda bridges: 0

        def stranded(bridges: Set[str]) -> int:
            left = ((b, free[b] - (b in bridges)) for b in free)
            return max(0, more - network_fit.members(self._rule, left))

        return stranded

    def _rank(
        self,
        claimed: Sequence[str],
        peers: Mapping[str, int],
        chance: Callable[[], float],
        stranded: Callable[[Set[str]], int],
    ) -> tuple[float, ...] | None:
        lost = 0
        crowded = 0
        slowest: float = 0
        bridges = set()
        for uuid in claimed:
            uplink = self._uplinks.get(uuid)
            used = self._used.get(uuid, 0)
            lost += self._lost.get(uuid, 0)
            crowded += used
            if uplink is not None:
                if used >= uplink.slots:
                    return None
                # As good as lost, unless somebody else has left meanwhile.
                lost += used >= _offered_slots(uplink)
                crowded += uplink.used
                slowest = min(slowest or uplink.mbps, uplink.mbps)
                bridges.add(uplink.bridge)
            elif not self._unknown or used:
                return None
        if len(bridges) < self._rule.bridges and not self._unknown:
            return None
        met = 0
        if peers:
            met = sum(peers.get(bridge, 0) for bridge in bridges)
        return (lost, stranded(bridges), -met, -slowest, crowded, chance())


def _offered_slots(uplink: UplinkState) -> int:
    """Free slots of an uplink that Placement offers.

    One at least: its offer is newer than our count of what is used.
    """
    return uplink.free or 1
