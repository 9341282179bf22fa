# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Rules by which hosts agree on the slots of virtual clusters.

Specified in ``doc/source/contributor/slots.rst``. Nothing here has a clock, a
lock or a transport: times are microseconds of the caller's monotonic clock.

Clusters have a rank, the same on all hosts. Each host reports, for each
cluster with members on it, the slots that clusters of higher rank take there.
The leader, which is the host with the lowest name, chooses slots that are free
in all reports, and keeps them as long as they stay free. So what a cluster
gets depends on those of higher rank only, and the hosts settle from the
highest rank down.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from nova_vhpc.control import leases, model
from nova_vhpc.control.slots import cluster as cluster_of
from nova_vhpc.control.slots import frame
from nova_vhpc.control.slots.messages import Message, Report

GAP_US = 100_000
"""Least time between two messages about one cluster."""

REPEAT_US = 500_000
"""A change is sent again after this time, because the message may be lost."""

JOIN_US = 1_000_000
"""For so long a host listens before it may lead."""

LEASE_US = 6_000_000
"""Time for which a report holds without renewal."""

RENEWALS = 3
"""Renewals per lease, of each cluster. The lease must not grow with their
number: a host that died blocks the slots of all its clusters meanwhile."""


FARTHEST = 3
"""So many clusters away from one that is refused hosts rest. A greater number
would be kept alive by hosts that hear each other only."""


class Gang(NamedTuple):
    """What wants slots on this host.

    :ivar key: id of the cluster, or of the VM.
    :ivar width: number of CPUs that it needs.
    :ivar part: part of the time that it is entitled to, 0 to 1.
    :ivar is_shared: whether other hosts may have members.
    :ivar plays: whether this host would play windows for it.
    """

    key: str
    width: int
    part: float
    is_shared: bool
    plays: bool = True


