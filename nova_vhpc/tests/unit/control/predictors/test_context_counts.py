# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bounded tables of successors."""

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.control.predictors import context_counts
from nova_vhpc.tests import base


class CountTableTest(base.TestCase):
    def add(self, table, context, *states):
        for state in states:
            table.add(table.use(context), state)

    def counts(self, table, context):
        """What is known of a context, which becomes the last one used."""
        found = table.use(context)
        self.assertEqual(sum(found.by_state.values()), found.total)
        return found.by_state

    def test_counts_what_followed(self):
        table = context_counts.CountTable()
        self.add(table, 'context', 1, 2, 2)
        self.assertEqual({1: 1, 2: 2}, self.counts(table, 'context'))
        self.assertEqual({}, self.counts(table, 'other'))

    def test_forgets_the_longest_unused_context(self):
        table = context_counts.CountTable(max_contexts=2)
        self.add(table, 'a', 1)
        self.add(table, 'b', 1)
        self.add(table, 'a', 1)
        self.add(table, 'c', 1)
        self.assertEqual({1: 2}, self.counts(table, 'a'))
        self.assertEqual({}, self.counts(table, 'b'))

    def test_the_rarest_successor_gives_way(self):
        table = context_counts.CountTable(max_successors=2)
        self.add(table, 'a', 1, 1, 2, 3)
        self.assertEqual({1: 2, 3: 1}, self.counts(table, 'a'))

    def test_halves_at_the_ceiling_so_that_the_past_fades(self):
        table = context_counts.CountTable(ceiling=4)
        self.add(table, 'a', 2, *[1] * 5)
        self.assertEqual({1: 2}, self.counts(table, 'a'))
        self.add(table, 'a', 1)
        self.assertEqual({1: 3}, self.counts(table, 'a'))

    def test_who_is_halved_to_nothing_is_forgotten(self):
        table = context_counts.CountTable(ceiling=5)
        self.add(table, 'a', 2, 2, 3, *[1] * 6)
        self.assertEqual({2: 1, 1: 3}, self.counts(table, 'a'))

    @given(
        st.lists(st.integers(1, 4), max_size=40),
        st.integers(1, 5),
        st.integers(1, 3),
    )
    def test_learning_in_several_contexts_is_adding_to_each(
        self, states, ceiling, max_successors
    ):
        added, learned = (
            context_counts.CountTable(
                ceiling=ceiling, max_successors=max_successors
            )
            for _ in range(2)
        )
        for state in states:
            for context in ('a', 'b'):
                added.add(added.use(context), state)
            learned.learn(state, learned.use('a'), learned.use('b'))
        for context in ('a', 'b'):
            self.assertEqual(
                self.counts(added, context), self.counts(learned, context)
            )

    def test_never_forgets_without_a_ceiling(self):
        table = context_counts.CountTable()
        self.add(table, 'a', 2, *[1] * 5_000)
        self.assertEqual({2: 1, 1: 5_000}, self.counts(table, 'a'))
