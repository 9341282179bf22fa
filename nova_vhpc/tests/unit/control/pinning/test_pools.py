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

"""The I/O pool's place and size."""

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control import config as control_config
from nova_vhpc.control.pinning import pools
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.pinning import test_spread

SIXTEEN = test_spread.host(sockets=2, caches=1, cores=8)


def demand(vcpus, widths=None):
    """Of VMs with so many vCPUs; parallel ones unless widths are given."""
    wanted = pools.Demand()
    wanted.vcpus = list(vcpus)
    wanted.widths = list(vcpus if widths is None else widths)
    return wanted


class Sizer(pools.PoolSizer):
    def of(self, cpus, io, computing):
        return self.divide(cpus, demand(io), demand(computing))


def sizer(**kwargs):
    kwargs.setdefault('pool_shrink_periods', 10)
    return Sizer(control_config.ControlConfig(**kwargs))


class SizeTest(base.TestCase):
    def test_half_of_the_demand_is_the_last_socket(self):
        divided = sizer().of(SIXTEEN, [4, 4], [4, 4])
        self.assertEqual(frozenset(range(8, 16)), divided.io)
        self.assertEqual(frozenset(range(8)), divided.computing)

    def test_near_a_caches_edge_it_is_rounded_to_it(self):
        # By vCPUs it would be 9 CPUs, and 7.
        for io, computing in (([5, 5], [4, 4]), ([4, 3], [4, 5])):
            divided = sizer().of(SIXTEEN, io, computing)
            self.assertEqual(frozenset(range(8, 16)), divided.io)

    def test_an_eighth_of_the_host_is_near(self):
        # By vCPUs it would be 10 CPUs, and 11.
        for io, size in (([5, 5], 8), ([6, 5], 11)):
            divided = sizer().of(SIXTEEN, io, [3, 3] if size == 8 else [3, 2])
            self.assertEqual(size, len(divided.io))

    def test_part_of_a_cpu_is_a_cpu(self):
        # 1.8 by vCPUs.
        self.assertEqual(2, len(sizer().of(SIXTEEN, [1] * 3, [8] * 3).io))

    def test_far_from_it_a_socket_is_not_taken_whole(self):
        divided = sizer().of(SIXTEEN, [2], [8, 8, 8])
        self.assertEqual(frozenset((14, 15)), divided.io)

    def test_siblings_have_a_cpu_each_as_far_as_half_the_host(self):
        divided = sizer().of(SIXTEEN, [8], [8, 8, 8, 8, 8])
        self.assertEqual(8, len(divided.io))
        divided = sizer().of(SIXTEEN, [8, 8, 8, 8, 8], [8])
        self.assertEqual(8, len(divided.computing))

    def test_no_more_cpus_than_vcpus(self):
        self.assertEqual(2, len(sizer().of(SIXTEEN, [2], []).io))

    def test_one_cpu_no_pools_and_says_so(self):
        for cpus in ((), SIXTEEN[:1]):
            subject = sizer()
            self.assertIsNone(subject.of(cpus, [2], [2]))
            self.assertIn('no pools', subject.diagnostic)

    def test_neither_pool_is_empty_when_most_cpus_go(self):
        subject = sizer()
        subject.of(SIXTEEN, [12], [2])
        divided = subject.of(SIXTEEN[:4], [3], [])
        self.assertEqual(3, len(divided.io))
        self.assertEqual(1, len(divided.computing))

    @given(
        st.integers(2, 16),
        st.lists(st.integers(1, 64), max_size=20),
        st.lists(st.integers(1, 64), max_size=20),
    )
    def test_neither_pool_is_ever_empty(self, count, io_vcpus, others):
        cpus = SIXTEEN[:count]
        divided = sizer().of(cpus, io_vcpus, others)
        self.assertTrue(divided.io)
        self.assertTrue(divided.computing)
        self.assertFalse(divided.io & divided.computing)
        self.assertEqual(
            {cpu.id for cpu in cpus}, divided.io | divided.computing
        )


