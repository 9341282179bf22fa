# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Simple predictors that are followed beside ours."""

import random

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import (
    context_counts,
    ewma,
    last_value,
    markov,
)
from nova_vhpc.control.predictors.mixture import baselines
from nova_vhpc.tests import base


class BaselinesTest(base.TestCase):
    def test_baselines_agree_with_the_predictors(self):
        source = random.Random(4)
        levels = [source.choice((10.0, 70.0, 130.0)) for _ in range(400)]
        # Steady on the edge of a state, at random, then in a cycle.
        events = (
            [100.0] * 9
            + [70.0, 0.0, 200.0]
            + levels
            + [10.0, 130.0, 160.0] * 20
        )
        simple = (
            last_value.LastValuePredictor(),
            ewma.EwmaPredictor(),
            markov.MarkovPredictor(),
        )
        table = context_counts.CountTable()
        followed = baselines.Baselines()
        current = None
        clear = 0
        for number in events:
            state = quantise.to_state(number)
            expected = tuple(one.predict() == state for one in simple)
            if current is None:
                followed.begin(number)
            else:
                after = table.use(current)
                most = sorted(after.by_state.values())[-2:]
                said = followed.observe(current, state, number, after)
                table.add(after, state)
                # Of two that followed as often, the other may be taken.
                if len(set(most)) == len(most):
                    clear += 1
                    self.assertEqual(expected, said)
                self.assertEqual(expected[:2], said[:2])
            for one in simple:
                one.observe(state, number)
            current = state
        self.assertGreater(clear, 400)

    def test_of_equals_the_current_state_wins(self):
        table = context_counts.CountTable()
        after = table.use(2)
        followed = baselines.Baselines()
        for state, right in ((3, False), (2, False), (2, True), (3, False)):
            said = followed.observe(2, state, 0.0, after)
            table.add(after, state)
            self.assertEqual(right, said[2])
        self.assertEqual(2, after.likeliest)
