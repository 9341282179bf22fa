# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The peers' protocol: every interleaving of three hosts, and the rules."""

import itertools

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.agent.clusters import protocol
from nova_vhpc.control.model import ClusterPlan, PeerView, Phase
from nova_vhpc.tests import long
from nova_vhpc.tests.unit.agent.clusters import peer_model

IO = peer_model.IO
QUIET = protocol.QUIET
C = 'c'

DEPTH = long.long(4, 5)
"""Events after which hosts must agree."""


def explore(world: peer_model.World, depth: int) -> dict[object, object]:
    """All worlds that can be reached by so many events, without repeats.

    :returns: one world per distinct state of the hosts; what is still in
        the network does not matter to what comes after the last mischief.
    """
    seen = {world.key}
    distinct: dict[object, object] = {}
    frontier = [world]
    for left in range(depth, -1, -1):
        following = []
        for found in frontier:
            hosts = tuple(host.key(found.now) for host in found.hosts)
            distinct.setdefault(hosts, found)
            for successor in found.successors() if left else ():
                if successor.key not in seen:
                    seen.add(successor.key)
                    following.append(successor)
        frontier = following
    return distinct


class InterleavingsTest(base.BaseTestCase):
    def check(self, world: peer_model.World, depth: int, least: int) -> None:
        distinct = explore(world, depth)
        # Guards against a model that silently explores nothing.
        self.assertGreater(len(distinct), least)
        for reached in distinct.values():
            worlds = list(reached.settle())
            truth = worlds[-1].truth()
            self.assertEqual(
                [truth] * len(worlds[-1].phases()), worlds[-1].phases()
            )

    def test_hosts_agree_within_a_lease_after_any_fault(self) -> None:
        self.check(peer_model.World(), DEPTH, 1000)

    def test_hosts_agree_within_a_lease_after_many_changes(self) -> None:
        world = peer_model.World(toggles=3, restarts=0, deaths=0)
        self.check(world, DEPTH, 1000)

    def test_change_needs_one_message_at_most(self) -> None:
        world = peer_model.World().time_passes().toggle(0)
        for sent in world.net:
            world = world.deliver(sent)
        self.assertEqual([Phase.IO] * 3, world.phases())
        world = world.toggle(0)
        for sent in sorted(world.net, key=lambda sent: -sent[1].seq):
            world = world.deliver(sent)
        self.assertEqual([Phase.COMPUTING] * 3, world.phases())


