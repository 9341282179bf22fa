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


"""How the hosts of a virtual cluster agree on its phase: pure.

Written down in ``doc/source/contributor/peers.rst``. No clock, no lock and
no transport: every function takes the state and the time and gives the
next state and what is to be sent. Times are microseconds of the caller's
own monotonic clock; no host ever compares its clock with another's.

Each host tells what its own members do (io-perception paper, section
III.C: VMs of one virtual cluster change pools together). A cluster is in
the I/O phase where any host that is heard of says so. A word holds for a
lease; it is renewed while it says anything but "computing", the default.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.control.model import ClusterPlan, PeerView, Phase

QUIET = ClusterPlan(Phase.COMPUTING)
"""What a host means of which nothing is heard."""

MAX_LEASE_US = 600_000_000
"""No host can make others believe it for longer than ten minutes."""

MAX_NAME = 512
"""Characters; no cluster's or host's name has as many. Names are kept as long
as what was said holds, so they must not fill the memory."""

MAX_HOSTS = 4096
"""Hosts to listen to per cluster, far more than any has: whoever floods
the bus with invented ones must not fill the memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class Timers:
    """Durations in microseconds.

    :ivar lease_us: how long a word holds without being renewed.
    :ivar renew_us: pause between renewals, a third of the lease, so that
        two lost messages in a row do no harm.
    :ivar gap_us: least pause between messages that only tell of another
        slice. A change of phase is told at once.
    """

    lease_us: int
    renew_us: int
    gap_us: int

    @classmethod
    def for_lease(cls, lease_us: int) -> 'Timers':
        """The timers that go with a lease."""
        return cls(lease_us, lease_us // 3, min(500_000, lease_us // 6))


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What one host says of one cluster.

    :ivar boot: greater for each start of the agent (its start's wall
        clock); compared only with the same host's.
    :ivar seq: greater for each message of one boot.
    :ivar lease_us: how long the word holds from its arrival; 0 takes the
        host's word back, as it has no members any more.
    """

    cluster: str
    host: str
    boot: int
    seq: int
    word: ClusterPlan
    lease_us: int


@dataclasses.dataclass(frozen=True, slots=True)
class Own:
    """What this host says of one cluster.

    :ivar word: what the controller decided last.
    :ivar said: what was told last; None if nothing was.
    :ivar decided_us: when the controller last decided anything.
    :ivar changed_us: when ``said`` last became another word.
    """

    word: ClusterPlan
    said: ClusterPlan | None
    said_us: int
    changed_us: int
    decided_us: int
    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """What another host said of one cluster.

    :ivar until_us: end of its lease.
    :ivar forget_us: until then older messages of it are told apart.
    """

    boot: int
    seq: int
    word: ClusterPlan
    until_us: int
    forget_us: int


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """All that one host knows of one cluster."""

    own: Own | None = None
    heard: Mapping[str, Heard] = dataclasses.field(default_factory=dict)


class Protocol:
    """The rules, for one host and one boot of its agent.

    :param host: this host's name, unique among the cluster's hosts.
    :param boot: greater than at the agent's earlier starts.
    """

    def __init__(self, host: str, boot: int, timers: Timers) -> None:
        self.host = host
        self.boot = boot
        self.timers = timers

    def decide(
        self, state: State, cluster: str, word: ClusterPlan, now_us: int
    ) -> tuple[State, Message | None]:
        """The controller decided: tell it, if it is news."""
        own = state.own or Own(word, None, now_us, now_us, now_us, 0)
        own = dataclasses.replace(own, word=word, decided_us=now_us)
        state = dataclasses.replace(state, own=own)
        if own.said is not None and own.said.phase is word.phase:
            return state, None
        return self._say(state, own, cluster, now_us)

    def tick(
        self, state: State, cluster: str, now_us: int
    ) -> tuple[State, Message | None]:
        """Time has passed: forget, and tell again what still holds."""
        heard = {
            host: one
            for host, one in state.heard.items()
            if now_us < one.forget_us
        }
        if len(heard) != len(state.heard):
            state = dataclasses.replace(state, heard=heard)
        own = state.own
        if own is None or now_us - own.decided_us > self.timers.lease_us:
            # A controller that hangs must not hold the cluster in a phase.
            return state, None
        silent_us = now_us - own.said_us
        if own.said != own.word and silent_us >= self.timers.gap_us:
            return self._say(state, own, cluster, now_us)
        # The default needs no renewal; but the message that went back to
        # it may be lost, so it is told again for as long as the word
        # before it may hold somewhere.
        worth_telling = (
            own.said != QUIET
            or now_us - own.changed_us <= self.timers.lease_us
        )
        if worth_telling and silent_us >= self.timers.renew_us:
            return self._say(state, own, cluster, now_us)
        return state, None

    def unsent(self, state: State) -> State:
        """The last message could not be sent: the next tick tries again."""
        if state.own is None:
            return state
        own = dataclasses.replace(
            state.own,
            said=None,
            said_us=state.own.said_us - self.timers.lease_us,
        )
        return dataclasses.replace(state, own=own)

    def leave(
        self, state: State, cluster: str, now_us: int
    ) -> tuple[State, Message | None]:
        """No members are left here: take the word back."""
        if state.own is None:
            return state, None
        seq = max(state.own.seq + 1, now_us)
        message = Message(cluster, self.host, self.boot, seq, QUIET, 0)
        return dataclasses.replace(state, own=None), message

    def hear(self, state: State, message: Message, now_us: int) -> State:
        """A message arrived: take it, unless a newer one is known."""
        if message.host == self.host:
            return state
        known = state.heard.get(message.host)
        if known is not None and (message.boot, message.seq) <= (
            known.boot,
            known.seq,
        ):
            return state
        if known is None and len(state.heard) >= MAX_HOSTS:
            return state
        lease_us = min(max(message.lease_us, 0), MAX_LEASE_US)
        until_us = now_us + lease_us
        heard = Heard(
            message.boot,
            message.seq,
            message.word,
            until_us,
            until_us + max(lease_us, self.timers.lease_us),
        )
        return dataclasses.replace(
            state, heard={**state.heard, message.host: heard}
        )

    def view(self, state: State, now_us: int) -> PeerView:
        """What the other hosts say whose lease is still good."""
        words = [
            heard.word
            for heard in state.heard.values()
            if now_us < heard.until_us
        ]
        slices = [
            word.min_slice_us
            for word in words
            if word.min_slice_us is not None
        ]
        return PeerView(
            io=any(word.phase is Phase.IO for word in words),
            min_slice_us=min(slices, default=None),
        )

    def _say(
        self, state: State, own: Own, cluster: str, now_us: int
    ) -> tuple[State, Message]:
        # The clock keeps the number growing also after the state of a
        # cluster was dropped and made anew within one boot.
        seq = max(own.seq + 1, now_us)
        changed = own.said != own.word
        own = dataclasses.replace(
            own,
            said=own.word,
            said_us=now_us,
            changed_us=now_us if changed else own.changed_us,
            seq=seq,
        )
        return dataclasses.replace(state, own=own), Message(
            cluster,
            self.host,
            self.boot,
            seq,
            own.word,
            self.timers.lease_us,
        )


def group_phase(protocol: Protocol, state: State, now_us: int) -> Phase:
    """The cluster's phase as this host sees it: its own word or a peer's."""
    own = state.own
    if own is not None and own.word.phase is Phase.IO:
        return Phase.IO
    return Phase.IO if protocol.view(state, now_us).io else Phase.COMPUTING
