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


def sizer(**kwargs):
    kwargs.setdefault('pool_shrink_periods', 10)
    return pools.PoolSizer(control_config.ControlConfig(**kwargs))


class SizeTest(base.TestCase):
    def test_half_of_the_demand_is_the_last_socket(self):
        divided = sizer().divide(SIXTEEN, [4, 4], [4, 4])
        self.assertEqual(frozenset(range(8, 16)), divided.io)
        self.assertEqual(frozenset(range(8)), divided.computing)

    def test_near_a_caches_edge_it_is_rounded_to_it(self):
        divided = sizer().divide(SIXTEEN, [4, 4], [4, 5])
        self.assertEqual(frozenset(range(8, 16)), divided.io)

    def test_far_from_it_a_socket_is_not_taken_whole(self):
        divided = sizer().divide(SIXTEEN, [2], [8, 8, 8])
        self.assertEqual(frozenset((14, 15)), divided.io)

    def test_siblings_have_a_cpu_each_as_far_as_half_the_host(self):
        divided = sizer().divide(SIXTEEN, [8], [8, 8, 8, 8, 8])
        self.assertEqual(8, len(divided.io))
        divided = sizer().divide(SIXTEEN, [8, 8, 8, 8, 8], [8])
        self.assertEqual(8, len(divided.computing))

    def test_no_more_cpus_than_vcpus(self):
        self.assertEqual(2, len(sizer().divide(SIXTEEN, [2], []).io))

    def test_one_cpu_no_pools_and_says_so(self):
        for cpus in ((), SIXTEEN[:1]):
            subject = sizer()
            self.assertIsNone(subject.divide(cpus, [2], [2]))
            self.assertIn('no pools', subject.remark)

    @given(
        st.integers(2, 16),
        st.lists(st.integers(1, 64), max_size=20),
        st.lists(st.integers(1, 64), max_size=20),
    )
    def test_neither_pool_is_ever_empty(self, count, io_vcpus, others):
        cpus = SIXTEEN[:count]
        divided = sizer().divide(cpus, io_vcpus, others)
        self.assertTrue(divided.io)
        self.assertTrue(divided.computing)
        self.assertFalse(divided.io & divided.computing)
        self.assertEqual(
            {cpu.id for cpu in cpus}, divided.io | divided.computing
        )


class ConfiguredTest(base.TestCase):
    def test_both(self):
        subject = sizer(
            io_pool_cpus=frozenset((1, 2)),
            computing_pool_cpus=frozenset((4, 5)),
        )
        divided = subject.divide(SIXTEEN, [8], [])
        self.assertEqual(frozenset((1, 2)), divided.io)
        self.assertEqual(frozenset((4, 5)), divided.computing)

    def test_one_leaves_the_rest_to_the_other(self):
        divided = sizer(io_pool_cpus=frozenset((1, 2))).divide(SIXTEEN, [], [])
        self.assertEqual(14, len(divided.computing))
        divided = sizer(computing_pool_cpus=frozenset((1, 2))).divide(
            SIXTEEN, [], []
        )
        self.assertEqual(14, len(divided.io))

    def test_cpus_that_went_away(self):
        subject = sizer(io_pool_cpus=frozenset((14, 15)))
        divided = subject.divide(SIXTEEN[:15], [2], [2])
        self.assertEqual(frozenset((14,)), divided.io)
        divided = subject.divide(SIXTEEN[:8], [2], [2])
        self.assertIn('sized from demand', subject.remark)
        self.assertTrue(divided.io)


class HysteresisTest(base.TestCase):
    def test_grows_at_once_and_shrinks_late(self):
        subject = sizer()
        sizes = [
            len(subject.divide(SIXTEEN, demand, [8, 8]).io)
            for demand in [[2]] + [[8, 8]] + [[2]] * 11
        ]
        self.assertEqual([2] + [8] * 10 + [2, 2], sizes)

    def test_demand_that_comes_and_goes_does_not_resize(self):
        subject = sizer()
        subject.divide(SIXTEEN, [8], [8])
        sizes = {
            len(subject.divide(SIXTEEN, demand, [8]).io)
            for _ in range(20)
            for demand in ([], [], [], [8])
        }
        self.assertEqual({8}, sizes)

    def test_a_pool_that_grows_keeps_its_cpus(self):
        subject = sizer()
        small = subject.divide(SIXTEEN, [2], [8, 8])
        great = subject.divide(SIXTEEN, [2, 2], [8, 8])
        self.assertLess(small.io, great.io)

    def test_lent_while_nobody_is_in_it_for_long(self):
        subject = sizer()
        self.assertTrue(subject.divide(SIXTEEN, [], [8]).lent)
        self.assertFalse(subject.divide(SIXTEEN, [8], [8]).lent)
        lent = [subject.divide(SIXTEEN, [], [8]).lent for _ in range(10)]
        self.assertEqual([False] * 9 + [True], lent)
