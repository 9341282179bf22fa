# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.metrics.vm_counters`."""

import pathlib

import fixtures
from oslotest import base

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.metrics import vm_counters
from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import sampler, schedstat
from nova_vhpc.tests.unit.agent.guests import test_guest


class RunSumTest(base.BaseTestCase):
    def check(self, *steps: tuple[dict, float]) -> None:
        total = vm_counters.RunSum()
        for counters, expected in steps:
            total.update(counters)
            self.assertEqual(expected, total.total, counters)

    def test_sum_follows_its_counters(self) -> None:
        self.check(({1: 10, 2: 5}, 15), ({1: 11, 2: 7}, 18))

    def test_sum_keeps_what_a_counter_that_is_gone_has_counted(self) -> None:
        self.check(({1: 10, 2: 5}, 15), ({1: 11}, 16), ({1: 12, 3: 1}, 18))

    def test_counter_that_is_there_again_counts_once(self) -> None:
        self.check(({1: 10, 2: 5}, 15), ({1: 11}, 16), ({1: 12, 2: 6}, 18))

    def test_sum_waits_for_a_counter_that_fell(self) -> None:
        """A wait may be counted twice while the kernel takes it over."""
        self.check(({1: 10}, 10), ({1: 8}, 10), ({1: 9}, 10), ({1: 13}, 13))

    def test_sum_begins_again_with_the_next_run_of_the_vm(self) -> None:
        """An agent that is restarted then goes on from the same value."""
        self.check(({1: 1000, 2: 1000}, 2000), ({3: 10, 4: 10}, 20))
        self.check(({3: 12, 4: 10}, 22))


class IncreaseTest(base.BaseTestCase):
    def check(self, *steps: tuple[dict, float]) -> None:
        increase = vm_counters.Increase()
        for counters, expected in steps:
            increase.update(counters)
            self.assertEqual(expected, increase.total, counters)

    def test_what_a_counter_had_before_it_is_seen_does_not_count(self) -> None:
        self.check(
            ({'a': 1000}, 0), ({'a': 1003, 'b': 500}, 3), ({'b': 501}, 4)
        )

    def test_what_a_counter_had_while_it_was_gone_does_not_count(self) -> None:
        self.check(
            ({'a': 1000, 'b': 1}, 0),
            ({'b': 1}, 0),
            ({'a': 2000, 'b': 1}, 0),
            ({}, 0),
            ({'a': 3000}, 0),
            ({'a': 3001}, 1),
        )

    def test_counter_that_began_again_counts_from_0(self) -> None:
        self.check(({'a': 1000}, 0), ({'a': 5}, 5), ({'a': 6}, 6))


class VmCountersTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.counters = vm_counters.VmCounters(self.root / 'net')
        self.guest = test_guest.make()

    def put(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def attach(self, **changes: object) -> None:
        target = probe_base.Target('u', 'vm', 7, **changes)
        probe = schedstat.SchedstatProbe(
            probe_base.Host(proc_root=str(self.root))
        )
        reader = probe.attach(target)
        self.guest.reader = sampler.VmReader(
            [] if reader is None else [reader], [], target=target
        )
        self.guest.reader.read(1_000_000, 100_000)

    def read(self, *devices: str) -> vm_counters.Totals:
        return self.counters.read(self.guest, devices)

    def test_nothing_is_known_without_probes_quota_and_uplinks(self) -> None:
        self.assertEqual(vm_counters.Totals(), self.read())

    def test_times_and_switches_of_all_vcpus_are_summed(self) -> None:
        self.put('7/task/1/schedstat', '1000000000 500000000 3')
        self.put('7/task/2/schedstat', '2000000000 0 4')
        self.attach(tids=(1, 2))
        totals = self.read()
        self.assertEqual(
            (3.0, 0.5, 7), (totals.run_s, totals.delay_s, totals.switches)
        )

    def test_times_never_fall_when_a_vcpu_is_unplugged(self) -> None:
        self.put('7/task/1/schedstat', '1000000000 0 3')
        self.put('7/task/2/schedstat', '2000000000 0 4')
        self.attach(tids=(1, 2))
        self.read()
        self.attach(tids=(1,))
        self.assertEqual(3.0, self.read().run_s)

    def test_throttled_time_is_of_guests_with_a_quota(self) -> None:
        for vcpu, throttled in enumerate((1_000_000, 500_000)):
            self.put(f'vcpu{vcpu}/cpu.stat', f'throttled_usec {throttled}\n')
        self.attach(
            vcpu_groups=tuple(self.root / f'vcpu{n}' for n in range(2))
        )
        self.assertIsNone(self.read().throttled_s)
        self.guest.note_written({cputune.QUOTA: 50_000})
        self.assertEqual(1.5, self.read().throttled_s)
        self.guest.note_written({cputune.QUOTA: -1})
        self.assertEqual(1.5, self.read().throttled_s)

    def test_packets_are_those_of_the_guest_over_its_claims(self) -> None:
        for packets in (100, 200):
            for tap in ('tap1', 'tap2'):
                self.put(f'net/{tap}/statistics/rx_packets', f'{packets}\n')
                self.put(f'net/{tap}/statistics/tx_packets', '4\n')
            totals = self.read('tap2', 'gone')
        self.assertEqual((0, 100), (totals.received, totals.sent))

    def test_packets_do_not_count_while_the_uplink_is_another(self) -> None:
        """A NIC whose binding is lost for a while uses the default uplink."""
        for packets, devices, sent in (
            (100, ('tap1',), 0),
            (110, ('tap1',), 10),
            (5000, (), 10),
            (9000, ('tap1',), 10),
            (9001, ('tap1',), 11),
        ):
            for file in ('rx_packets', 'tx_packets'):
                self.put(f'net/tap1/statistics/{file}', f'{packets}\n')
            self.assertEqual(sent, self.read(*devices).sent, packets)
