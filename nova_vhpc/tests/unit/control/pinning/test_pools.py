# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Place and size of the I/O pool."""

import testscenarios
from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control import config as control_config
from nova_vhpc.control.pinning import pools
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.pinning import topologies

SIXTEEN = topologies.host(sockets=2, caches=1, cores=8)


def demand(vcpus, widths=None):
    """Return the demand of VMs with these numbers of vCPUs.

    :param widths: least numbers of CPUs that they need; as many as vCPUs (of
        parallel VMs) by default.
    """
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


def scenario(name, io, computing, size, **changes):
    """Return a scenario: vCPUs for both pools, and the size of the I/O pool.

    :param changes: number of CPUs of the host (16), least widths of general
        VMs, greatest width in the I/O pool, whether it is lent.
    """
    return name, {
        **{'io': io, 'computing': computing, 'size': size, 'cpus': 16},
        **{'io_widths': None, 'computing_widths': None},
        **{'max_width': None, 'lent': False, **changes},
    }


class SizesTest(testscenarios.WithScenarios, base.TestCase):
    """The I/O pool of a new sizer; the computing pool is the rest."""

    scenarios = (
        scenario('a half of the demand', [4, 4], [4, 4], 8),
        # In proportion to vCPUs these would be 9, 7, 10 and 11 CPUs.
        scenario('above a cache boundary', [5, 5], [4, 4], 8),
        scenario('below a cache boundary', [4, 3], [4, 5], 8),
        scenario('an eighth of the host away', [5, 5], [3, 3], 8),
        scenario('farther from a boundary', [6, 5], [3, 2], 11),
        # 1.8 CPUs in proportion to vCPUs.
        scenario('rounded up to whole CPUs', [1] * 3, [8] * 3, 2),
        scenario('no boundary is near', [2], [8] * 3, 2),
        # Siblings have a CPU each.
        scenario('one wide VM in I/O', [8], [8] * 5, 8),
        scenario('one wide VM that computes', [8] * 5, [8], 8),
        scenario('no more CPUs than vCPUs', [2], [], 2),
        # No parallel VM is in a pool of fewer CPUs than it has vCPUs: in
        # proportion it would be 2; half of the host is 8.
        scenario('widest VM', [12], [2] * 40, 12, max_width=14),
        scenario('just beside each other', [12], [4], 12, max_width=12),
        scenario('on three CPUs', [2], [], 2, cpus=3, max_width=2),
        # Beside a VM of 12 there are 4 CPUs left: too few for 10 or 8.
        scenario('too wide for I/O', [10, 2, 8], [12], 2, max_width=4),
        scenario('fits beside a wide one', [10, 4], [12], 4, max_width=4),
        scenario(
            'all of two CPUs', [2], [], 1, cpus=2, max_width=0, lent=True
        ),
        # General VMs may share CPUs, and keep up to half of the host.
        scenario(
            'general VMs beside a wide one', [12], [2] * 40, 8,
            io_widths=[1], computing_widths=[1] * 40,
        ),
        scenario(
            'general VM that gives CPUs up', [12], [8], 12,
            computing_widths=[1],
        ),
        scenario(
            'general VMs that keep half', [8] * 5, [8], 8,
            io_widths=[1] * 5, computing_widths=[1],
        ),
        scenario(
            'one wide general VM that keeps no more', [8] * 5, [12], 8,
            io_widths=[1] * 5, computing_widths=[1],
        ),
    )  # fmt: skip

    def test_size(self):
        subject = sizer()
        divided = subject.divide(
            SIXTEEN[: self.cpus],
            demand(self.io, self.io_widths),
            demand(self.computing, self.computing_widths),
        )
        every = range(self.cpus)
        self.assertEqual(set(every[-self.size :]), divided.io)
        self.assertEqual(set(every[: -self.size]), divided.computing)
        self.assertEqual(self.lent, divided.lent)
        if self.max_width is not None:
            self.assertEqual(self.max_width, subject.max_width)


