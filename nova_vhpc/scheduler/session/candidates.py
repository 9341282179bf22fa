# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A host's allocation candidates, in the order in which to claim them.

Nova reads the candidates of a host once per request and only ever claims
``host.allocation_candidates[0]``. Without this module, the second member of a
multi-create on a host would try the uplink that the first member claimed, and
Nova would skip the host although other uplinks of it are free. Also, of
several schedulers that race for one uplink, the losers would not try the
next. Therefore :class:`Candidates` returns the next candidate each time that
``[0]`` is read, and :class:`UplinkReservations` counts what was claimed.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from nova_vhpc.scheduler.hosts import network_fit
from nova_vhpc.scheduler.planner.model import NO_LIMIT, Rail
from nova_vhpc.scheduler.sources.snapshot import UplinkState
from nova_vhpc.topology import model

Candidate = Mapping[str, Any]

_UPLINK = model.UPLINK


def uplinks_of(candidate: Candidate) -> tuple[str, ...]:
    """Return the uuids of the uplinks that a candidate claims."""
    return model.uplinks_in(candidate['allocations'])


def offered(candidates: Iterable[Candidate]) -> frozenset[str]:
    """Return the uuids of all uplinks that these candidates offer."""
    # A list is faster than a generator, for thousands of hosts.
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
    """Return the amounts that a member takes of the host itself.

    :param root: uuid of the host's root provider.
    :returns: amount by resource class; empty if no candidate has any.
    """
    for candidate in candidates:
        allocation = candidate['allocations'].get(root)
        if allocation is not None:
            resources: Mapping[str, int] = allocation['resources']
            return resources
    return {}


