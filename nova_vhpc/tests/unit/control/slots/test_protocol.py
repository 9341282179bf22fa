# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts agree on slots, whatever the network does."""

import itertools
from unittest import mock

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.control import leases
from nova_vhpc.control.slots import frame, protocol
from nova_vhpc.control.slots.messages import Decision, Message, Report
from nova_vhpc_lab.sim import slot_network

CPUS = 8
MAX_HOSTS = 8
"""Hosts kept per cluster while anything may happen."""
SETTLED_US = 3_000_000
"""What an operator is promised after the last change."""


def gang(key: str, width: int = CPUS, part: float = 0.25) -> protocol.Gang:
    return protocol.Gang(key, width, part, True)


def network(
    *hosts: str, seed: int = 1, width: int = CPUS, part: float = 0.25
) -> slot_network.SlotNetwork:
    """Return hosts a, b, ... each with the clusters named by letters."""
    return slot_network.SlotNetwork(
        {
            chr(ord('a') + number): (
                CPUS,
                [gang(key, width, part) for key in keys],
            )
            for number, keys in enumerate(hosts)
        },
        seed,
    )


class AgreementTest(base.BaseTestCase):
    def settle(self, net: slot_network.SlotNetwork) -> None:
        self.assertLessEqual(net.settle_us(20_000_000), SETTLED_US)
        self.assertEqual([], net.faults_found())

    def places(
        self, net: slot_network.SlotNetwork, key: str
    ) -> set[int | None]:
        """Return the slots of a cluster, as its living hosts see them."""
        places: set[int | None] = set()
        for host in net.living(key):
            slot = host.protocol.table.get(key)
            places.add(None if slot is None else slot.slots)
        return places

    def place(self, net: slot_network.SlotNetwork, key: str) -> int:
        """Return the slots that all hosts agree on."""
        places = self.places(net, key)
        self.assertEqual(1, len(places), places)
        place = places.pop()
        assert place is not None, key
        return place

    def test_hosts_with_different_clusters_give_each_the_same_slots(
        self,
    ) -> None:
        net = network('pq', 'qr', 'rp', 'prs')
        self.settle(net)
        for one, other in itertools.combinations('pqr', 2):
            self.assertFalse(self.place(net, one) & self.place(net, other))
        self.assertFalse(self.place(net, 's') & self.place(net, 'p'))

    def test_clusters_that_fit_beside_each_other_may_share_slots(self) -> None:
        net = network('pqrst', 'pqrst', width=CPUS // 2, part=0.5)
        self.settle(net)
        masks = [self.place(net, key) for key in 'pqrst']
        # All have what they are guaranteed; two of them fit in a slot.
        self.assertLessEqual(
            frame.least(8), min(mask.bit_count() for mask in masks)
        )
        self.assertEqual(32, sum(mask.bit_count() for mask in masks))

    def test_host_with_less_decides_how_much_a_cluster_gets(self) -> None:
        net = network('pqx', 'pqx', part=0.5)
        net.set_gangs('a', [gang('p', part=0.5), gang('q', part=0.25)])
        net.set_gangs('b', [gang('p', part=0.5), gang('q', part=0.5)])
        self.settle(net)
        self.assertEqual(4, self.place(net, 'q').bit_count())

    def test_wide_cluster_is_guaranteed_slots_beside_narrow_ones(self) -> None:
        narrow = [gang(key, 2, 0.8) for key in 'pqrs']
        net = network('', '')
        for host in 'ab':
            net.set_gangs(host, [*narrow, gang('w', CPUS, 0.5)])
        self.settle(net)
        self.assertLessEqual(frame.least(8), self.place(net, 'w').bit_count())

    def test_widest_cluster_chooses_first(self) -> None:
        net = network('', '')
        for host in 'ab':
            # One CPU in all slots would leave none for the wide cluster.
            net.set_gangs(host, [gang('n', 1, 1.0), gang('w', CPUS, 0.5)])
        self.settle(net)
        self.assertLessEqual(frame.least(8), self.place(net, 'w').bit_count())

    def test_agreement_survives_the_leader(self) -> None:
        net = network('pq', 'pqr', 'qr')
        self.settle(net)
        before = {key: self.place(net, key) for key in 'pqr'}
        net.kill('a')
        net.run(20_000_000)
        self.assertEqual([], net.faults_found())
        self.assertEqual(before, {key: self.place(net, key) for key in 'pqr'})
        net.set_gangs('b', [gang('q'), gang('r'), gang('n')])
        net.set_gangs('c', [gang('q'), gang('r'), gang('n')])
        self.settle(net)
        self.assertFalse(self.place(net, 'n') & self.place(net, 'q'))

    def test_host_that_lost_its_memory_takes_up_the_slots_in_force(
        self,
    ) -> None:
        net = network('pq', 'pqr', 'qr')
        self.settle(net)
        before = {key: self.place(net, key) for key in 'pqr'}
        net.restart('a')
        self.settle(net)
        self.assertEqual(before, {key: self.place(net, key) for key in 'pqr'})

    def test_sides_of_a_partition_agree_again(self) -> None:
        net = network('pq', 'pqr', 'qrs', 'psr')
        net.hosts['a'].side = net.hosts['b'].side = 1
        self.settle_each_side(net)
        for host in net.hosts.values():
            host.side = 0
        # Each side hears the other with the next renewal.
        net.run(2 * protocol.LEASE_US)
        self.settle(net)

    def settle_each_side(self, net: slot_network.SlotNetwork) -> None:
        net.run(10_000_000)
        for host in net.hosts.values():
            self.assertTrue(host.protocol.table)
            self.assertFalse(slot_network.overloaded(host))

    def agreed(self, net: slot_network.SlotNetwork, host: str) -> set[str]:
        """Return the clusters that have windows on a host."""
        agreed = net.hosts[host].protocol.agreed
        return {key for key, slot in agreed.items() if slot is not None}

    def test_cluster_has_slots_on_all_hosts_or_on_none(self) -> None:
        net = network('pq', 'pqr', 'qr', 'st', 'st')
        net.set_gangs('a', [gang('p')._replace(plays=False), gang('q')])
        net.run(5_000_000)
        # Windows of q and r would slow p, and those of r the others of q.
        for host in 'abc':
            self.assertEqual(set(), self.agreed(net, host))
        for host in 'de':
            self.assertEqual({'s', 't'}, self.agreed(net, host))
        net.set_gangs('a', [gang('p'), gang('q')])
        net.run(5_000_000)
        self.assertEqual({'p', 'q'}, self.agreed(net, 'a'))
        self.assertEqual({'p', 'q', 'r'}, self.agreed(net, 'b'))
        self.assertEqual([], net.faults_found())

    def test_any_host_may_refuse_a_cluster_for_all(self) -> None:
        for name in 'abc':
            net = network('p', 'p', 'p')
            net.run(5_000_000)
            net.set_gangs(name, [gang('p')._replace(plays=False)])
            net.run(protocol.LEASE_US)
            self.assertEqual({None}, self.places(net, 'p'), name)
            net.set_gangs(name, [gang('p')])
            self.settle(net)
            self.assertTrue(self.place(net, 'p'))

    def test_cluster_waits_for_a_host_that_rests(self) -> None:
        net = network('pq', 'p', 'q')
        net.set_gangs('b', [gang('p')._replace(plays=False)])
        net.run(5_000_000)
        # The only cluster of c has the host a, which rests for p.
        self.assertEqual(set(), self.agreed(net, 'c'))
        net.set_gangs('b', [gang('p')])
        net.run(5_000_000)
        self.assertEqual({'q'}, self.agreed(net, 'c'))

    def test_far_away_hosts_do_not_rest(self) -> None:
        net = network('pq', 'qr', 'rs', 'st', 'tu', 'uv', 'v')
        net.set_gangs('a', [gang('p'), gang('q')._replace(plays=False)])
        net.run(5_000_000)
        self.assertEqual(set(), self.agreed(net, 'b'))
        self.assertEqual({'u', 'v'}, self.agreed(net, 'f'))
        net.set_gangs('a', [gang('p'), gang('q')])
        net.run(5_000_000)
        self.assertEqual({'q', 'r'}, self.agreed(net, 'b'))

    def test_clusters_of_a_host_that_plays_no_slots_have_none(self) -> None:
        net = network('pq', 'pqr', 'qr')
        net.hosts['a'].protocol.set_plays(False)
        net.run(5_000_000)
        for host in 'abc':
            self.assertEqual(set(), self.agreed(net, host))
        net.hosts['a'].protocol.set_plays(True)
        self.settle(net)
        for host, keys in zip('abc', ('pq', 'pqr', 'qr'), strict=True):
            self.assertEqual(set(keys), self.agreed(net, host))

    def test_same_history_gives_the_same_tables(self) -> None:
        tables = []
        for _ in range(2):
            net = slot_network.SlotNetwork(
                slot_network.random_cloud(20, seed=3), seed=5
            )
            net.faults = slot_network.Faults(0.1, 0.1, (1_000, 300_000))
            net.run(5_000_000)
            tables.append([host.protocol.table for host in net.hosts.values()])
        self.assertEqual(*tables)

    def test_lone_vm_gets_slots_that_clusters_leave(self) -> None:
        lone = protocol.Gang('vm', CPUS, 0.25, False)
        net = network('pq', 'pq')
        net.set_gangs('a', [gang('p'), gang('q'), lone])
        self.settle(net)
        slot = net.hosts['a'].protocol.table['vm']
        used = self.place(net, 'p') | self.place(net, 'q')
        self.assertFalse(slot.slots & used)


class CloudTest(base.BaseTestCase):
    HOSTS = 60

    def test_cloud_settles_after_a_tenth_of_its_hosts_changed(self) -> None:
        for seed in (1, 2):
            net = slot_network.SlotNetwork(
                slot_network.random_cloud(self.HOSTS, seed), seed
            )
            self.assertLessEqual(net.settle_us(20_000_000), SETTLED_US)
            slot_network.change_some(net, 0.1, seed)
            self.assertLessEqual(net.settle_us(20_000_000), SETTLED_US)
            self.assertEqual([], net.faults_found())
            self.assertTrue(
                all(host.protocol.table for host in net.hosts.values())
            )

    def test_leases_do_not_grow_with_the_number_of_clusters(self) -> None:
        for clusters in (1, 12, 100):
            net = slot_network.SlotNetwork(
                slot_network.random_cloud(
                    12, 1, span=4, clusters_per_host=clusters
                )
            )
            net.run(10_000_000)
            before = {host.name: host.sent for host in net.hosts.values()}
            net.run(12_000_000)
            renewals = 12_000_000 * protocol.RENEWALS / protocol.LEASE_US
            for host in net.hosts.values():
                sent = host.sent - before[host.name]
                self.assertLessEqual(sent, renewals * clusters + 1)
            net.kill('h00003')
            net.run(protocol.LEASE_US + 3 * slot_network.STEP_US)
            for host in net.hosts.values():
                for one in host.protocol.clusters.values():
                    live = dict(one.live(net.now_us + host.clock_us))
                    self.assertNotIn('h00003', live)
            self.assertEqual([], net.faults_found())


class SlotMachine(stateful.RuleBasedStateMachine):
    """Anything may happen; then the network works, and all is well."""

    KEYS = 'pqrs'

    def __init__(self) -> None:
        super().__init__()
        self.patch = mock.patch.multiple(
            leases, MAX_HOSTS=MAX_HOSTS, EVICTED=2
        )
        self.patch.start()
        self.net = network('pq', 'pqr', 'qrs', 'ps')

    hosts = st.sampled_from('abcd')

    @stateful.rule(
        loss=st.floats(0, 0.9),
        duplication=st.floats(0, 1),
        delay_us=st.integers(1_000, 3_000_000),
    )
    def be_faulty(
        self, loss: float, duplication: float, delay_us: int
    ) -> None:
        self.net.faults = slot_network.Faults(
            loss, duplication, (1_000, delay_us)
        )

    @stateful.rule(host=hosts, side=st.integers(0, 1))
    def divide(self, host: str, side: int) -> None:
        self.net.hosts[host].side = side

    @stateful.rule(host=hosts)
    def kill(self, host: str) -> None:
        self.net.kill(host)

    @stateful.rule(host=hosts, clock_change=st.integers(-3, 9))
    def restart(self, host: str, clock_change: int) -> None:
        self.net.restart(host, clock_change)

    @stateful.rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        messages = self.net.messages
        if messages:
            self.net.broadcast(data.draw(st.sampled_from(messages)))

    @stateful.rule(
        host=hosts | st.just('!'),
        key=st.sampled_from(KEYS),
        boot=st.integers(0, 2**63 - 1),
        seq=st.integers(0, 2**63 - 1),
        lease_us=st.integers(0, 2**50),
        blocked=st.integers(0, frame.ALL),
        decision=st.none()
        | st.just(Decision(0, 0, 1, CPUS, 1, 1))
        | st.just(Decision(0x8, 0x8888, 4, CPUS, 2, 7)),
    )
    def forge(
        self,
        host: str,
        key: str,
        boot: int,
        seq: int,
        lease_us: int,
        blocked: int,
        decision: Decision | None,
    ) -> None:
        report = Report(4, CPUS, blocked, ready=True, decision=decision)
        self.net.broadcast(Message(key, host, boot, seq, lease_us, report))

    @stateful.rule(key=st.sampled_from(KEYS), first=st.integers(0, 9000))
    def flood(self, key: str, first: int) -> None:
        for number in range(first, first + 3 * MAX_HOSTS):
            self.net.broadcast(
                Message(key, f'x{number}', 1, 1, 2**40, Report(4, CPUS))
            )

    @stateful.rule(host=hosts, plays=st.booleans())
    def play(self, host: str, plays: bool) -> None:
        self.net.hosts[host].protocol.set_plays(plays)

    @stateful.rule(
        host=hosts,
        keys=st.sets(st.sampled_from(KEYS)),
        width=st.integers(1, CPUS + 1),
        part=st.floats(0.02, 1),
        refused=st.sampled_from(KEYS),
    )
    def move(
        self, host: str, keys: set[str], width: int, part: float, refused: str
    ) -> None:
        self.net.set_gangs(
            host,
            [
                gang(key, width, part)._replace(plays=key != refused)
                for key in sorted(keys)
            ],
        )

    @stateful.rule(tenths=st.integers(1, 50))
    def wait(self, tenths: int) -> None:
        self.net.run(tenths * 100_000)

    @stateful.invariant()
    def no_slot_is_too_full(self) -> None:
        for host in self.net.hosts.values():
            # A host's gangs are new to it until its next step.
            load = [0] * frame.SLOTS
            for key, slot in host.protocol.table.items():
                known = host.protocol.clusters.get(key)
                for number in frame.numbers(slot.slots):
                    load[number] += 0 if known is None else known.width
            assert max(load) <= host.cpus or not host.is_alive

    def teardown(self) -> None:
        try:
            self.check_that_all_settles()
        finally:
            self.patch.stop()

    def check_that_all_settles(self) -> None:
        self.net.faults = slot_network.Faults()
        for host in self.net.hosts.values():
            host.side = 0
            host.protocol.set_plays(True)
            self.net.set_gangs(
                host.name,
                [one._replace(plays=True) for one in host.gangs.values()],
            )
        # Old messages arrive, and leases of the dead and the invented end.
        lease_us = protocol.LEASE_US
        self.net.run((leases.MAX_LEASES + 3) * lease_us)
        assert self.net.faults_found() == []
        before = [host.protocol.table for host in self.net.hosts.values()]
        self.net.run(lease_us)
        after = [host.protocol.table for host in self.net.hosts.values()]
        assert before == after
        self.check_all_or_nothing()

    def check_all_or_nothing(self) -> None:
        for key in self.KEYS:
            living = [
                host.protocol
                for host in self.net.living(key)
                if key in host.gangs and key in host.protocol.agreed
            ]
            has_slots = {one.agreed[key] is not None for one in living}
            assert len(has_slots) <= 1, (key, has_slots)
        self.check_that_hosts_rest_for_a_reason()

    def check_that_hosts_rest_for_a_reason(self) -> None:
        living = [
            host.protocol for host in self.net.hosts.values() if host.is_alive
        ]
        clusters = [one for host in living for one in host.clusters.values()]
        if all(one.slots for one in clusters):
            assert not any(None in host.agreed.values() for host in living)


SlotMachine.TestCase.settings = hypothesis.settings(
    max_examples=60, stateful_step_count=20, deadline=None
)


class SlotMachineTest(SlotMachine.TestCase):
    pass


class RulesTest(base.BaseTestCase):
    """One host, and messages made by hand."""

    def setUp(self) -> None:
        super().setUp()
        self.host = protocol.SlotProtocol('b', 1)
        self.now_us = 0
        self.wait(2_000_000)

    def wait(self, duration_us: int) -> list[Message]:
        sent: list[Message] = []
        for _ in range(duration_us // 100_000):
            self.now_us += 100_000
            self.host.demand([gang('p')], ['p'], CPUS, self.now_us)
            sent += self.host.step(self.now_us)
        return sent

    def hear(
        self,
        host: str,
        report: Report,
        seq: int = 1,
        lease_us: int = 6_000_000,
    ) -> None:
        self.host.receive(
            Message('p', host, 1, seq, lease_us, report), self.now_us
        )
        self.wait(100_000)

    def leads(self, slots: int) -> Report:
        decision = Decision(slots, slots, 4, CPUS, 2, 7)
        return Report(4, CPUS, ready=True, decision=decision)

    def test_lower_host_is_followed(self) -> None:
        self.hear('a', self.leads(0x8888))
        slot = self.host.table['p']
        self.assertEqual((0x8888, 7), slot)

    def test_decision_of_a_higher_host_is_not_followed(self) -> None:
        before = self.host.table['p']
        self.hear('c', self.leads(0x8888))
        self.assertEqual(before, self.host.table['p'])

    def test_leader_avoids_what_another_host_reports_as_taken(self) -> None:
        self.hear('c', Report(4, CPUS, blocked=0x5555, taken=0x5555))
        self.assertFalse(self.host.table['p'].slots & 0x5555)

    def test_decision_holds_when_the_leader_is_gone(self) -> None:
        self.hear('a', self.leads(0x8888))
        self.wait(20_000_000)
        self.assertTrue(self.host.clusters['p'].leads)
        self.assertEqual((0x8888, 7), self.host.table['p'])

    def test_host_that_says_goodbye_is_forgotten_at_once(self) -> None:
        self.hear('a', self.leads(0x8888))
        self.hear('a', Report(4, CPUS), seq=2, lease_us=0)
        self.assertTrue(self.host.clusters['p'].leads)

    def test_cluster_that_stops_spinning_keeps_its_slots_for_a_lease(
        self,
    ) -> None:
        self.now_us += 3_000_000
        self.host.demand([], ['p'], CPUS, self.now_us)
        self.host.step(self.now_us)
        self.assertIn('p', self.host.table)
        self.now_us += 4_000_000
        self.host.demand([], ['p'], CPUS, self.now_us)
        (goodbye,) = self.host.step(self.now_us)
        self.assertEqual(0, goodbye.lease_us)
        self.assertEqual({}, self.host.table)

    def test_single_vcpu_has_slots_while_another_host_is_heard(self) -> None:
        lone = protocol.SlotProtocol('b', 1)

        def wait(begin_us: int, end_us: int) -> None:
            for now_us in range(begin_us, end_us, 100_000):
                lone.demand([gang('p', 1, 0.5)], ['p'], CPUS, now_us)
                lone.step(now_us)

        wait(0, 2_000_000)
        self.assertIn('p', lone.table)
        self.assertEqual({}, lone.agreed)
        lone.receive(
            Message('p', 'a', 1, 1, 3_000_000, self.leads(0x8888)),
            2_000_000,
        )
        wait(2_000_000, 2_200_000)
        self.assertEqual((0x8888, 7), lone.agreed['p'])
        wait(2_200_000, 9_000_000)
        self.assertEqual({}, lone.agreed)

    def test_message_that_was_not_sent_is_made_again(self) -> None:
        (message,) = self.wait(2_000_000)[:1]
        self.host.unsent(message)
        (again,) = self.wait(100_000)
        self.assertEqual(message.statement, again.statement)
        self.assertGreater(again.seq, message.seq)