class SizeTest(base.TestCase):
    def test_neither_pool_is_empty_after_most_cpus_go(self):
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
    """No parallel VM is in a pool of fewer CPUs than it has vCPUs."""

    def test_wide_io_pool_shrinks_at_once_for_a_wide_computing_vm(self):
        subject = sizer()
        subject.of(SIXTEEN, [12], [2])
        self.assertEqual(10, len(subject.of(SIXTEEN, [2], [10]).computing))

    def test_io_pool_is_lent_at_once_to_a_vm_as_wide_as_the_host(self):
        subject = sizer()
        self.assertFalse(subject.of(SIXTEEN, [4], [4]).lent)
        self.assertTrue(subject.of(SIXTEEN, [4], [4, 16]).lent)

    def test_configured_pool_keeps_its_size(self):
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
    def test_siblings_never_share_a_cpu_because_of_pools(
        self, count, io_vcpus, others, earlier
    ):
        cpus = SIXTEEN[:count]
        subject = sizer()
        for vcpus, io in earlier:
            # Begin with pools of any size.
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
    def test_both_configured_pools_are_used(self):
        subject = sizer(
            io_pool_cpus=frozenset((1, 2)),
            computing_pool_cpus=frozenset((4, 5)),
        )
        divided = subject.of(SIXTEEN, [8], [])
        self.assertEqual(frozenset((1, 2)), divided.io)
        self.assertEqual(frozenset((4, 5)), divided.computing)

    def test_one_configured_pool_leaves_the_rest_to_the_other(self):
        divided = sizer(io_pool_cpus=frozenset((1, 2))).of(SIXTEEN, [], [])
        self.assertEqual(14, len(divided.computing))
        divided = sizer(computing_pool_cpus=frozenset((1, 2))).of(
            SIXTEEN, [], []
        )
        self.assertEqual(14, len(divided.io))

    def test_pool_is_sized_from_demand_if_its_configured_cpus_are_gone(self):
        subject = sizer(io_pool_cpus=frozenset((14, 15)))
        divided = subject.of(SIXTEEN[:15], [2], [2])
        self.assertEqual(frozenset((14,)), divided.io)
        divided = subject.of(SIXTEEN[:8], [2], [2])
        self.assertIn('sized from demand', subject.diagnostic)
        self.assertTrue(divided.io)


class HysteresisTest(base.TestCase):
    def test_io_pool_grows_at_once_and_shrinks_late(self):
        subject = sizer()
        sizes = [
            len(subject.of(SIXTEEN, wanted, [8, 8]).io)
            for wanted in [[2]] + [[8, 8]] + [[2]] * 11
        ]
        self.assertEqual([2] + [8] * 10 + [2, 2], sizes)

    def test_io_pool_shrinks_to_the_largest_recent_demand(self):
        subject = sizer()
        subject.of(SIXTEEN, [8, 8], [8, 8])
        for wanted in [[2]] * 5 + [[2, 2]] + [[2]] * 4:
            divided = subject.of(SIXTEEN, wanted, [8, 8])
        self.assertEqual(4, len(divided.io))

    def test_intermittent_demand_does_not_resize_the_io_pool(self):
        subject = sizer()
        subject.of(SIXTEEN, [8], [8])
        sizes = {
            len(subject.of(SIXTEEN, wanted, [8]).io)
            for _ in range(20)
            for wanted in ([], [], [], [8])
        }
        self.assertEqual({8}, sizes)

    def test_growing_io_pool_keeps_its_cpus(self):
        subject = sizer()
        small = subject.of(SIXTEEN, [2], [8, 8])
        great = subject.of(SIXTEEN, [2, 2], [8, 8])
        self.assertLess(small.io, great.io)

    def test_io_pool_is_lent_after_it_was_empty_for_long(self):
        subject = sizer()
        self.assertTrue(subject.of(SIXTEEN, [], [8]).lent)
        self.assertFalse(subject.of(SIXTEEN, [8], [8]).lent)
        lent = [subject.of(SIXTEEN, [], [8]).lent for _ in range(10)]
        self.assertEqual([False] * 9 + [True], lent)
