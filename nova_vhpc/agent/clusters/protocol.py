# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Rules by which the hosts of a virtual cluster agree on its phase.

Specified in ``doc/source/contributor/peers.rst``. Nothing here has a clock, a
lock or a transport: every method takes a state and the time, and returns the
next state and the message to send. Times are microseconds of the caller's own
monotonic clock; no host compares its clock with another's.

Each host states what its own members do, because the VMs of one virtual
cluster change pools together (io-perception paper, section III.C). A cluster
is in the I/O phase if any host states so. A statement holds for a lease, and
is renewed unless it is "computing", the default.
"""

import dataclasses
from collections.abc import Callable, Collection

from nova_vhpc.control import leases
from nova_vhpc.control.model import ClusterPlan, PeerView, Phase

QUIET = ClusterPlan(Phase.COMPUTING)
"""The statement assumed of a host from which no valid one was received."""


@dataclasses.dataclass(frozen=True, slots=True)
class Message(leases.Message[ClusterPlan]):
    """One host's statement about one cluster, as it is sent."""


@dataclasses.dataclass(frozen=True, slots=True)
class Timers:
    """Durations of the protocol, in microseconds.

    :ivar lease_us: time for which a statement holds without renewal.
    :ivar renew_us: time between two renewals, a third of the lease, so that
        two lost messages in a row do no harm.
    :ivar gap_us: least time between two messages of which the second only
        has another time slice. A change of phase is sent at once.
    """

    lease_us: int
    renew_us: int
    gap_us: int

    @classmethod
    def for_lease(cls, lease_us: int) -> 'Timers':
        """Return the timers for a lease of ``lease_us`` microseconds."""
        return cls(lease_us, lease_us // 3, min(500_000, lease_us // 6))


@dataclasses.dataclass(frozen=True, slots=True)
class OwnStatement:
    """This host's statement about one cluster.

    :ivar statement: what the controller decided last.
    :ivar sent: the statement in the last message; None before the first
        message, and after a message that could not be sent.
    :ivar sent_us: when the last message was made.
    :ivar changed_us: when ``sent`` last became a different statement.
    :ivar decided_us: when the controller last decided, also if nothing
        changed.
    :ivar seq: number of the last message.
    """

    statement: ClusterPlan
    sent: ClusterPlan | None
    sent_us: int
    changed_us: int
    decided_us: int
    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """All that this host knows about one cluster.

    :ivar own: this host's statement; None without members here.
    :ivar received: last statement of each other host.
    """

    own: OwnStatement | None = None
    received: leases.Leases[ClusterPlan] = dataclasses.field(
        default_factory=dict
    )


class Protocol:
    """The protocol's rules for one host and one start of its agent.

    :param host: this host's name, unique among the cluster's hosts.
    :param boot: number of this start, greater than at earlier starts.
    :param hosts_of: see :class:`~nova_vhpc.control.leases.LeaseTable`.
    """

    def __init__(
        self,
        host: str,
        boot: int,
        timers: Timers,
        hosts_of: Callable[[str], Collection[str]] = lambda cluster: (),
    ) -> None:
        self.host = host
        self.boot = boot
        self.timers = timers
        self._table = leases.LeaseTable[ClusterPlan](
            timers.lease_us,
            lambda statement: statement.phase is Phase.IO,
            hosts_of,
        )

    def decide(
        self, state: State, cluster: str, statement: ClusterPlan, now_us: int
    ) -> tuple[State, Message | None]:
        """Take the controller's decision; send it if the phase changed."""
        own = state.own or OwnStatement(
            statement, None, now_us, now_us, now_us, 0
        )
        own = dataclasses.replace(own, statement=statement, decided_us=now_us)
        state = dataclasses.replace(state, own=own)
        if own.sent is not None and own.sent.phase is statement.phase:
            return state, None
        return self._send(state, own, cluster, now_us)

    def tick(
        self, state: State, cluster: str, now_us: int
    ) -> tuple[State, Message | None]:
        """Forget old statements of others, and renew this host's own."""
        received = self._table.forget(state.received, now_us)
        if received is not state.received:
            state = dataclasses.replace(state, received=received)
        own = state.own
        if own is None or now_us - own.decided_us > self.timers.lease_us:
            # A controller that hangs must not hold the cluster in a phase.
            return state, None
        silent_us = now_us - own.sent_us
        if own.sent != own.statement and silent_us >= self.timers.gap_us:
            return self._send(state, own, cluster, now_us)
        # The default needs no renewal. But the message that returned to it
        # may be lost, so it is repeated for as long as the statement before
        # it may hold on another host.
        needs_renewal = (
            own.sent != QUIET
            or now_us - own.changed_us <= self.timers.lease_us
        )
        if needs_renewal and silent_us >= self.timers.renew_us:
            return self._send(state, own, cluster, now_us)
        return state, None

    def unsent(self, state: State) -> State:
        """Take note that the last message was not sent.

        The next :meth:`tick` makes it again.
        """
        if state.own is None:
            return state
        own = dataclasses.replace(
            state.own,
            sent=None,
            sent_us=state.own.sent_us - self.timers.lease_us,
        )
        return dataclasses.replace(state, own=own)

    def leave(
        self, state: State, cluster: str, now_us: int
    ) -> tuple[State, Message | None]:
        """Withdraw this host's statement: it has no members any more."""
        if state.own is None:
            return state, None
        seq = max(state.own.seq + 1, now_us)
        message = Message(cluster, self.host, self.boot, seq, 0, QUIET)
        return dataclasses.replace(state, own=None), message

    def receive(self, state: State, message: Message, now_us: int) -> State:
        """Store a message that arrived, unless a newer one is known."""
        if message.host == self.host:
            return state
        received = self._table.receive(state.received, message, now_us)
        return dataclasses.replace(state, received=received)

    def view(self, state: State, now_us: int) -> PeerView:
        """Return the other hosts' statements in force, combined.

        The cluster is in the I/O phase if any of them says so; the least of
        their time slices counts.
        """
        statements = [
            statement for _, statement in leases.live(state.received, now_us)
        ]
        slices = [
            statement.min_slice_us
            for statement in statements
            if statement.min_slice_us is not None
        ]
        return PeerView(
            io=any(statement.phase is Phase.IO for statement in statements),
            min_slice_us=min(slices, default=None),
        )

    def _send(
        self, state: State, own: OwnStatement, cluster: str, now_us: int
    ) -> tuple[State, Message]:
        # The clock makes the number grow also if the state of a cluster was
        # dropped and made again within one boot.
        seq = max(own.seq + 1, now_us)
        changed = own.sent != own.statement
        own = dataclasses.replace(
            own,
            sent=own.statement,
            sent_us=now_us,
            changed_us=now_us if changed else own.changed_us,
            seq=seq,
        )
        return dataclasses.replace(state, own=own), Message(
            cluster,
            self.host,
            self.boot,
            seq,
            self.timers.lease_us,
            own.statement,
        )


def group_phase(protocol: Protocol, state: State, now_us: int) -> Phase:
    """Return the I/O phase if this or any other host states it.

    Statements of other hosts count until their lease ends.
    """
    own = state.own
    if own is not None and own.statement.phase is Phase.IO:
        return Phase.IO
    return Phase.IO if protocol.view(state, now_us).io else Phase.COMPUTING
