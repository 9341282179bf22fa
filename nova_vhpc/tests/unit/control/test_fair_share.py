# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Weighted max-min fairness among VMs of different weight and demand."""

import collections
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control import fair_share
from nova_vhpc.tests import base


class CountedCpus(frozenset):
    """A set of CPUs that counts how often it is compared with another."""

    compared = 0

    def __le__(self, other):
        CountedCpus.compared += 1
        return super().__le__(other)


def by_name(demands, divide):
    """Return the CPUs of each VM by its name: a, b, c and d."""
    named = {
        name: fair_share.Demand(*demand)
        for name, demand in zip('abcd', demands, strict=False)
    }
    given_cpus = divide(collections.Counter(named.values()))
    return {
        name: given_cpus[demand]
        for name, demand in named.items()
        if demand in given_cpus
    }


def fair(capacity, *demands):
    """Return CPUs by name; a demand is a weight and a number of CPUs."""
    return by_name(
        demands,
        lambda counted: fair_share.fair_cpus(counted, capacity),
    )


class TestFairCpus(base.TestCase):
    def test_vms_that_want_everything_share_by_weight(self):
        self.assertEqual(
            {'a': 2.0, 'b': 6.0}, fair(8, (1_024, 8.0), (3_072, 8.0))
        )

    def test_cpus_one_vm_leaves_go_to_the_others_by_weight(self):
        self.assertEqual(
            {'a': 1.0, 'b': 1.0, 'c': 2.0},
            fair(4, (1_024, 1.0), (512, 4.0), (1_024, 4.0)),
        )

    def test_vm_satisfied_by_what_another_leaves_gets_its_demand(self):
        # By weight alone b would have 2 of 6.
        self.assertEqual(
            {'a': 1.0, 'b': 2.25, 'c': 2.75},
            fair(6, (1, 1.0), (1, 2.25), (1, 6.0)),
        )

    def test_no_vm_gets_more_than_its_demand(self):
        self.assertEqual({'a': 1.0, 'b': 2.0}, fair(8, (1, 1.0), (9, 2.0)))

    def test_vms_without_demand_or_weight_are_left_out(self):
        self.assertEqual({'c': 2.0}, fair(2, (1, 0.0), (0, 2.0), (1, 2.0)))

    def test_equal_demands_get_equal_parts(self):
        narrow = fair_share.Demand(1, 1.0)
        wide = fair_share.Demand(1, 8.0)
        self.assertEqual(
            {narrow: 1.0, wide: 2.5},
            fair_share.fair_cpus({narrow: 3, wide: 2}, 8),
        )

    def test_no_vms_get_nothing(self):
        self.assertEqual({}, fair(2))

    @given(
        st.integers(1, 64),
        st.lists(
            st.tuples(st.integers(1, 10_000), st.floats(0.01, 64)), max_size=4
        ),
    )
    def test_all_cpus_are_divided_and_each_weight_is_served_alike(
        self, capacity, demands
    ):
        given_cpus = fair(capacity, *demands)
        wanted = dict(zip('abcd', demands, strict=False))
        self.assertEqual(set(wanted), set(given_cpus))
        self.assertAlmostEqual(
            min(capacity, sum(cpus for _, cpus in demands)),
            sum(given_cpus.values()),
            places=6,
        )
        per_weight = {
            name: cpus / wanted[name][0] for name, cpus in given_cpus.items()
        }
        best = max(per_weight.values(), default=0.0)
        for name, cpus in given_cpus.items():
            self.assertLessEqual(cpus, wanted[name][1])
            if cpus < wanted[name][1]:
                # A VM that gets less than it wants has the most per weight.
                self.assertAlmostEqual(best, per_weight[name], places=6)


