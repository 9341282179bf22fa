# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What holds of every installed predictor, whatever it is told."""

import math
import random

import hypothesis
from hypothesis import strategies

from nova_vhpc.control.predictors import base
from nova_vhpc.tests import base as tests_base
from nova_vhpc_lab.bench.predictors import run

FACTORIES = run.load()

MAX_BYTES = 256 * 1024
"""Of the hungriest predictor, whatever it is fed."""

GARBAGE = (
    strategies.none()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(max_size=3)
    | strategies.sampled_from((math.inf, -math.inf, math.nan, 10**400))
)


class PropertiesTest(tests_base.TestCase):
    def test_all_are_installed(self):
        self.assertEqual(set(), set(run.ORDER) - FACTORIES.keys())

    def test_all_keep_the_protocol(self):
        for make in FACTORIES.values():
            self.assertIsInstance(make(), base.Predictor)

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(
        strategies.lists(strategies.tuples(GARBAGE, GARBAGE), max_size=30)
    )
    def test_garbage_never_raises(self, periods):
        for make in FACTORIES.values():
            predictor = make()
            for state, events in periods:
                predictor.observe(state, events)
                predicted = predictor.predict()
                self.assertIsInstance(predicted, int)
                self.assertGreaterEqual(predicted, base.IDLE_STATE)
                self.assertLessEqual(predicted, base.MAX_STATE)

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(
        strategies.lists(
            strategies.tuples(
                strategies.integers(0, 3),
                GARBAGE,
                strategies.integers(0, 12),
                strategies.integers(0, 3),
            ),
            max_size=30,
        )
    )
    def test_members_come_and_go_in_any_order(self, steps):
        for make in FACTORIES.values():
            members = [make()]
            for place, events, times, asked in steps:
                if place >= len(members):
                    members.append(base.for_member(members[0], make))
                member = members[min(place, len(members) - 1)]
                # Often enough for those that say nothing to be left out.
                for _ in range(times):
                    member.observe(base.IDLE_STATE, events)
                predicted = members[min(asked, len(members) - 1)].predict()
                self.assertGreaterEqual(predicted, base.IDLE_STATE)
                self.assertGreater(member.state_bytes, 0)

    @hypothesis.settings(max_examples=25)
    @hypothesis.given(
        strategies.lists(strategies.floats(0, 1000), max_size=80)
    )
    def test_the_same_periods_give_the_same_predictions(self, periods):
        for make in FACTORIES.values():
            runs = []
            for _ in range(2):
                predictor = make()
                run = []
                for events in periods:
                    predictor.observe(base.to_state(events), events)
                    run.append(predictor.predict())
                runs.append(run)
            self.assertEqual(runs[0], runs[1])

    def test_memory_is_bounded(self):
        for name, make in FACTORIES.items():
            predictor = make()
            source = random.Random(7)
            # All different at first, then few: every table is filled.
            for scale in (1e7, 3e4, 2e3):
                for _ in range(3000):
                    events = source.random() * scale
                    predictor.observe(base.to_state(events), events)
                self.assertLess(predictor.state_bytes, MAX_BYTES, name)
            full = predictor.state_bytes
            for _ in range(3000):
                events = source.random() * 1e7
                predictor.observe(base.to_state(events), events)
            self.assertLess(predictor.state_bytes, 2 * full + 1024, name)
