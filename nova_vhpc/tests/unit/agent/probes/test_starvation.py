# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Waits that have not ended are counted."""

import pathlib
import tempfile

from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import schedstat, starvation
from nova_vhpc.tests import base

MS = 1_000_000
STAT = '{} (CPU 0/KVM (x) R) {} 1 1 1 0 -1 64 9 0 0 0 {} {} 0 0 20 0 4 0 9\n'


class StarvationCase(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.tasks = [self.root / f'7/task/{tid}' for tid in (1, 2)]
        for vcpu, task in enumerate(self.tasks):
            task.mkdir(parents=True)
            self.state(vcpu, 'S')

    def state(self, vcpu, state, utime=3, stime=4):
        text = STAT.format(vcpu, state, utime, stime)
        (self.tasks[vcpu] / 'stat').write_text(text)


class StarvationTest(StarvationCase):
    def setUp(self):
        super().setUp()
        self.starvation = starvation.Starvation(
            [task / 'stat' for task in self.tasks]
        )
        self.addCleanup(self.starvation.clear)
        self.now_ns = 0

    def read(self, ran=(0, 0), wait=(0, 0)):
        """Read 100 ms after the last read.

        :returns: the corrected waits; None if no correction was due.
        """
        self.now_ns += 100 * MS
        wait = list(wait)
        if not self.starvation.due():
            return None
        self.starvation.correct(ran, wait, self.now_ns)
        return wait

    def read_until_checked(self):
        """Read until the states were checked, which counts no wait."""
        while self.read() is None:
            pass

    def test_sleeping_thread_costs_one_check_in_ten_reads(self):
        self.read_until_checked()
        looks = [self.read() for _ in range(30)]
        self.assertEqual(3, sum(look is not None for look in looks))

    def test_wait_is_counted_while_it_lasts(self):
        self.state(1, 'R')
        self.read_until_checked()
        for _ in range(25):
            self.assertEqual([0, 100 * MS], self.read())

    def test_counted_wait_is_not_counted_again_by_the_kernel(self):
        self.state(1, 'R')
        self.read_until_checked()
        for _ in range(5):
            self.read()
        # Finally the kernel counts 1.6 s, 0.5 s of which were counted here.
        self.assertEqual([0, 1100 * MS], self.read((0, 1), (0, 1600 * MS)))
        self.state(1, 'S')
        self.assertEqual([0, 0], self.read())
        self.assert_forgotten()

    def assert_forgotten(self):
        looks = [self.read() for _ in range(10)]
        self.assertEqual(1, sum(look is not None for look in looks))

    def test_starved_thread_is_watched_after_it_has_run(self):
        self.state(1, 'R')
        self.read_until_checked()
        self.read()
        self.assertEqual([0, 0], self.read((0, 1), (0, 100 * MS)))
        self.assertEqual([0, 100 * MS], self.read())

    def test_thread_that_keeps_running_is_no_longer_watched(self):
        self.state(1, 'R')
        self.read_until_checked()
        self.read()
        self.read((0, 1), (0, 100 * MS))
        self.read((0, 1))
        looks = [self.read((0, 1)) for _ in range(10)]
        self.assertEqual(1, sum(look is not None for look in looks))

    def test_wait_of_a_thread_that_changes_cpus_is_counted_once(self):
        # At a change of CPU the kernel counts the wait so far; the thread
        # goes on waiting.
        self.state(1, 'R')
        self.read_until_checked()
        for _ in range(4):
            self.read()
        self.assertEqual([0, 150 * MS], self.read((0, 0), (0, 550 * MS)))
        self.assertEqual([0, 100 * MS], self.read())
        self.assertEqual([0, 20 * MS], self.read((0, 1), (0, 120 * MS)))

    def test_counted_wait_is_kept_until_the_kernel_counts_it(self):
        # The thread ran and slept between the reads of schedstat and state.
        self.state(1, 'R')
        self.read_until_checked()
        for _ in range(3):
            self.read()
        self.state(1, 'S')
        self.assertEqual([0, 0], self.read())
        self.assertEqual([0, 50 * MS], self.read((0, 1), (0, 350 * MS)))
        self.assert_forgotten()

    def test_corrected_wait_is_never_negative(self):
        self.state(1, 'R')
        self.read_until_checked()
        for _ in range(5):
            self.read()
        self.assertEqual([7, 0], self.read((1, 1), (7, 3)))

    def test_thread_that_runs_without_kernel_tick_does_not_wait(self):
        # On a nohz_full CPU, no tick updates the thread's counters.
        self.state(0, 'R', utime=3)
        self.read_until_checked()
        for utime in range(4, 9):
            self.state(0, 'R', utime=utime)
            self.assertEqual([0, 0], self.read())

    def test_ended_thread_does_not_wait(self):
        self.state(0, 'R')
        self.read_until_checked()
        (self.tasks[0] / 'stat').write_text('')
        self.assertEqual([0, 0], self.read())
        (self.tasks[0] / 'stat').unlink()
        (self.tasks[1] / 'stat').write_text('rubbish')
        for _ in range(12):
            self.assertIn(self.read(), (None, [0, 0]))


class SchedstatTest(StarvationCase):
    def put(self, vcpu, run, wait, runs):
        (self.tasks[vcpu] / 'schedstat').write_text(f'{run} {wait} {runs}\n')

    def attach(self):
        reader = schedstat.SchedstatProbe(
            probe_base.Host(proc_root=str(self.root))
        ).attach(probe_base.Target('u', 'vm', 7, (1, 2)))
        self.addCleanup(reader.close)
        return reader

    def test_starved_sibling_of_a_running_thread_waits(self):
        self.put(0, 0, 0, 0)
        self.put(1, 5, 5, 5)
        self.state(1, 'R')
        reader = self.attach()
        readings = []
        for number in range(30):
            self.put(0, number * 1000, 0, number)
            readings.append(reader.read())
        # The wait is found within ten reads, and then counted in each.
        waits = [reading.wait_us for reading in readings[12:]]
        self.assertTrue(all(one == 0 and two > 0 for one, two in waits))
        self.assertGreater(readings[-1].latency_us, 0)
        self.assertEqual((1.0, 0.0), readings[-1].run_us)

    def test_starved_vm_waits(self):
        for vcpu in (0, 1):
            self.put(vcpu, 5, 5, 5)
            self.state(vcpu, 'R')
        reader = self.attach()
        readings = [reader.read() for _ in range(30)]
        self.assertTrue(all(min(one.wait_us) > 0 for one in readings[12:]))
