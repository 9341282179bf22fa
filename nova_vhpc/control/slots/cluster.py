# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""What one host knows about one cluster, and who decides about it."""

import dataclasses
from collections.abc import Iterator

from nova_vhpc.control import leases
from nova_vhpc.control.slots import frame
from nova_vhpc.control.slots.messages import MAX_EPOCH, Decision, Report


@dataclasses.dataclass(slots=True)
class Cluster:
    """One cluster, as seen from one host.

    :ivar key: id of the cluster.
    :ivar host: name of this host.
    :ivar since_us: since when this host listens.
    :ivar width: number of CPUs that its members need side by side here.
    :ivar wanted: number of slots that it is entitled to here.
    :ivar is_shared: whether other hosts may have members.
    :ivar plays: whether this host would play windows for it.
    :ivar has_others: whether another host is heard.
    :ivar asked_us: when the gang policy last asked for slots.
    :ivar received: last report of each other host.
    :ivar is_ready: whether this host has listened for long enough to lead.
    :ivar leads: whether this host decides.
    :ivar decision: the decision that this host follows.
    :ivar hold_us: until when it does so without a leader.
    :ivar blocked: see :class:`~nova_vhpc.control.slots.messages.Report`.
    :ivar avoided: the same.
    :ivar taken: the same.
    :ivar sent: the last report that was sent; None for none.
    :ivar sent_us: when that was.
    :ivar repeat_us: when it is repeated, because it may be lost; 0 for never.
    :ivar seq: number of the last message.
    :ivar owes_reply: whether a host has joined that must hear from this one.
    """

    key: str
    host: str
    since_us: int
    width: int
    wanted: int
    is_shared: bool
    asked_us: int
    received: leases.Leases[Report] = dataclasses.field(default_factory=dict)
    plays: bool = True
    has_others: bool = False
    is_ready: bool = False
    leads: bool = False
    decision: Decision | None = None
    hold_us: int = 0
    blocked: int = 0
    avoided: int = 0
    taken: int = 0
    rests: int = 0
    sent: Report | None = None
    sent_us: int = 0
    repeat_us: int = 0
    seq: int = 0
    owes_reply: bool = False

    @property
    def base(self) -> int:
        """The slots that it is guaranteed, as a mask."""
        return 0 if self.decision is None else self.decision.base

    @property
    def slots(self) -> int:
        """All of its slots, as a mask."""
        return 0 if self.decision is None else self.decision.slots

    def live(self, now_us: int) -> Iterator[tuple[str, Report]]:
        """Return name and report of each other host."""
        return leases.live(self.received, now_us)

    def update_leader(self, now_us: int, join_us: int, hold_us: int) -> None:
        """Find out who leads, and follow its decision.

        The host with the lowest name leads. It waits until it has listened
        for a while; until then the one before it goes on.

        :param join_us: for how long a host listens before it may lead.
        :param hold_us: for how long a decision holds without a leader.
        """
        live = list(self.live(now_us))
        self.is_ready = now_us - self.since_us >= join_us
        lower = [report for host, report in live if host < self.host]
        if self.leads:
            self.leads = self.is_ready and not any(
                report.ready for report in lower
            )
            self.hold_us = 0 if self.leads else now_us + hold_us
        else:
            self.leads = self.is_ready and not lower
        if not self.leads:
            leader = min(
                (one for one in live if one[1].decision is not None),
                default=None,
                key=lambda one: one[0],
            )
            if leader is not None:
                self.decision = leader[1].decision
                self.hold_us = now_us + hold_us
            elif now_us >= self.hold_us:
                self.decision, self.hold_us = None, 0

    def is_refused(self, plays: bool, now_us: int) -> bool:
        """Return whether any of its hosts would play no windows for it.

        :param plays: whether this host would.
        """
        return not plays or not all(
            report.plays for _, report in self.live(now_us)
        )

    def distance(self, plays: bool, now_us: int) -> int:
        """Return how far the cluster is from one that a host refuses.

        :param plays: whether this host would play windows for it.
        :returns: 0 if all of its hosts play them; 1 if one refuses; more if a
            host rests for the sake of another cluster.
        """
        if self.is_refused(plays, now_us):
            return 1
        return min(
            (
                report.rests + 1
                for _, report in self.live(now_us)
                if report.rests
            ),
            default=0,
        )

    def must_hear(self, host: str, now_us: int) -> bool:
        """Return whether a host that joins must hear this host soon.

        It must hear the leader; all of them if it is to lead itself.
        """
        return self.leads or (
            host < self.host
            and all(host <= other for other, _ in self.live(now_us))
        )

    def demand(self, now_us: int) -> tuple[int, int, int]:
        """Return wanted slots, width and span by all reports."""
        wanted, width, span = self.wanted, self.width, 1
        for _, report in self.live(now_us):
            wanted = min(wanted, report.wanted)
            width = max(width, report.width)
            span += 1
        return wanted, width, span

    def rank(self, now_us: int) -> tuple[int, int, int, str]:
        """Return what sorts clusters, those of highest rank first.

        What is widest finds a place least easily. The rank is the same on all
        hosts that follow the same decision.
        """
        if self.decision is None or self.leads:
            wanted, width, span = self.demand(now_us)
        else:
            _, _, wanted, width, span, _ = self.decision
        return -width, -span, -wanted, self.key

    def decide(self, now_us: int, plays: bool) -> None:
        """Decide for all hosts, as their leader.

        A cluster that runs in windows on some of its hosts only waits there
        for the others: it gets none then.

        :param plays: whether this host would play windows for it.
        """
        blocked, avoided, taken = self.blocked, self.avoided, self.taken
        for _, report in self.live(now_us):
            blocked |= report.blocked
            avoided |= report.avoided
            taken |= report.taken
        if self.is_refused(plays, now_us):
            blocked = taken = frame.ALL
        wanted, width, span = self.demand(now_us)
        before = self.decision or Decision(0, 0, 0, 0, 0, 0)
        least = frame.least(wanted)
        base = frame.choose(least, blocked, avoided, before.base)
        slots = base
        if base.bit_count() == least:
            slots |= frame.choose(
                wanted - least, taken | base, 0, before.slots & ~base
            )
        epoch = before.epoch
        if self.decision is None or slots != before.slots:
            epoch = min(epoch + 1, MAX_EPOCH)
        self.decision = Decision(base, slots, wanted, width, span, epoch)