def dedicated(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return a pinned member's candidates without those on shared CPUs.

    Nova also asks Placement for shared CPUs, as a fallback for hosts that
    report no dedicated ones. A host with both kinds therefore has candidates
    of both kinds. Nova alone, which reads the first one only, would never
    claim those on shared CPUs.
    """
    on_dedicated_cpus = [
        candidate
        for candidate in candidates
        if any(
            'PCPU' in allocation['resources']
            for allocation in candidate['allocations'].values()
        )
    ]
    return on_dedicated_cpus or candidates


class Candidates(list[Candidate]):
    """A list of allocation candidates; ``[0]`` is another one at each read.

    The first read of ``[0]`` returns the first candidate, the next read the
    second, and so on, beginning again after the last. All else works as in a
    list, so that Nova's other filters may remove candidates.

    :param on_take: called when ``[0]`` is read.
    :ivar handed_out: candidates that reads of ``[0]`` returned.
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

    :param uplinks: uplinks of the host that serve the request and that
        Placement offers.
    :param rule: uplinks that the network configuration needs.
    :param unknown: whether the host's topology is unknown; then each uplink
        counts as serving the request, with one slot.
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
        # Rails of all members, those that have claimed included.
        self._planned: Counter[str] | None = None

    def members_left(self) -> int:
        """Return how many further members can claim uplinks on this host."""
        if self._unknown:
            return NO_LIMIT
        return network_fit.members(self._rule, self._free())

    def _free(self) -> Iterable[tuple[str, int]]:
        """Return path and number of free slots of each uplink."""
        return ((u.path, slots) for u, slots in self._free_slots())

    def _free_slots(self) -> Iterable[tuple[UplinkState, int]]:
        return (
            (u, max(0, _offered_slots(u) - self._used.get(u.uuid, 0)))
            for u in self._uplinks.values()
        )

    def free_rails(self) -> tuple[Rail, ...]:
        """Return the rails on which further members can claim uplinks."""
        return network_fit.free_rails(self._free_slots())

    def used_rails(self) -> Counter[str]:
        """Return how many members have claimed uplinks, by rail."""
        used: Counter[str] = Counter()
        for uuid, members in self._used.items():
            if uuid in self._uplinks:
                used[self._uplinks[uuid].rail] += members
        return used

    def plan_rails(self, names: Iterable[str]) -> None:
        """Prefer uplinks of some rails from now on.

        :param names: rail of each further member.
        """
        self._planned = self.used_rails()
        self._planned.update(names)

    def note_outcome(
        self, candidates: Sequence[Candidate], placed: bool
    ) -> None:
        """Take note of which candidate was claimed and which were lost.

        :param candidates: the host's present candidates.
        :param placed: whether a member was placed on the host; if so, it
            claimed the candidate that was handed out last.
        """
        if isinstance(candidates, Candidates):
            tried = candidates.handed_out
        else:
            # A later filter replaced the list.
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
        """Return the candidates that can still be claimed, the best first.

        Candidates on the rails of the plan come first (the planner knows how
        fast they are), then those with fast links, then those with many free
        slots; chance decides between equal ones, so that schedulers do not
        race for the same. If bridges are shared, the bridge of this host's
        other members precedes all others, because traffic between co-located
        peers then stays within the bridge (HPCVirt'09 section 4).

        :param on_take: called when a candidate is handed out.
        :param chance: function that returns a random number.
        :param more: number of further members that may need uplinks; a
            pair of paths that would leave some without a pair comes last.
        """
        peers: dict[str, int] = {}
        if self._used and self._rule.kind is network_fit.SHARED:
            for uuid, members in self._used.items():
                if uuid in self._uplinks:
                    bridge = self._uplinks[uuid].bridge
                    peers[bridge] = peers.get(bridge, 0) + members
        stranded = self._stranded(more)
        wanted = None
        if self._planned is not None:
            # Subtracting counters drops rails of which none is left.
            wanted = (self._planned - self.used_rails()).keys()
        kept = []
        for candidate in candidates:
            key = self._rank(
                uplinks_of(candidate), peers, chance, stranded, wanted
            )
            if key is not None:
                kept.append((key, candidate))
        kept.sort(key=lambda pair: pair[0])
        return Candidates([pair[1] for pair in kept], on_take)

    def _stranded(self, more: int) -> Callable[[Set[str]], int]:
        """Return a function that counts the members that a claim strands.

        A member is stranded if no pair of paths is left for it. Paths
        with many free slots must be paired with the others first; else their
        last slots have no partner.

        :param more: number of further members.
        :returns: function of the claimed paths.
        """
        if self._rule.bridges < 2 or self._unknown or more <= 0:
            return lambda paths: 0
        free: Counter[str] = Counter()
        for path, slots in self._free():
            free[path] += slots
        more = min(more, network_fit.members(self._rule, free.items()) - 1)
        if more <= free.total() - 2 - max(free.values(), default=0):
            # The other paths have enough slots, whichever pair is taken.
            return lambda paths: 0

        def stranded(paths: Set[str]) -> int:
            still_free = ((p, free[p] - (p in paths)) for p in free)
            return max(0, more - network_fit.members(self._rule, still_free))

        return stranded

    def _rank(
        self,
        claimed: Sequence[str],
        peers: Mapping[str, int],
        chance: Callable[[], float],
        stranded: Callable[[Set[str]], int],
        wanted: Set[str] | None,
    ) -> tuple[float, ...] | None:
        """Return the sort key of a candidate, None if it cannot be claimed."""
        lost = 0
        crowded = 0
        other_rail = 0
        slowest: float = 0
        bridges = set()
        paths = set()
        for uuid in claimed:
            uplink = self._uplinks.get(uuid)
            used = self._used.get(uuid, 0)
            lost += self._lost.get(uuid, 0)
            crowded += used
            if uplink is not None:
                if used >= uplink.slots:
                    return None
                # Probably taken; free only if another server has left.
                lost += used >= _offered_slots(uplink)
                crowded += uplink.used
                slowest = min(slowest or uplink.mbps, uplink.mbps)
                bridges.add(uplink.bridge)
                paths.add(uplink.path)
                if wanted is not None:
                    other_rail += uplink.rail not in wanted
            elif not self._unknown or used:
                return None
        # Two request groups may be offered the same uplink.
        different = len(claimed) if self._unknown else len(paths)
        if different < self._rule.bridges:
            return None
        peers_there = 0
        if peers:
            peers_there = sum(peers.get(bridge, 0) for bridge in bridges)
        return (
            lost,
            stranded(paths),
            -peers_there,
            other_rail,
            -slowest,
            crowded,
            chance(),
        )


def _offered_slots(uplink: UplinkState) -> int:
    """Return the free slots of an uplink that Placement offers.

    It is at least one: the offer is newer than the snapshot's count.
    """
    return uplink.free or 1