class TestDivide(base.TestCase):
    """Some VMs may run on some of the CPUs only."""

    def divide(self, *demands, cpus=8):
        """Return CPUs by name; a demand is weight, CPUs, allowed CPUs."""
        return by_name(
            demands,
            lambda counted: fair_share.divide(
                counted,
                lambda allowed_cpus: (
                    cpus if allowed_cpus is None else len(allowed_cpus)
                ),
            ),
        )

    def test_without_bound_vms_all_share_by_weight(self):
        self.assertEqual({'a': 2.0, 'b': 6.0}, self.divide((1, 8.0), (3, 8.0)))

    def test_vms_bound_to_few_cpus_divide_these(self):
        here = frozenset({0, 1})
        self.assertEqual(
            {'a': 1.0, 'b': 1.0, 'c': 6.0},
            self.divide((1, 2.0, here), (1, 2.0, here), (1, 8.0)),
        )

    def test_unbound_vm_gets_as_much_per_weight_as_bound_vms(self):
        first, last = frozenset(range(4)), frozenset(range(4, 8))
        found = self.divide((1, 4.0, first), (1, 4.0, last), (2, 8.0))
        self.assertEqual({'a': 2.0, 'b': 2.0, 'c': 4.0}, found)

    def test_bound_vms_without_demand_are_left_out(self):
        here = frozenset({0, 1})
        self.assertEqual(
            {'b': 2.0, 'd': 6.0},
            self.divide((1, 0.0, here), (1, 2.0, here), (1, 0.0), (1, 8.0)),
        )

    def test_equal_demands_get_equal_parts(self):
        bound = fair_share.Demand(1, 1.0, frozenset(range(4)))
        free = fair_share.Demand(1, 8.0)
        self.assertEqual(
            {bound: 1.0, free: 2.5},
            fair_share.divide(
                {bound: 3, free: 2},
                lambda allowed_cpus: (
                    8 if allowed_cpus is None else len(allowed_cpus)
                ),
            ),
        )

    def test_no_vm_gets_more_than_its_demand(self):
        first = frozenset(range(4))
        self.assertEqual(
            {'a': 1.0, 'b': 3.0, 'c': 2.0},
            self.divide((1, 1.0, first), (1, 4.0, first), (9, 2.0)),
        )

    def test_nested_sets_are_divided_from_the_innermost(self):
        one, four = frozenset({0}), frozenset(range(4))
        self.assertEqual(
            {'a': 0.5, 'b': 0.5, 'c': 3.0, 'd': 4.0},
            self.divide(
                (1, 1.0, one), (1, 1.0, one), (3, 4.0, four), (1, 8.0)
            ),
        )

    def test_no_cpus_give_zero(self):
        found = self.divide((1, 4.0, frozenset()), (1, 4.0), cpus=0)
        self.assertEqual({'a': 0.0, 'b': 0.0}, found)

    def test_sets_of_one_size_are_not_compared_in_pairs(self):
        CountedCpus.compared = 0
        demands = [
            fair_share.Demand(1, 2.0, CountedCpus({cpu})) for cpu in range(64)
        ]
        found = fair_share.divide(
            dict.fromkeys(demands, 1),
            lambda allowed_cpus: (
                64 if allowed_cpus is None else len(allowed_cpus)
            ),
        )
        self.assertEqual(dict.fromkeys(demands, 1.0), found)
        self.assertEqual(0, CountedCpus.compared)

    def test_each_of_many_sets_is_divided_once(self):
        # For each served set only the whole host is divided again.
        demands = [
            fair_share.Demand(1 + cpu, 2.0, frozenset({cpu}))
            for cpu in range(64)
        ]
        with mock.patch.object(
            fair_share, 'fair_cpus', wraps=fair_share.fair_cpus
        ) as divided:
            found = fair_share.divide(
                collections.Counter(demands),
                lambda allowed_cpus: (
                    64 if allowed_cpus is None else len(allowed_cpus)
                ),
            )
        self.assertEqual(dict.fromkeys(demands, 1.0), found)
        self.assertLessEqual(divided.call_count, 3 * len(demands))

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 1_000),
                st.floats(0.01, 16),
                st.sampled_from(
                    (None, frozenset(range(4)), frozenset(range(4, 8)))
                ),
            ),
            max_size=4,
        )
    )
    def test_no_cpu_is_given_twice_and_none_is_left_idle(self, demands):
        found = self.divide(*demands)
        wanted = dict(zip('abcd', demands, strict=False))
        for allowed_cpus in {demand[2] for demand in demands} | {None}:
            inside = [
                name
                for name, demand in wanted.items()
                if allowed_cpus is None or demand[2] == allowed_cpus
            ]
            given_cpus = sum(found[name] for name in inside)
            self.assertLessEqual(
                given_cpus, (8 if allowed_cpus is None else 4) + 1e-6
            )
        for name, (_, cpus, _) in wanted.items():
            self.assertLessEqual(found[name], cpus + 1e-9)
        if all(demand[2] is None for demand in demands):
            self.assertAlmostEqual(
                min(8.0, sum(demand[1] for demand in demands)),
                sum(found.values()),
                places=6,
            )
