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


"""What is fair among VMs of different weight and appetite."""

import collections
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control import fair_share
from nova_vhpc.tests import base


class CountedReach(frozenset):
    """Counts how often it is compared with another."""

    compared = 0

    def __le__(self, other):
        CountedReach.compared += 1
        return super().__le__(other)


def by_name(claims, divide):
    """CPUs of each, the first one being called a."""
    named = {
        name: fair_share.Claim(*claim)
        for name, claim in zip('abcd', claims, strict=False)
    }
    given_cpus = divide(collections.Counter(named.values()))
    return {
        name: given_cpus[claim]
        for name, claim in named.items()
        if claim in given_cpus
    }


def fair(capacity, *claims):
    """CPUs by name; a claim is a weight and the CPUs that are wanted."""
    return by_name(
        claims,
        lambda counted: fair_share.fair_cpus(counted, capacity),
    )


class TestFairCpus(base.TestCase):
    def test_who_wants_all_gets_its_part_by_weight(self):
        self.assertEqual(
            {'a': 2.0, 'b': 6.0}, fair(8, (1_024, 8.0), (3_072, 8.0))
        )

    def test_what_one_does_not_want_goes_to_the_others_by_weight(self):
        self.assertEqual(
            {'a': 1.0, 'b': 1.0, 'c': 2.0},
            fair(4, (1_024, 1.0), (512, 4.0), (1_024, 4.0)),
        )

    def test_who_is_sated_by_what_another_leaves_is_sated(self):
        # By weight alone b would have 2 of 6.
        self.assertEqual(
            {'a': 1.0, 'b': 2.25, 'c': 2.75},
            fair(6, (1, 1.0), (1, 2.25), (1, 6.0)),
        )

    def test_nobody_gets_more_than_it_wants(self):
        self.assertEqual({'a': 1.0, 'b': 2.0}, fair(8, (1, 1.0), (9, 2.0)))

    def test_who_wants_nothing_or_weighs_nothing_is_not_in_the_way(self):
        self.assertEqual({'c': 2.0}, fair(2, (1, 0.0), (0, 2.0), (1, 2.0)))

    def test_as_many_as_claim_the_same(self):
        narrow = fair_share.Claim(1, 1.0)
        wide = fair_share.Claim(1, 8.0)
        self.assertEqual(
            {narrow: 1.0, wide: 2.5},
            fair_share.fair_cpus({narrow: 3, wide: 2}, 8),
        )

    def test_nobody_there(self):
        self.assertEqual({}, fair(2))

    @given(
        st.integers(1, 64),
        st.lists(
            st.tuples(st.integers(1, 10_000), st.floats(0.01, 64)), max_size=4
        ),
    )
    def test_all_is_divided_and_no_weight_is_better_served(
        self, capacity, claims
    ):
        given_cpus = fair(capacity, *claims)
        wanted = dict(zip('abcd', claims, strict=False))
        self.assertEqual(set(wanted), set(given_cpus))
        self.assertAlmostEqual(
            min(capacity, sum(cpus for _, cpus in claims)),
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
                # Who is left short has as much for its weight as anyone.
                self.assertAlmostEqual(best, per_weight[name], places=6)


class TestDivide(base.TestCase):
    """Some can be on a part of the CPUs only."""

    def divide(self, *claims, cpus=8):
        """CPUs by name; a claim is a weight, CPUs and a reach."""
        return by_name(
            claims,
            lambda counted: fair_share.divide(
                counted,
                lambda reach: cpus if reach is None else len(reach),
            ),
        )

    def test_nobody_is_bound(self):
        self.assertEqual({'a': 2.0, 'b': 6.0}, self.divide((1, 8.0), (3, 8.0)))

    def test_who_can_be_nowhere_else_divides_what_is_there(self):
        here = frozenset({0, 1})
        self.assertEqual(
            {'a': 1.0, 'b': 1.0, 'c': 6.0},
            self.divide((1, 2.0, here), (1, 2.0, here), (1, 8.0)),
        )

    def test_who_can_be_elsewhere_has_as_much_for_its_weight(self):
        first, last = frozenset(range(4)), frozenset(range(4, 8))
        found = self.divide((1, 4.0, first), (1, 4.0, last), (2, 8.0))
        self.assertEqual({'a': 2.0, 'b': 2.0, 'c': 4.0}, found)

    def test_who_wants_nothing_is_not_in_the_way(self):
        here = frozenset({0, 1})
        self.assertEqual(
            {'b': 2.0, 'd': 6.0},
            self.divide((1, 0.0, here), (1, 2.0, here), (1, 0.0), (1, 8.0)),
        )

    def test_as_many_as_claim_the_same(self):
        bound = fair_share.Claim(1, 1.0, frozenset(range(4)))
        free = fair_share.Claim(1, 8.0)
        self.assertEqual(
            {bound: 1.0, free: 2.5},
            fair_share.divide(
                {bound: 3, free: 2},
                lambda reach: 8 if reach is None else len(reach),
            ),
        )

    def test_nobody_gets_more_than_it_wants(self):
        first = frozenset(range(4))
        self.assertEqual(
            {'a': 1.0, 'b': 3.0, 'c': 2.0},
            self.divide((1, 1.0, first), (1, 4.0, first), (9, 2.0)),
        )

    def test_a_reach_within_another(self):
        one, four = frozenset({0}), frozenset(range(4))
        self.assertEqual(
            {'a': 0.5, 'b': 0.5, 'c': 3.0, 'd': 4.0},
            self.divide(
                (1, 1.0, one), (1, 1.0, one), (3, 4.0, four), (1, 8.0)
            ),
        )

    def test_no_cpu_to_divide(self):
        found = self.divide((1, 4.0, frozenset()), (1, 4.0), cpus=0)
        self.assertEqual({'a': 0.0, 'b': 0.0}, found)

    def test_reaches_of_one_size_are_not_compared_in_pairs(self):
        CountedReach.compared = 0
        claims = [
            fair_share.Claim(1, 2.0, CountedReach({cpu})) for cpu in range(64)
        ]
        found = fair_share.divide(
            dict.fromkeys(claims, 1),
            lambda reach: 64 if reach is None else len(reach),
        )
        self.assertEqual(dict.fromkeys(claims, 1.0), found)
        self.assertEqual(0, CountedReach.compared)

    def test_each_of_many_reaches_is_divided_once(self):
        # The whole host is looked at again for each; not all the others.
        claims = [
            fair_share.Claim(1 + cpu, 2.0, frozenset({cpu}))
            for cpu in range(64)
        ]
        with mock.patch.object(
            fair_share, 'fair_cpus', wraps=fair_share.fair_cpus
        ) as divided:
            found = fair_share.divide(
                collections.Counter(claims),
                lambda reach: 64 if reach is None else len(reach),
            )
        self.assertEqual(dict.fromkeys(claims, 1.0), found)
        self.assertLessEqual(divided.call_count, 3 * len(claims))

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
    def test_nothing_is_divided_twice_and_none_is_left_to_want(self, claims):
        found = self.divide(*claims)
        wanted = dict(zip('abcd', claims, strict=False))
        for reach in {claim[2] for claim in claims} | {None}:
            inside = [
                name
                for name, claim in wanted.items()
                if reach is None or claim[2] == reach
            ]
            given_cpus = sum(found[name] for name in inside)
            self.assertLessEqual(
                given_cpus, (8 if reach is None else 4) + 1e-6
            )
        for name, (_, cpus, _) in wanted.items():
            self.assertLessEqual(found[name], cpus + 1e-9)
        if all(claim[2] is None for claim in claims):
            self.assertAlmostEqual(
                min(8.0, sum(claim[1] for claim in claims)),
                sum(found.values()),
                places=6,
            )
