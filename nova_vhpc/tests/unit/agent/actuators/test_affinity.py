# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""vCPUs are placed by the affinity of their threads."""

import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

import fixtures

from nova_vhpc.agent.actuators import affinity
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent.guests import test_guest

TWO_THREADS = """
import sys, threading
for _ in range(2):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(*(thread.native_id for thread in threading.enumerate()[1:]), flush=True)
sys.stdin.read()
"""

CPUS = sorted(os.sched_getaffinity(0))


@unittest.skipIf(len(CPUS) < 2, 'the tests may use one CPU only')
class AffinityTestCase(base.TestCase):
    """Has a process with two threads, which stand for vCPUs."""

    def setUp(self):
        super().setUp()
        self.process = subprocess.Popen(
            [sys.executable, '-c', TWO_THREADS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end)
        line = self.process.stdout.readline()
        self.tids = tuple(int(tid) for tid in line.split())
        self.first, self.last = CPUS[0], CPUS[-1]

    def end(self):
        self.process.communicate()

    def in_force(self):
        return [os.sched_getaffinity(tid) for tid in self.tids]


class TestPlace(AffinityTestCase):
    def test_each_thread_runs_on_its_cpu_only(self):
        affinity.place(self.tids, (self.last, self.first))
        self.assertEqual([{self.last}, {self.first}], self.in_force())

    def test_other_threads_stay_where_they_are(self):
        affinity.place(self.tids, (self.last, self.first))
        self.assertEqual(set(CPUS), os.sched_getaffinity(self.process.pid))

    def test_thread_that_has_ended_is_no_error(self):
        self.end()
        affinity.place(self.tids, (self.first, self.last))
        affinity.release(self.tids, [frozenset(CPUS)] * 2)

    def test_cpu_that_is_not_there_raises(self):
        most = os.cpu_count() + 1_000
        self.assertRaises(OSError, affinity.place, self.tids, (most, most))
        self.assertEqual([set(CPUS)] * 2, self.in_force())

    def test_wrong_number_of_cpus_raises(self):
        self.assertRaises(ValueError, affinity.place, self.tids, (self.first,))


class TestRelease(AffinityTestCase):
    def setUp(self):
        super().setUp()
        affinity.place(self.tids, (self.first, self.first))

    def test_threads_may_run_where_pins_allow(self):
        pins = [frozenset({self.last}), frozenset(CPUS)]
        affinity.release(self.tids, pins)
        self.assertEqual([{self.last}, set(CPUS)], self.in_force())

    def test_cpus_that_are_off_are_left_out(self):
        pins = [frozenset({self.last, os.cpu_count() + 5})] * 2
        affinity.release(self.tids, pins)
        self.assertEqual([{self.last}] * 2, self.in_force())

    def test_thread_without_pins_stays_where_it_is(self):
        affinity.release(self.tids, [frozenset(), frozenset(CPUS)])
        self.assertEqual([{self.first}, set(CPUS)], self.in_force())


class TestReleaseGuest(AffinityTestCase):
    def test_vcpu_gets_the_pin_of_its_number(self):
        # vCPU 1 is offline: the second thread is that of vCPU 2.
        guest = test_guest.make(tids=self.tids)
        info = mock.Mock(wraps=guest.info)
        info.online_vcpus = (0, 2)
        guest.info = info
        first, last = frozenset({self.first}), frozenset({self.last})
        guest.expected = cputune.Cputune({}, (first, first, last), None, 8)
        affinity.release_guest(guest)
        self.assertEqual([first, last], self.in_force())


class TestReleaseDomain(AffinityTestCase):
    def release(self, vcpus, pins):
        processes = mock.Mock(spec=qemu_process.Processes)
        processes.vcpu_threads.return_value = self.tids
        affinity.place(self.tids, (self.first, self.first))
        affinity.release_domain(
            processes,
            self.process.pid,
            vcpus,
            cputune.Cputune({}, tuple(pins), None, 8),
        )
        processes.vcpu_threads.assert_called_with(self.process.pid, vcpus)

    def test_threads_may_run_where_pins_allow(self):
        first, last = frozenset({self.first}), frozenset({self.last})
        self.release((0, 2), [first, first, last])
        self.assertEqual([first, last], self.in_force())

    def test_threads_are_those_of_the_process(self):
        processes = qemu_process.Processes(str(pathlib.Path('/nowhere')))
        now = cputune.Cputune({}, (frozenset(CPUS),) * 2, None, 8)
        affinity.place(self.tids, (self.first, self.first))
        # No thread is found: nothing is done, and nothing raised.
        affinity.release_domain(processes, self.process.pid, (0, 1), now)
        self.assertEqual([{self.first}] * 2, self.in_force())


class TestIsAllowed(base.TestCase):
    def status(self, text):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'status')
        path.write_text(text)
        return path

    def test_process_with_cap_sys_nice_may_place_threads(self):
        self.assertTrue(
            affinity.is_allowed(self.status('CapEff:\t0000000000800000\n'))
        )

    def test_process_without_cap_sys_nice_may_not(self):
        self.assertFalse(
            affinity.is_allowed(self.status('CapEff:\t000001ffff7fffff\n'))
        )

    def test_unreadable_status_allows_nothing(self):
        self.assertFalse(affinity.is_allowed(pathlib.Path('/proc/none')))
