# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Several simulated hosts under one clock."""

import unittest

from nova_vhpc_lab.sim import host, hosts, programs

WORK_US = 1_000.0
SECONDS = 2


def _network(latency_us, **fields):
    return hosts.Network(latency_us=latency_us, message_us=0.0, **fields)


def _coupled(program, count=2, network=None, seed=1, cpus=4, rivals=0):
    """Run one program on all CPUs of all hosts.

    :param rivals: busy VMs beside it on the first host.
    :returns: the hosts, and the program's progress as a part of the time.
    """
    together = hosts.Hosts(
        count, cpus, seed=seed, network=network or _network(0.0), noise=None
    )
    single = [host.Host.of(together, index) for index in range(count)]
    vms = [one.add_vm(program, cpus, barrier_group='job') for one in single]
    for _ in range(rivals):
        single[0].add_vm(programs.Run(), cpus)
    together.advance(SECONDS * 1_000_000)
    progress_us = single[0].counters(vms[0]).progress_us
    return single, progress_us / (SECONDS * 1e6)


class BarrierAcrossHostsTest(unittest.TestCase):
    def test_each_round_takes_the_time_of_its_messages(self):
        for latency_us in (0, 250, 1_000):
            _, progress = _coupled(
                programs.Spin(WORK_US, spread=0.0),
                network=_network(latency_us),
            )
            self.assertAlmostEqual(
                WORK_US / (WORK_US + latency_us), progress, delta=0.02
            )

    def test_sleeping_members_wait_for_messages_too(self):
        for program in (
            programs.Block(WORK_US, spread=0.0),
            programs.SpinThenBlock(WORK_US, 100.0, spread=0.0),
            programs.SpinThenBlock(WORK_US, 5_000.0, spread=0.0),
        ):
            _, progress = _coupled(program, network=_network(1_000.0))
            self.assertAlmostEqual(0.5, progress, delta=0.03)

    def test_members_on_one_host_need_no_message(self):
        _, progress = _coupled(
            programs.Spin(WORK_US, spread=0.0), 1, _network(10_000.0)
        )
        self.assertAlmostEqual(1.0, progress, delta=0.01)

    def test_lost_messages_are_sent_again(self):
        _, progress = _coupled(
            programs.Spin(WORK_US, spread=0.0),
            network=_network(0.1, loss=0.05, resend_us=10_000.0),
        )
        # One of the two messages of a round is lost in 0.0975 of the rounds.
        self.assertAlmostEqual(1 / 1.975, progress, delta=0.05)

    def test_program_is_held_up_by_its_slowest_host(self):
        _, alone = _coupled(programs.Spin(WORK_US))
        single, progress = _coupled(programs.Spin(WORK_US), rivals=1)
        self.assertLess(progress, 0.7 * alone)
        self.assertGreater(progress, 0.05)
        run_us = [sum(one.counters(one.numbers[0]).run_us) for one in single]
        self.assertAlmostEqual(0.5, run_us[0] / run_us[1], delta=0.05)

    def test_patterns_take_as_many_messages_as_hosts_need(self):
        network = hosts.Network(latency_us=100.0, message_us=10.0)
        for pattern, flight_us in (
            (programs.Pattern.BARRIER, 330.0),
            (programs.Pattern.ALL_TO_ALL, 170.0),
            (programs.Pattern.WAVEFRONT, 770.0),
        ):
            self.assertEqual(flight_us, network.flight_us(pattern, 8))
            self.assertEqual(0.0, network.flight_us(pattern, 1))
            _, progress = _coupled(
                programs.Spin(WORK_US, 0.0, pattern), 8, network, cpus=1
            )
            self.assertAlmostEqual(
                WORK_US / (WORK_US + flight_us), progress, delta=0.02
            )

    def test_messages_are_io_events(self):
        program = programs.Spin(WORK_US, 0.0, programs.Pattern.ALL_TO_ALL)
        single, _ = _coupled(program, 3)
        for one in single:
            counters = one.counters(one.numbers[0])
            # Two sent and two received in each round.
            self.assertEqual(4 * counters.barriers, counters.io_events)
        self.assertGreater(counters.barriers, 1_000)
        (alone,), _ = _coupled(program, 1)
        self.assertEqual(0, alone.counters(alone.numbers[0]).io_events)


class HostsTest(unittest.TestCase):
    def test_same_seed_gives_the_same_counters(self):
        first, second = (
            _coupled(programs.SpinThenBlock(WORK_US, 100.0), rivals=1)[0]
            for _ in range(2)
        )
        for one, other in zip(first, second, strict=True):
            for number in one.numbers:
                self.assertEqual(one.counters(number), other.counters(number))

    def test_threads_stay_on_their_host(self):
        together = hosts.Hosts(2, 4, seed=3, sockets=2)
        busy, idle = (host.Host.of(together, index) for index in range(2))
        vms = [busy.add_vm(programs.Run(), 4) for _ in range(3)]
        sleeper = idle.add_vm(programs.Sleep(100, 5_000), 1)
        together.advance(3_000_000)
        received = [sum(busy.counters(vm).run_us) / 3e6 for vm in vms]
        self.assertAlmostEqual(4.0, sum(received), delta=0.05)
        for cpus in received:
            self.assertAlmostEqual(4 / 3, cpus, delta=0.1)
        self.assertLess(idle.counters(sleeper).latency_p99_us, 50)

    def test_pins_and_weights_are_those_of_the_host(self):
        together = hosts.Hosts(3, 2, seed=4)
        last = host.Host.of(together, 2)
        vms = [last.add_vm(programs.Run(), 1) for _ in range(2)]
        for vm in vms:
            last.set_pins(vm, (frozenset({1}),))
        last.set_weight(vms[0], 3_072)
        together.advance(4_000_000)
        self.assertEqual((1,), last.counters(vms[1]).cpus)
        self.assertAlmostEqual(
            3.0,
            last.counters(vms[0]).run_us[0] / last.counters(vms[1]).run_us[0],
            delta=0.1,
        )

    def test_host_is_as_busy_as_if_it_were_alone(self):
        together = hosts.Hosts(3, 4, seed=5)
        single = [host.Host.of(together, index) for index in range(3)]
        alone = host.Host(4, seed=5)
        for one in (*single, alone):
            for vcpus in (1, 3, 4):
                one.add_vm(programs.Run(), vcpus)
        for one in (single[0], alone):
            one.advance(5_000_000)
        for one in single:
            for number, other in zip(one.numbers, alone.numbers, strict=True):
                self.assertAlmostEqual(
                    sum(alone.counters(other).run_us),
                    sum(one.counters(number).run_us),
                    delta=0.03 * 5e6,
                )
