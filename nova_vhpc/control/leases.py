# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""What the other hosts of a cluster said, for as long as it holds.

Phases and slots share these rules. A faulty agent, or a host that was broken
into, can send anything in any name, and the bus delivers late or twice. So a
message holds, and mutes the host that it names, for four leases of this host
at most; what was heard once is not taken again; and of too many hosts those
go first that Nova does not know, and that were heard least lately.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

MAX_LEASES = 4
"""Longest lease that is accepted, in leases of this host: leases may differ
while the option is changed host by host."""

MAX_HOSTS = 4096
"""Most hosts kept per cluster, far more than any cluster has."""

EVICTED = 256
"""Hosts that give their place at a time, so that a flood of names costs
little."""

MEMORY_LEASES = 100
"""For so many leases of this host the numbers of a silent host are
remembered, so that its old messages are recognised."""

MAX_DRIFT = 1000
"""Two clocks drift apart by less than one part in so many."""

MAX_BOOTS = 4
"""Most starts of a host of which numbers are remembered."""

S = TypeVar('S')


@dataclasses.dataclass(frozen=True, slots=True)
class Message(Generic[S]):
    """What one host says about one cluster, as it is sent.

    :ivar boot: number of the sender's start: its wall clock then.
    :ivar seq: number of the message, greater for each message of one boot:
        the sender's monotonic clock, in microseconds, or one more than the
        last. The monotonic clock goes on when the agent is started again.
    :ivar lease_us: time for which the statement holds after its arrival, in
        microseconds; 0 withdraws it: the host has no members any more.
    """

    cluster: str
    host: str
    boot: int
    seq: int
    lease_us: int
    statement: S


class Heard(NamedTuple):
    """Greatest number of one start of a host.

    :ivar lead_us: by how much its numbers lead this host's clock.
    :ivar at_us: when it was heard.
    """

    boot: int
    seq: int
    lead_us: int
    at_us: int


@dataclasses.dataclass(frozen=True, slots=True)
class Lease(Generic[S]):
    """The last statement of another host.

    :ivar until_us: end of the lease.
    :ivar closed_us: until then only messages with greater numbers count.
    :ivar heard_us: when the last message arrived.
    :ivar is_renewed: whether more than one message arrived.
    :ivar heard: numbers of the host's last starts, the latest one last. What
        was heard once is not taken again.
    """

    boot: int
    seq: int
    statement: S
    until_us: int
    closed_us: int
    heard_us: int
    is_renewed: bool
    heard: tuple[Heard, ...]


Leases = Mapping[str, Lease[S]]
"""The last statement of each other host, by host; replaced, never changed."""


class LeaseTable(Generic[S]):
    """Rules by which statements come into a table of leases, and go.

    :param lease_us: this host's own lease, in microseconds.
    :param matters: whether a statement keeps its place before others.
    :param hosts_of: returns the hosts that have members of a cluster by Nova,
        as far as is known; they keep their place before others.
    """

    def __init__(
        self,
        lease_us: int,
        matters: Callable[[S], bool],
        hosts_of: Callable[[str], Collection[str]] = lambda cluster: (),
    ) -> None:
        self.lease_us = lease_us
        self._matters = matters
        self._hosts_of = hosts_of

    def receive(
        self, leases: Leases[S], message: Message[S], now_us: int
    ) -> Leases[S]:
        """Return the leases after a message; the same if it is old."""
        last = leases.get(message.host)
        if last is not None and _is_old(last, message, now_us):
            return leases
        limit_us = now_us + MAX_LEASES * self.lease_us
        until_us = min(now_us + max(0, message.lease_us), limit_us)
        after = dict(leases)
        if last is None and len(after) >= MAX_HOSTS:
            self._make_room(after, now_us, self._hosts_of(message.cluster))
        after[message.host] = Lease(
            message.boot,
            message.seq,
            message.statement,
            until_us,
            min(until_us + self.lease_us, limit_us),
            now_us,
            last is not None,
            self._remember(last, message, now_us),
        )
        return after

    def forget(self, leases: Leases[S], now_us: int) -> Leases[S]:
        """Return the leases without hosts that are silent for long."""
        memory_us = MEMORY_LEASES * self.lease_us
        kept = {
            host: lease
            for host, lease in leases.items()
            if now_us < lease.closed_us + memory_us
        }
        return leases if len(kept) == len(leases) else kept

    def _make_room(
        self,
        leases: dict[str, Lease[S]],
        now_us: int,
        confirmed: Collection[str],
    ) -> None:
        """Drop the hosts that are least likely to be real and of use."""

        def rank(host: str) -> tuple[bool, bool, bool, bool, int]:
            lease = leases[host]
            is_live = now_us < lease.until_us
            return (
                host in confirmed,
                is_live,
                is_live and self._matters(lease.statement),
                lease.is_renewed,
                lease.heard_us,
            )

        for host in sorted(leases, key=rank)[:EVICTED]:
            del leases[host]

    def _remember(
        self, last: Lease[S] | None, message: Message[S], now_us: int
    ) -> tuple[Heard, ...]:
        """Return the numbers to remember with a message.

        One that runs ahead of the clock is forged, or its sender is broken.
        To remember it would mute the host.
        """
        lead_us = message.seq - now_us
        heard = Heard(message.boot, message.seq, lead_us, now_us)
        others: list[Heard] = []
        for before in () if last is None else last.heard:
            drift_us = (now_us - before.at_us) // MAX_DRIFT
            if before.boot != message.boot:
                others.append(before)
            elif lead_us > before.lead_us + MAX_LEASES * self.lease_us:
                heard = before
            else:
                lead_us = min(lead_us, before.lead_us + drift_us)
                heard = heard._replace(lead_us=lead_us)
        return (*others[1 - MAX_BOOTS :], heard)


def live(leases: Leases[S], now_us: int) -> Iterator[tuple[str, S]]:
    """Yield host and statement of each lease in force."""
    return (
        (host, lease.statement)
        for host, lease in leases.items()
        if now_us < lease.until_us
    )


def _is_old(last: Lease[S], message: Message[S], now_us: int) -> bool:
    """Return whether a message is late, or was heard before.

    Numbers grow from start to start of an agent, even if the wall clock was
    set back meanwhile. They begin anew with the machine only, which takes
    longer than its last lease.
    """
    known = [heard for heard in last.heard if heard.boot == message.boot]
    if any(message.seq <= heard.seq for heard in known):
        return True
    is_before = message.seq <= last.seq or (
        bool(known) and message.boot < last.boot
    )
    return is_before and now_us < last.closed_us
