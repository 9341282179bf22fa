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

"""Tests of :mod:`nova_vhpc.agent.daemon.vm_counters`."""

import pathlib

import fixtures
from oslotest import base

from nova_vhpc.agent.daemon import vm_counters
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.probes import base as probe_base
from nova_vhpc.agent.probes import sampler, schedstat
from nova_vhpc.tests.unit.agent.guests import test_guest


class SteadySumTest(base.BaseTestCase):
    def check(self, *steps: tuple[dict, float]) -> None:
        total = vm_counters.SteadySum()
        for counters, expected in steps:
            total.update(counters)
            self.assertEqual(expected, total.total, counters)

    def test_sum_follows_its_counters(self) -> None:
        self.check(({1: 10, 2: 5}, 15), ({1: 11, 2: 7}, 18))

    def test_sum_keeps_what_a_counter_that_is_gone_has_counted(self) -> None:
        self.check(({1: 10, 2: 5}, 15), ({1: 11}, 16), ({1: 12, 3: 1}, 18))

    def test_sum_stays_if_a_counter_begins_again(self) -> None:
        self.check(({1: 10}, 10), ({1: 2}, 10), ({1: 5}, 13), ({1: 6}, 14))


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
        for tap in ('tap1', 'tap2'):
            self.put(f'net/{tap}/statistics/rx_packets', '3\n')
            self.put(f'net/{tap}/statistics/tx_packets', '4\n')
        totals = self.read('tap2', 'gone')
        self.assertEqual((4, 3), (totals.received, totals.sent))
