# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Every probe reads fake /proc, /sys and cgroup files."""

import os
import pathlib
import tempfile
import threading
import time

from oslotest import base

from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import (
    block,
    cpu_stat,
    sampler,
    schedstat,
    tap,
)

V1_STAT = 'nr_periods 10\nnr_throttled 2\nthrottled_time {}\n'
V2_STAT = 'usage_usec 5\nnr_periods 1\nnr_throttled 1\nthrottled_usec {}\n'


class ProbeCase(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.host = probe_base.Host(
            proc_root=str(self.root / 'proc'),
            sys_root=str(self.root / 'sys'),
            cgroup_root=str(self.root / 'cgroup'),
        )

    def put(self, path: str, text: str) -> pathlib.Path:
        """Write a file in place, because readers keep it open."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def target(self, **changes: object) -> probe_base.Target:
        return probe_base.Target('u', 'vm', 7, **changes)


class TestKeptFiles(ProbeCase):
    def test_files_are_closed_when_their_holder_is_deleted(self) -> None:
        paths = [self.put(name, 'x') for name in 'ab']
        kept = probe_base.KeptFiles(paths, 8)
        files = kept._descriptors[:]
        self.assertEqual([b'x', b'x'], kept.read())
        del kept
        for file in files:
            self.assertRaises(OSError, os.fstat, file)


class TestSchedstat(ProbeCase):
    def stat(self, tid: int, run: int, wait: int, runs: int) -> None:
        self.put(f'proc/7/task/{tid}/schedstat', f'{run} {wait} {runs}\n')

    def test_reading_is_the_difference_in_microseconds(self) -> None:
        self.stat(1, 0, 0, 0)
        self.stat(2, 0, 0, 0)
        reader = schedstat.SchedstatProbe(self.host).attach(
            self.target(tids=(1, 2))
        )
        self.assertIsNone(reader.read())
        self.stat(1, 5_000, 1_000, 2)
        self.stat(2, 7_000, 3_000, 4)
        reading = reader.read()
        self.assertEqual(2.0, reading.latency_us)
        self.assertEqual((5.0, 7.0), reading.run_us)
        self.assertEqual((1.0, 3.0), reading.wait_us)
        self.assertEqual((2, 4), reading.runs)
        self.assertEqual(0.0, reader.read().latency_us)
        self.assertEqual((0, 0), reader.read().runs)
        self.stat(1, 6_000, 1_000, 3)
        self.assertEqual((1.0, 0.0), reader.read().run_us)
        reader.close()

    def test_counters_are_those_of_the_last_read(self) -> None:
        self.stat(1, 5, 6, 7)
        self.stat(2, 1, 2, 3)
        reader = schedstat.SchedstatProbe(self.host).attach(
            self.target(tids=(1, 2))
        )
        self.assertEqual([], reader.counters())
        reader.read()
        self.assertEqual([(5, 6, 7), (1, 2, 3)], reader.counters())
        self.stat(2, 10, 20, 30)
        reader.read()
        self.assertEqual([(5, 6, 7), (10, 20, 30)], reader.counters())

    def test_invalid_content_is_no_reading(self) -> None:
        self.stat(1, 1, 1, 1)
        reader = schedstat.SchedstatProbe(self.host).attach(
            self.target(tids=(1,))
        )
        reader.read()
        self.put('proc/7/task/1/schedstat', 'x')
        self.assertIsNone(reader.read())
        self.stat(1, 2, 2, 2)
        self.assertIsNone(reader.read())

    def test_invalid_content_of_one_thread_is_no_reading_of_all(
        self,
    ) -> None:
        for garbage in ('', 'x y z', '1 2', '1 2 3 4'):
            for tid in (1, 2):
                self.stat(tid, 1_000, 1_000, 1)
            reader = schedstat.SchedstatProbe(self.host).attach(
                self.target(tids=(1, 2))
            )
            reader.read()
            self.stat(1, 2_000, 1_000, 2)
            self.put('proc/7/task/2/schedstat', garbage)
            self.assertIsNone(reader.read())
            self.assertIsNone(reader.read())
            self.stat(2, 5_000, 1_000, 1)
            self.assertIsNone(reader.read())
            self.stat(2, 7_000, 1_000, 2)
            # The difference from the last valid content.
            self.assertEqual((0.0, 2.0), reader.read().run_us)
            reader.close()

    def test_ended_thread_has_no_reading(self) -> None:
        gate = threading.Event()
        thread = threading.Thread(target=gate.wait)
        thread.start()
        reader = schedstat.SchedstatProbe(probe_base.Host()).attach(
            probe_base.Target('u', 'x', os.getpid(), (thread.native_id,))
        )
        reader.read()
        self.assertIsNotNone(reader.read())
        gate.set()
        thread.join()
        # The kernel lets go of a thread a moment after it was joined.
        task = pathlib.Path(f'/proc/self/task/{thread.native_id}')
        while task.exists():
            time.sleep(0.001)
        self.assertIsNone(reader.read())
        reader.close()

    def test_check_names_missing_or_unused_schedstat(self) -> None:
        probe = schedstat.SchedstatProbe(self.host)
        self.assertIn('schedstat', probe.check())
        self.put('proc/self/schedstat', '0 0 0\n')
        self.assertIn('stays zero', probe.check())
        self.put('proc/self/schedstat', '1 2 3\n')
        self.assertIsNone(probe.check())
        self.assertIsNone(probe.attach(self.target()))
        self.assertIsNone(probe.attach(self.target(tids=(99,))))


class TestCpuStat(ProbeCase):
    def attach(self, template: str, first: int) -> cpu_stat.CpuStatReader:
        self.groups = tuple(
            self.put(f'cgroup/g{n}/cpu.stat', template.format(first)).parent
            for n in range(2)
        )
        return cpu_stat.CpuStatProbe(self.host).attach(
            self.target(vcpu_groups=self.groups)
        )

    def test_v1_counts_nanoseconds(self) -> None:
        reader = self.attach(V1_STAT, 1_000_000)
        self.assertIsNone(reader.read())
        self.put('cgroup/g0/cpu.stat', V1_STAT.format(5_000_000))
        reading = reader.read()
        self.assertEqual(2_000.0, reading.latency_us)
        self.assertEqual((4_000.0, 0.0), reading.wait_us)

    def test_v2_counts_microseconds(self) -> None:
        reader = self.attach(V2_STAT, 100)
        self.assertIsNone(reader.read())
        self.put('cgroup/g1/cpu.stat', V2_STAT.format(300))
        self.assertEqual(100.0, reader.read().latency_us)

    def test_check_names_a_missing_cpu_controller(self) -> None:
        probe = cpu_stat.CpuStatProbe(self.host)
        self.assertIn('no cpu controller', probe.check())
        self.put('cgroup/cgroup.controllers', 'io cpu\n')
        self.assertIsNone(probe.check())

    def test_guest_without_control_groups_has_no_reader(self) -> None:
        probe = cpu_stat.CpuStatProbe(self.host)
        self.assertIsNone(probe.attach(self.target()))


class TestDamagedCounters(ProbeCase):
    def test_number_that_no_kernel_writes_is_no_counter(self) -> None:
        for digits in (400, 5000):
            number = '9' * digits
            self.put('group/io.stat', f'8:0 rios={number} wios=4\n')
            self.put('group/cpu.stat', V2_STAT.format(number))
            group = self.root / 'group'
            target = self.target(vcpu_groups=(group,), block_group=group)
            requests = block.BlockProbe(self.host).attach(target)
            throttled = cpu_stat.CpuStatProbe(self.host).attach(target)
            self.assertIsNone(requests.read())
            self.put('group/io.stat', f'8:0 rios={number} wios=6\n')
            self.assertEqual(2.0, requests.read())
            self.assertIsNone(throttled.read())
            self.assertIsNone(throttled.read())
            requests.close()
            throttled.close()


class TestIo(ProbeCase):
    def test_events_are_counted_from_tap_statistics(self) -> None:
        name = 'sys/class/net/tap1/statistics/{}_packets'
        self.put(name.format('rx'), '5\n')
        self.put(name.format('tx'), '6\n')
        probe = tap.TapProbe(self.host)
        self.assertIsNone(probe.check())
        reader = probe.attach(self.target(taps=('tap1', 'elsewhere')))
        self.assertIsNone(reader.read())
        self.assertEqual(0, reader.read())
        self.put(name.format('tx'), '16\n')
        self.assertEqual(10, reader.read())
        self.assertIsNone(probe.attach(self.target(taps=('elsewhere',))))

    def test_block_events_are_read_from_cgroup_v1(self) -> None:
        text = (
            '8:0 Read {}\n8:0 Write 4\n8:0 Sync 9\n8:0 Async 1\n'
            '8:0 Total 99\nTotal 99\n'
        )
        file = self.put('g/blkio.throttle.io_serviced', text.format(3))
        reader = block.BlockProbe(self.host).attach(
            self.target(block_group=file.parent)
        )
        self.assertIsNone(reader.read())
        file.write_text(text.format(13))
        self.assertEqual(10, reader.read())

    def test_block_events_are_read_from_cgroup_v2(self) -> None:
        text = '8:0 rbytes=1 wbytes=2 rios={} wios=4 dbytes=0 dios=0\n'
        file = self.put('g/io.stat', text.format(3))
        reader = block.BlockProbe(self.host).attach(
            self.target(block_group=file.parent)
        )
        self.assertIsNone(reader.read())
        file.write_text(text.format(8))
        self.assertEqual(5, reader.read())

    def test_block_events_are_read_from_the_process(self) -> None:
        text = (
            'rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: {}\n'
            'write_bytes: 4096\ncancelled_write_bytes: 0\n'
        )
        file = self.put('proc/7/io', text.format(0))
        reader = block.BlockProbe(self.host).attach(self.target())
        self.assertIsNone(reader.read())
        file.write_text(text.format(8192))
        self.assertEqual(2, reader.read())


class Fake:
    """A probe that covers the given parts of the latency."""

    def __init__(self, covers: set[str], reason: str | None = None) -> None:
        self.covers = frozenset(covers)
        self.reason = reason

    def check(self) -> str | None:
        return self.reason


class TestChoice(base.BaseTestCase):
    def chosen(self, **probes: Fake) -> list[str]:
        return [
            name for name, _ in sampler.Sampler(list(probes.items()), []).sync
        ]

    def test_probe_covered_by_a_preferred_one_is_not_used(self) -> None:
        wait, throttle, spin = probe_base.WAIT, probe_base.THROTTLE, 'spin'
        full = {wait, throttle}
        self.assertEqual(
            ['a', 'c'],
            self.chosen(
                a=Fake(full), b=Fake({throttle}), c=Fake({spin}), d=Fake(full)
            ),
        )

    def test_next_probe_is_used_if_one_cannot_serve(self) -> None:
        wait, throttle = probe_base.WAIT, probe_base.THROTTLE
        full = {wait, throttle}
        self.assertEqual(
            ['b'], self.chosen(a=Fake(full, 'no'), b=Fake({throttle}))
        )
        self.assertEqual(
            ['d'],
            self.chosen(a=Fake(full, 'no'), b=Fake({throttle}), d=Fake(full)),
        )