class PeersMachine(stateful.RuleBasedStateMachine):
    """Long runs of everything that may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.world = peer_model.World(toggles=20, restarts=3, deaths=1)

    @stateful.rule(host=st.integers(0, 2))
    def toggle(self, host: int) -> None:
        if self.world.hosts[host].alive and self.world.toggles:
            self.world = self.world.toggle(host)

    @stateful.rule(host=st.integers(0, 2), clock_change=st.integers(-2, 2))
    def restart(self, host: int, clock_change: int) -> None:
        if (
            self.world.hosts[host].alive
            and self.world.restarts
            and clock_change
        ):
            self.world = self.world.restart(host, clock_change)

    @stateful.rule()
    def die(self) -> None:
        if self.world.deaths:
            self.world = self.world.die(2)

    @stateful.rule(units=st.integers(1, 4))
    def time_passes(self, units: int) -> None:
        for _ in range(units):
            self.world = self.world.time_passes()

    @stateful.rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        for sent in data.draw(
            st.lists(
                st.sampled_from(sorted(self.world.net, key=repr)), max_size=6
            )
            if self.world.net
            else st.just([])
        ):
            self.world = self.world.deliver(sent)

    @stateful.invariant()
    def ends_in_agreement(self) -> None:
        last = list(self.world.settle())[-1]
        assert set(last.phases()) == {last.truth()}

    @stateful.invariant()
    def nobody_believes_what_nobody_said(self) -> None:
        """Any I/O phase has an I/O statement younger than two leases.

        One lease in the network, at the most, and one at the receiver.
        """
        for host in self.world.hosts:
            for received in host.state.received.values():
                if received.until_us > self.world.now:
                    age = self.world.now - received.seq
                    assert age <= 2 * peer_model.LEASE


PeersMachine.TestCase.settings = hypothesis.settings(
    max_examples=60, stateful_step_count=30
)


class PeersMachineTest(PeersMachine.TestCase):
    pass


class RulesTest(base.BaseTestCase):
    LEASE = 6_000_000

    def setUp(self) -> None:
        super().setUp()
        self.timers = protocol.Timers.for_lease(self.LEASE)
        self.rules = protocol.Protocol('a', 1, self.timers)

    def message(
        self,
        seq: int,
        statement: ClusterPlan,
        boot: int = 1,
        lease: int = LEASE,
        host: str = 'b',
    ) -> protocol.Message:
        return protocol.Message(C, host, boot, seq, lease, statement)

    def receive(
        self, *messages: protocol.Message, at: int = 0
    ) -> protocol.State:
        state = protocol.State()
        for message in messages:
            state = self.rules.receive(state, message, at)
        return state

    def test_only_changes_are_sent(self) -> None:
        state, first = self.rules.decide(protocol.State(), C, IO, 0)
        self.assertIsNotNone(first)
        state, again = self.rules.decide(state, C, IO, 100_000)
        self.assertIsNone(again)
        state, changed = self.rules.decide(state, C, QUIET, 200_000)
        self.assertGreater(changed.seq, first.seq)

    def test_io_phase_is_renewed_while_it_lasts(self) -> None:
        state, _ = self.rules.decide(protocol.State(), C, IO, 0)
        sent = []
        for now in range(0, 20_000_000, 100_000):
            state, _ = self.rules.decide(state, C, IO, now)
            state, message = self.rules.tick(state, C, now)
            sent += [now] if message else []
        self.assertEqual(list(range(2_000_000, 20_000_000, 2_000_000)), sent)

    def test_computing_costs_no_message(self) -> None:
        state, _ = self.rules.decide(protocol.State(), C, QUIET, 0)
        sent = 0
        for now in range(0, 60_000_000, 100_000):
            state, decided = self.rules.decide(state, C, QUIET, now)
            state, message = self.rules.tick(state, C, now)
            sent += decided is not None
            sent += message is not None
        # The first statement of a boot is repeated for one lease, no longer.
        self.assertEqual(3, sent)

    def test_hanging_controller_sends_nothing(self) -> None:
        state, _ = self.rules.decide(protocol.State(), C, IO, 0)
        last = 0
        for now in range(0, 60_000_000, 100_000):
            state, message = self.rules.tick(state, C, now)
            last = now if message else last
        self.assertEqual(self.LEASE, last)

    def test_own_message_is_ignored(self) -> None:
        state = self.receive(self.message(1, IO, host='a'))
        self.assertEqual(PeerView(), self.rules.view(state, 1))

    def test_leaving_withdraws_the_statement(self) -> None:
        state, first = self.rules.decide(protocol.State(), C, IO, 5)
        other = protocol.Protocol('b', 1, self.timers)
        received = other.receive(protocol.State(), first, 5)
        state, withdrawal = self.rules.leave(state, C, 6)
        received = other.receive(received, withdrawal, 6)
        self.assertFalse(other.view(received, 6).io)
        self.assertIsNone(self.rules.leave(state, C, 7)[1])

    def test_statement_after_return_in_the_same_boot_counts(self) -> None:
        state, first = self.rules.decide(protocol.State(), C, IO, 5)
        _, withdrawal = self.rules.leave(state, C, 6)
        _, second = self.rules.decide(protocol.State(), C, IO, 7)
        other = protocol.Protocol('b', 1, self.timers)
        received = protocol.State()
        for message in (first, withdrawal, second):
            received = other.receive(received, message, 8)
        self.assertTrue(other.view(received, 8).io)

    def test_least_slice_of_all_hosts_counts(self) -> None:
        state = self.receive(
            self.message(1, ClusterPlan(Phase.COMPUTING, 7000)),
            self.message(1, ClusterPlan(Phase.COMPUTING, 5000), host='c'),
            self.message(1, ClusterPlan(Phase.COMPUTING), host='d'),
        )
        self.assertEqual(5000, self.rules.view(state, 1).min_slice_us)

    def test_slices_that_change_each_period_are_sent_seldom(self) -> None:
        state = protocol.State()
        sent = []
        for tick in range(100):
            now = tick * 100_000
            statement = ClusterPlan(Phase.COMPUTING, 1000 + tick)
            state, decided = self.rules.decide(state, C, statement, now)
            state, message = self.rules.tick(state, C, now)
            sent += [now] if decided or message else []
        pauses = {b - a for a, b in itertools.pairwise(sent)}
        self.assertEqual({self.timers.gap_us}, pauses)

    def test_unsent_statement_is_sent_by_the_next_tick(self) -> None:
        state, first = self.rules.decide(protocol.State(), C, IO, 10**9)
        state = self.rules.unsent(state)
        state, again = self.rules.tick(state, C, 10**9 + 1)
        self.assertEqual(first.statement, again.statement)
        self.assertGreater(again.seq, first.seq)