class SlotProtocol:
    """The protocol of one host and one start of its agent.

    :param host: name of this host, unique among the clusters' hosts.
    :param boot: number of this start, greater than at earlier starts.
    :param hosts_of: see :class:`~nova_vhpc.control.leases.LeaseTable`.
    :param slot_us: length of this host's slots; 0 if unknown. Hosts with
        different lengths have no common slots.
    :ivar lease_us: for how long this host's reports hold.
    :ivar plays: whether this host plays slots. If not, it says so, and its
        clusters have no slots on any host.
    :ivar clusters: what is known of each cluster, by key.
    :ivar live: other hosts with a lease in force.
    :ivar other_lengths: length of the slots of hosts that have another one.
    :ivar table: slots of each cluster, by key; clusters without slots are
        missing. No two of them need more CPUs than there are in any slot.
    """

    def __init__(
        self,
        host: str,
        boot: int,
        lease_us: int = LEASE_US,
        hosts_of: Callable[[str], Collection[str]] = lambda cluster: (),
        slot_us: int = 0,
    ) -> None:
        self.host = host
        self.boot = boot
        self.lease_us = lease_us
        self.slot_us = slot_us
        self._leases = leases.LeaseTable[Report](
            lease_us, lambda report: report.decision is not None, hosts_of
        )
        self.plays = True
        self.table: dict[str, model.ClusterSlot] = {}
        self.clusters: dict[str, cluster_of.Cluster] = {}
        self.live: frozenset[str] = frozenset()
        self.other_lengths: dict[str, int] = {}
        self._cpus = 0
        self._shared = 0
        self._distances: dict[str, int] = {}
        self._is_stale = True
        self._expire_us = 0
        self._renewed_us = 0

    @property
    def agreed(self) -> dict[str, model.ClusterSlot | None]:
        """The slots of clusters; None for none on all hosts of a cluster.

        Empty if no cluster has members on other hosts: what is on this host
        alone is better packed by this host alone.
        """
        if not any(one.has_others for one in self.clusters.values()):
            return {}
        return {
            key: None
            if one.rests or self._distances.get(key)
            else self.table.get(key)
            for key, one in self.clusters.items()
        }

    @property
    def renew_us(self) -> int:
        """Time between two renewals of a cluster."""
        return self.lease_us // RENEWALS

    def demand(
        self,
        gangs: Iterable[Gang],
        present: Collection[str],
        cpus: int,
        now_us: int,
    ) -> None:
        """Take note of what wants slots now.

        A cluster keeps its slots for a lease after it was last named, because
        it may only wait for I/O.

        :param present: keys of the clusters and VMs on this host, whether they
            want slots or not.
        :param cpus: number of the host's CPUs.
        """
        for key, known in self.clusters.items():
            if key not in present:
                known.asked_us = now_us - self.lease_us
        if cpus != self._cpus:
            self._cpus, self._is_stale = cpus, True
        for gang in gangs:
            one = self.clusters.get(gang.key)
            if one is None:
                self.clusters[gang.key] = cluster_of.Cluster(
                    gang.key,
                    self.host,
                    now_us,
                    gang.width,
                    frame.count_for(gang.part),
                    gang.is_shared,
                    now_us,
                    plays=gang.plays,
                )
                self._shared += gang.is_shared
                self._is_stale = True
                continue
            one.asked_us = now_us
            wanted = frame.count_for(gang.part, one.wanted)
            now = wanted, gang.width, gang.plays
            if now != (one.wanted, one.width, one.plays):
                one.wanted, one.width, one.plays = now
                self._is_stale = True

    def receive(self, message: Message, now_us: int) -> bool:
        """Take a message of another host; return whether it is news."""
        one = self.clusters.get(message.cluster)
        if one is None or not one.is_shared or message.host == self.host:
            return False
        if message.statement.slot_us not in (0, self.slot_us):
            report = message.statement._replace(
                plays=False, ready=False, decision=None
            )
            message = dataclasses.replace(message, statement=report)
        before = one.received.get(message.host)
        received = self._leases.receive(one.received, message, now_us)
        if received is one.received:
            return False
        one.received = received
        after = received[message.host]
        is_new = (
            before is None
            or now_us >= before.until_us
            or before.boot != after.boot
        )
        is_live = now_us < after.until_us
        if (
            before is None
            or is_new
            or not is_live
            or before.statement != after.statement
        ):
            self._is_stale = True
        if is_live and is_new and one.must_hear(message.host, now_us):
            one.owes_reply = True
        self._expire_us = min(self._expire_us, after.until_us)
        return True

    def step(self, now_us: int) -> list[Message]:
        """Decide what is to be decided.

        :returns: messages to send.
        """
        outbox = self._forget(now_us)
        if self._is_stale or any(
            one.is_ready != (now_us - one.since_us >= JOIN_US)
            or (one.hold_us and now_us >= one.hold_us)
            for one in self.clusters.values()
        ):
            self._is_stale = False
            self._settle(now_us)
        outbox.extend(
            self._message(one, now_us)
            for one in self.clusters.values()
            if one.is_shared and self._must_send(one, now_us)
        )
        return outbox + self._renew(now_us)

    def unsent(self, message: Message) -> None:
        """Take note that a message was not sent: it is made again."""
        one = self.clusters.get(message.cluster)
        if one is not None:
            one.sent = None

    def leave(self, now_us: int) -> list[Message]:
        """Withdraw all reports: the agent ends."""
        return [
            self._message(one, now_us, 0)
            for one in self.clusters.values()
            if one.is_shared and one.sent is not None
        ]

    def set_plays(self, plays: bool) -> None:
        """Play slots from now on, or refuse them."""
        if plays != self.plays:
            self.plays, self._is_stale = plays, True

    def _forget(self, now_us: int) -> list[Message]:
        """Drop what has not been heard of, or asked for, for long."""
        outbox: list[Message] = []
        for key, one in list(self.clusters.items()):
            if now_us - one.asked_us >= self.lease_us:
                del self.clusters[key]
                self._shared -= one.is_shared
                self._is_stale = True
                if one.is_shared and one.sent is not None:
                    outbox.append(self._message(one, now_us, 0))
        if now_us < self._expire_us:
            return outbox
        self._is_stale = True
        ends_us = [now_us + self.lease_us]
        for one in self.clusters.values():
            one.received = self._leases.forget(one.received, now_us)
            ends_us.extend(
                lease.until_us
                for lease in one.received.values()
                if now_us < lease.until_us
            )
        self._expire_us = min(ends_us)
        return outbox

    def _settle(self, now_us: int) -> None:
        """Bring masks, decisions and the table up to date."""
        clusters = list(self.clusters.values())
        for one in clusters:
            one.has_others = any(True for _ in one.live(now_us))
            one.update_leader(now_us, JOIN_US, self.lease_us)
        live = {
            host: report.slot_us
            for one in clusters
            for host, report in leases.live(one.received, now_us)
        }
        self.live = frozenset(live)
        self.other_lengths = {
            host: slot_us
            for host, slot_us in live.items()
            if slot_us not in (0, self.slot_us)
        }
        clusters.sort(key=lambda one: one.rank(now_us))
        guaranteed = [0] * frame.SLOTS
        for one in clusters:
            _load(guaranteed, one.base, one.width)
        higher = [0] * frame.SLOTS
        for one in clusters:
            others = list(guaranteed)
            _load(others, one.base, -one.width)
            one.blocked = self._full(higher, one.width)
            one.avoided = self._full(others, one.width) & ~one.blocked
            if one.leads or not one.is_shared:
                one.decide(now_us, self._plays(one))
                _load(others, one.base, one.width)
                guaranteed = others
            if not one.base & one.blocked:
                # Others must not give way to one that has to move anyway.
                _load(higher, one.base, one.width)
        self._settle_extras(clusters, guaranteed, now_us)

    def _settle_extras(
        self,
        clusters: Iterable[cluster_of.Cluster],
        guaranteed: list[int],
        now_us: int,
    ) -> None:
        """Give slots that nobody else needs, and fill the table."""
        used = list(guaranteed)
        played = [0] * frame.SLOTS
        self.table = {}
        for one in clusters:
            _load(used, one.base, -one.width)
            one.taken = self._full(used, one.width)
            if one.leads or not one.is_shared:
                one.decide(now_us, self._plays(one))
            _load(used, one.slots, one.width)
            slots = one.slots & ~self._full(played, one.width)
            if slots and one.decision is not None and self._plays(one):
                _load(played, slots, one.width)
                self.table[one.key] = model.ClusterSlot(
                    slots, one.decision.epoch
                )
        self._rest(now_us)

    def _rest(self, now_us: int) -> None:
        """Rest for the sake of clusters that a host refuses.

        Windows of others would slow them. For clusters that find no free slots
        nobody rests: on full clouds there is one near every host.
        """
        self._distances = {
            key: distance
            for key, one in self.clusters.items()
            if (one.width > 1 or one.has_others)
            and 0
            < (distance := one.distance(self._plays(one), now_us))
            <= FARTHEST
        }
        for key, one in self.clusters.items():
            one.rests = min(
                (
                    distance
                    for other, distance in self._distances.items()
                    if other != key
                ),
                default=0,
            )

    def _full(self, load: list[int], width: int) -> int:
        """Return the slots that have no room for so many CPUs more."""
        return sum(
            1 << slot
            for slot, used in enumerate(load)
            if used + width > self._cpus
        )

    def _plays(self, one: cluster_of.Cluster) -> bool:
        return one.plays and (self.plays or not one.is_shared)

    def _report(self, one: cluster_of.Cluster) -> Report:
        return Report(
            one.wanted,
            one.width,
            one.blocked,
            one.avoided,
            one.taken,
            self._plays(one),
            one.rests,
            one.is_ready,
            one.decision if one.leads else None,
            self.slot_us,
        )

    def _must_send(self, one: cluster_of.Cluster, now_us: int) -> bool:
        """Return whether others must hear something now."""
        if one.sent is None:
            return True
        if now_us - one.sent_us < GAP_US:
            return False
        if one.owes_reply or (one.repeat_us and now_us >= one.repeat_us):
            return True
        # What is only avoided can wait for the next message.
        report = self._report(one)
        return report._replace(avoided=one.sent.avoided) != one.sent

    def _renew(self, now_us: int) -> list[Message]:
        """Renew the oldest reports, evenly over the time."""
        elapsed_us, self._renewed_us = now_us - self._renewed_us, now_us
        due = sorted(
            (
                one
                for one in self.clusters.values()
                if one.is_shared and now_us - one.sent_us >= self.renew_us
            ),
            key=lambda one: (one.sent_us, one.key),
        )
        most = math.ceil(self._shared * elapsed_us / self.renew_us)
        return [self._message(one, now_us) for one in due[:most]]

    def _message(
        self,
        one: cluster_of.Cluster,
        now_us: int,
        lease_us: int | None = None,
    ) -> Message:
        report = self._report(one)
        changed = one.sent is None or (
            report._replace(avoided=one.sent.avoided) != one.sent
        )
        one.repeat_us = now_us + REPEAT_US if changed else 0
        one.sent, one.sent_us, one.owes_reply = report, now_us, False
        # The clock makes it grow also if the cluster was dropped meanwhile.
        one.seq = max(one.seq + 1, now_us)
        return Message(
            one.key,
            self.host,
            self.boot,
            one.seq,
            self.lease_us if lease_us is None else lease_us,
            report,
        )


def _load(load: list[int], slots: int, width: int) -> None:
    """Add CPUs to slots."""
    for slot in frame.numbers(slots):
        load[slot] += width
