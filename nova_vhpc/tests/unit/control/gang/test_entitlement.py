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

"""What each CPU-bound VM needs of the gangs' CPUs."""

import collections

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import fair_share
from nova_vhpc.control.gang import entitlement
from nova_vhpc.tests import base

SHARES = 1_024


def cpu_bound_vms(*vcpus, cpus=8, gangs=4, reaches=()):
    """VMs of the same weight beside gangs of that weight, as wide as that.

    :param vcpus: of each VM.
    :param gangs: how many VMs there are besides.
    """
    reaches = tuple(reaches) + (None,) * (len(vcpus) - len(reaches))
    claims = [
        fair_share.Demand(SHARES, float(one), reach)
        for one, reach in zip(vcpus, reaches, strict=True)
    ]

    def capacity_of(reach):
        return cpus if reach is None else len(reach)

    count = collections.Counter(claims)
    pause = fair_share.divide(count, capacity_of)
    count[fair_share.Demand(SHARES, float(cpus))] += gangs
    fair = fair_share.divide(count, capacity_of)
    return [
        entitlement.CpuBoundVm(
            f'h{n}',
            int(one.cpus),
            one,
            fair[one],
            pause[one],
            SHARES / pause[one],
        )
        for n, one in enumerate(claims)
    ]


def clear(cpus):
    """So many CPUs have no gang, and all can be there."""
    return lambda reach: float(cpus)


class TestShortfalls(base.TestCase):
    def pauses(self, found, cpus=0):
        return [
            need.pause_part
            for need in entitlement.shortfalls(found, clear(cpus))
        ]

    def test_vm_of_one_vcpu_needs_longer_pauses_than_a_wide_one(self):
        # What is fair is a CPU for the one and 1.4 for the other.
        one, many = self.pauses(cpu_bound_vms(1, 8))
        self.assertEqual(entitlement.MAX_PART, one)
        self.assertAlmostEqual(1.4 / 7, many)

    def test_cpu_without_gangs_is_shared_with_all_vms(self):
        one, _ = self.pauses(cpu_bound_vms(1, 8), 1)
        self.assertGreater(one, 0.9)

    def test_enough_cpus_without_gangs_leave_no_shortfall(self):
        (need,) = entitlement.shortfalls(cpu_bound_vms(1, 8), clear(2))
        self.assertLess(need.pause_part, 0.1)
        self.assertEqual(
            (), entitlement.shortfalls(cpu_bound_vms(1, 8), clear(3))
        )

    def test_vcpus_with_a_cpu_each_have_no_shortfall(self):
        self.assertEqual(
            (), entitlement.shortfalls(cpu_bound_vms(1, 1, gangs=2), clear(2))
        )

    def test_vcpus_without_own_cpu_share_cpus_with_gangs(self):
        # Three of four have one; 2.1 of them are fair.
        (need,) = entitlement.shortfalls(cpu_bound_vms(4, gangs=3), clear(1))
        self.assertAlmostEqual(2 / 4, need.cpu_part)
        self.assertAlmostEqual(need.weight, need.max_gang_weight)

    @hypothesis.given(
        strategies.lists(strategies.integers(1, 8), min_size=1, max_size=6),
        strategies.integers(0, 7),
        strategies.integers(1, 6),
    )
    def test_every_vm_gets_nine_tenths_of_its_fair_part(
        self, vcpus, cpus, gangs
    ):
        found = cpu_bound_vms(*vcpus, gangs=gangs)
        pauses = max(self.pauses(found, cpus), default=0.0)
        served = fair_share.divide(
            collections.Counter(one.demand for one in found), clear(cpus)
        )
        for one in found:
            got = pauses * one.pause_cpus + (1 - pauses) * served[one.demand]
            self.assertGreater(got, 0.9 * one.fair_cpus)


class TestContestedCount(base.TestCase):
    def test_vcpus_beyond_free_cpus_contest_gangs(self):
        for cpus, contested in ((0, 9), (3, 6), (9, 0), (12, 0)):
            self.assertEqual(
                contested,
                entitlement.contested_count(cpu_bound_vms(1, 8), clear(cpus)),
            )

    def test_free_cpus_outside_allowed_ones_do_not_count(self):
        here = frozenset(range(4))
        self.assertEqual(
            4,
            entitlement.contested_count(
                cpu_bound_vms(4, 1, reaches=[here]),
                lambda reach: 4.0 if reach is None else 0.0,
            ),
        )


class TestPausePart(base.TestCase):
    def claim(self, *needs):
        return entitlement.Entitlement(8, needs)

    def test_greatest_shortfall_decides(self):
        claim = self.claim(
            entitlement.Shortfall(SHARES, 0.2, 0.2),
            entitlement.Shortfall(128, 0.7, 0.7),
        )
        self.assertAlmostEqual(0.7, claim.pause_part([(1e9, 1.0)], 0.0), 3)

    def test_part_received_in_windows_shortens_pauses(self):
        claim = self.claim(entitlement.Shortfall(SHARES, 0.6, 0.6))
        self.assertAlmostEqual(0.2, claim.pause_part([(SHARES, 1.0)], 0.0))
        # In half of the windows.
        self.assertAlmostEqual(
            (0.6 - 0.25) / 0.75,
            claim.pause_part([(SHARES, 0.5), (1e12, 0.5)], 0.0),
        )

    def test_weight_of_gangs_in_pauses_lengthens_them(self):
        claim = self.claim(entitlement.Shortfall(SHARES, 0.6, 0.6))
        self.assertAlmostEqual(
            0.75, claim.pause_part([(1e12, 1.0)], SHARES / 4), 6
        )

    def test_no_shortfall_needs_no_pause(self):
        self.assertEqual(0.0, self.claim().pause_part([(SHARES, 1.0)], 0.0))