class WidthTest(base.TestCase):
    """No parallel VM in a pool that has fewer CPUs than it has vCPUs."""

    def test_as_wide_as_the_widest_in_it(self):
        # By vCPUs 2 CPUs would do, and half of the host is 8.
        subject = sizer()
        divided = subject.of(SIXTEEN, [12], [2] * 40)
        self.assertEqual(12, len(divided.io))
        self.assertGreaterEqual(subject.max_width, 12)

    def test_two_that_just_fit_beside_each_other(self):
        for count, io, computing in ((16, [12], [4]), (3, [2], [])):
            subject = sizer()
            divided = subject.of(SIXTEEN[:count], io, computing)
            self.assertEqual(io, [len(divided.io)])
            self.assertEqual(io, [subject.max_width])

    def test_a_pool_that_was_wider_gives_way_at_once(self):
        subject = sizer()
        subject.of(SIXTEEN, [12], [2])
        self.assertEqual(10, len(subject.of(SIXTEEN, [2], [10]).computing))

    def test_not_at_the_expense_of_the_widest_outside(self):
        subject = sizer()
        divided = subject.of(SIXTEEN, [10, 2, 8], [12])
        # Neither 10 nor 8 are left beside 12, but 2 are.
        self.assertEqual(4, subject.max_width)
        self.assertEqual(2, len(divided.io))
        self.assertEqual(4, len(sizer().of(SIXTEEN, [10, 4], [12]).io))

    def test_two_cpus_and_a_vm_with_two_vcpus(self):
        subject = sizer()
        divided = subject.of(SIXTEEN[:2], [2], [])
        self.assertEqual(0, subject.max_width)
        self.assertEqual(1, len(divided.io))
        self.assertTrue(divided.lent)

    def test_a_vm_as_wide_as_the_host_gets_it_whole_at_once(self):
        subject = sizer()
        self.assertFalse(subject.of(SIXTEEN, [4], [4]).lent)
        self.assertTrue(subject.of(SIXTEEN, [4], [4, 16]).lent)

    def test_other_vms_may_share_cpus(self):
        subject = sizer()
        divided = subject.divide(
            SIXTEEN, demand([12], [1]), demand([2] * 40, [1] * 40)
        )
        self.assertEqual(8, len(divided.io))
        self.assertGreaterEqual(subject.max_width, 1)

    def test_other_vms_give_way_to_siblings(self):
        divided = sizer().divide(SIXTEEN, demand([12]), demand([8], [1]))
        self.assertEqual(12, len(divided.io))

    def test_other_vms_are_left_cpus_as_far_as_half_the_host(self):
        # By vCPUs the computing pool would be 2 CPUs.
        divided = sizer().divide(
            SIXTEEN, demand([8] * 5, [1] * 5), demand([8], [1])
        )
        self.assertEqual(8, len(divided.computing))

    def test_a_configured_pool_keeps_its_size(self):
        subject = sizer(io_pool_cpus=frozenset((1, 2)))
        divided = subject.of(SIXTEEN, [4], [])
        self.assertEqual(frozenset((1, 2)), divided.io)
        self.assertEqual(2, subject.max_width)

    @given(
        st.integers(2, 16),
        st.lists(st.integers(1, 16), max_size=12),
        st.lists(st.integers(1, 16), max_size=12),
        st.lists(st.tuples(st.integers(1, 16), st.booleans()), max_size=4),
    )
    def test_siblings_never_share_for_the_pools_sake(
        self, count, io_vcpus, others, earlier
    ):
        cpus = SIXTEEN[:count]
        subject = sizer()
        for vcpus, io in earlier:
            # Whatever the pools have been, before.
            subject.of(cpus, [vcpus] * io, [vcpus] * (not io))
        divided = subject.of(cpus, io_vcpus, others)
        inside = [one for one in io_vcpus if one <= subject.max_width]
        outside = [one for one in io_vcpus if one > subject.max_width] + others
        self.assertGreaterEqual(len(divided.io), max(inside, default=1))
        left = count if divided.lent else len(divided.computing)
        self.assertGreaterEqual(left, min(count, max(outside, default=1)))
        if divided.lent:
            self.assertEqual([], inside)


class ConfiguredTest(base.TestCase):
    def test_both(self):
        subject = sizer(
            io_pool_cpus=frozenset((1, 2)),
            computing_pool_cpus=frozenset((4, 5)),
        )
        divided = subject.of(SIXTEEN, [8], [])
        self.assertEqual(frozenset((1, 2)), divided.io)
        self.assertEqual(frozenset((4, 5)), divided.computing)

    def test_one_leaves_the_rest_to_the_other(self):
        divided = sizer(io_pool_cpus=frozenset((1, 2))).of(SIXTEEN, [], [])
        self.assertEqual(14, len(divided.computing))
        divided = sizer(computing_pool_cpus=frozenset((1, 2))).of(
            SIXTEEN, [], []
        )
        self.assertEqual(14, len(divided.io))

    def test_cpus_that_went_away(self):
        subject = sizer(io_pool_cpus=frozenset((14, 15)))
        divided = subject.of(SIXTEEN[:15], [2], [2])
        self.assertEqual(frozenset((14,)), divided.io)
        divided = subject.of(SIXTEEN[:8], [2], [2])
        self.assertIn('sized from demand', subject.diagnostic)
        self.assertTrue(divided.io)


class HysteresisTest(base.TestCase):
    def test_grows_at_once_and_shrinks_late(self):
        subject = sizer()
        sizes = [
            len(subject.of(SIXTEEN, wanted, [8, 8]).io)
            for wanted in [[2]] + [[8, 8]] + [[2]] * 11
        ]
        self.assertEqual([2] + [8] * 10 + [2, 2], sizes)

    def test_it_shrinks_to_the_most_that_was_needed_meanwhile(self):
        subject = sizer()
        subject.of(SIXTEEN, [8, 8], [8, 8])
        for wanted in [[2]] * 5 + [[2, 2]] + [[2]] * 4:
            divided = subject.of(SIXTEEN, wanted, [8, 8])
        self.assertEqual(4, len(divided.io))

    def test_demand_that_comes_and_goes_does_not_resize(self):
        subject = sizer()
        subject.of(SIXTEEN, [8], [8])
        sizes = {
            len(subject.of(SIXTEEN, wanted, [8]).io)
            for _ in range(20)
            for wanted in ([], [], [], [8])
        }
        self.assertEqual({8}, sizes)

    def test_a_pool_that_grows_keeps_its_cpus(self):
        subject = sizer()
        small = subject.of(SIXTEEN, [2], [8, 8])
        great = subject.of(SIXTEEN, [2, 2], [8, 8])
        self.assertLess(small.io, great.io)

    def test_lent_while_nobody_is_in_it_for_long(self):
        subject = sizer()
        self.assertTrue(subject.of(SIXTEEN, [], [8]).lent)
        self.assertFalse(subject.of(SIXTEEN, [8], [8]).lent)
        lent = [subject.of(SIXTEEN, [], [8]).lent for _ in range(10)]
        self.assertEqual([False] * 9 + [True], lent)
