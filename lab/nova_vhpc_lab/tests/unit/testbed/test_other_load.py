# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Tests of how the load of something else on the machine is measured."""

import os
import subprocess
import sys
import time
from pathlib import Path

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import host_load, other_load

TICKS_PER_S = os.sysconf('SC_CLK_TCK')


class OtherLoadTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.proc = Path(self.useFixture(fixtures.TempDir()).path)

    def write(self, idle_s, processes, steal_s=0.0):
        """Write procfs files of two CPUs that are idle alike.

        :param processes: parent and CPU seconds by process ID.
        """
        idle, steal = (round(s * TICKS_PER_S) for s in (idle_s, steal_s))
        line = f'9 9 9 {idle} 0 0 0 {steal} 0 0\n'
        (self.proc / 'stat').write_text(
            f'cpu  {line}cpu0 {line}cpu1 {line}cpu10 {line}intr 1\n'
        )
        for pid, (parent, cpu_s) in processes.items():
            directory = self.proc / str(pid)
            directory.mkdir(exist_ok=True)
            ticks = round(cpu_s * TICKS_PER_S)
            zeros = '0 ' * 9
            (directory / 'stat').write_text(
                f'{pid} (a ) b) S {parent} {zeros}{ticks} 0 0 0 20 0\n'
            )

    def taken(self, before, after, seconds=10.0):
        self.write(*before)
        first = other_load.read((0, 1), 5, self.proc)
        self.write(*after)
        last = other_load.read((0, 1), 5, self.proc)
        counters = [
            (one.idle_s, one.steal_s, one.own_s) for one in (first, last)
        ]
        return other_load.cpus_taken(
            other_load.Counters(0.0, *counters[0]),
            other_load.Counters(seconds, *counters[1]),
            2,
        )

    def test_own_processes_and_their_descendants_are_no_other_load(self):
        processes = {5: (1, 0), 6: (5, 0), 7: (6, 0)}
        after = {5: (1, 2.0), 6: (5, 3.0), 7: (6, 5.0)}
        self.assertAlmostEqual(0.0, self.taken((0.0, processes), (5.0, after)))

    def test_process_of_another_parent_is_other_load(self):
        before = {5: (1, 0), 6: (1, 0)}
        after = {5: (1, 10.0), 6: (1, 4.0)}
        self.assertAlmostEqual(0.4, self.taken((0.0, before), (3.0, after)))

    def test_stolen_time_is_other_load(self):
        processes = {5: (1, 0)}
        after = {5: (1, 14.0)}
        self.assertAlmostEqual(
            0.6, self.taken((0.0, processes), (3.0, after, 3.0))
        )

    def test_inaccurate_counters_give_no_negative_load(self):
        after = {5: (1, 11.0)}
        self.assertEqual(0.0, self.taken((0.0, {5: (1, 0)}), (5.0, after)))

    def test_load_of_the_benchmark_itself_is_counted_as_its_own(self):
        cpu = min(os.sched_getaffinity(0))
        before = other_load.read((cpu,), os.getpid())
        with host_load.busy(cpu):
            deadline = time.monotonic() + 60
            own_s = 0.0
            while own_s < 0.2 and time.monotonic() < deadline:
                time.sleep(0.05)
                now = other_load.read((cpu,), os.getpid())
                own_s = now.own_s - before.own_s
        self.assertGreaterEqual(own_s, 0.2)

    def test_ended_child_keeps_counting_as_own(self):
        program = 'import time\nwhile time.process_time() < 0.3: pass'
        before = other_load.read((0,), os.getpid())
        subprocess.run((sys.executable, '-c', program), check=True)
        after = other_load.read((0,), os.getpid())
        self.assertGreater(after.own_s - before.own_s, 0.2)


class OtherLoadWatchTest(base.TestCase):
    def test_greatest_load_since_the_last_call_is_returned(self):
        readings = [
            other_load.Counters(when_s, 0.0, 0.0, own_s)
            for when_s, own_s in ((0, 0), (1, 1.9), (1, 2), (2, 3), (2, 3))
        ]
        readings.append(other_load.Counters(3.0, 0.0, 0.0, 5.0))
        self.useFixture(
            fixtures.MockPatchObject(other_load, 'read', side_effect=readings)
        )
        watch = other_load.OtherLoadWatch((0, 1))
        for _ in range(2):
            with watch.watch():
                pass
        self.assertAlmostEqual(1.0, watch.take())
        with watch.watch():
            pass
        self.assertEqual(0.0, watch.take())
