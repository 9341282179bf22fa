# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent's threads on a simulated host."""

from nova_vhpc.tests import base
from nova_vhpc_lab.sim import agent_threads, host_spec, measurement, programs
from nova_vhpc_lab.sim.agenda import Agenda


class TestAgentThreads(base.TestCase):
    def start(self, vms, seed=1):
        spec = host_spec.HostSpec('test', 1, vms, machine_weight=1_024)
        self.host, numbers = measurement.start(spec, seed)
        self.agenda = Agenda(self.host)
        self.numbers = [numbers[vm.name] for vm in vms]
        self.calls = []
        return agent_threads.AgentThreads(
            self.host,
            self.agenda,
            host_spec.AgentThreads(1_024, 500.0, 200.0, 300.0),
        )

    def note(self):
        self.calls.append(self.agenda.now_us)

    def test_work_on_an_idle_cpu_takes_its_own_time(self):
        threads = self.start(())
        threads.decide(self.note)
        self.agenda.run(100_000)
        self.assertEqual(1, len(self.calls))
        self.assertGreater(self.calls[0], 240)
        self.assertLess(self.calls[0], 900)

    def test_work_waits_for_a_busy_cpu_and_takes_it_from_the_vm(self):
        threads = self.start(
            (host_spec.VmSpec('h', 'busy', programs.Run(), 1),)
        )
        delays_us = []
        for begin_us in range(100_000, 3_100_000, 100_000):
            self.agenda.run(begin_us)
            threads.decide(self.note)
            self.agenda.run(begin_us + 90_000)
            delays_us.append(self.calls[-1] - begin_us)
        # The slice of the VM's vCPU is protected until its end.
        self.assertGreater(max(delays_us), 1_000)
        counters = self.host.counters(self.numbers[0])
        lost_us = self.agenda.now_us - sum(counters.run_us)
        self.assertGreater(lost_us, 30 * 300)

    def test_player_wakes_after_the_border(self):
        threads = self.start(())
        threads.at_border(50_000, self.note)
        self.agenda.run(100_000)
        self.assertGreater(self.calls[0], 50_000)
        self.assertLess(self.calls[0], 51_000)

    def test_all_writes_are_done_before_the_end_is_told(self):
        threads = self.start(())
        order = []
        threads.write(
            [lambda n=n: order.append(n) for n in range(6)],
            lambda: order.append('end'),
        )
        self.assertEqual([], order)
        self.agenda.run(100_000)
        self.assertEqual([*range(6), 'end'], order)

    def test_end_is_told_at_once_if_nothing_is_to_be_written(self):
        threads = self.start(())
        threads.write([], self.note)
        self.assertEqual([0], self.calls)
