# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Our predictor, against what it has to learn and against the others."""

import pathlib
import random

from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import adaptive
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control.predictors import family
from nova_vhpc_lab.bench.common import traces
from nova_vhpc_lab.bench.predictors import run
from nova_vhpc_lab.bench.predictors import score as predictors_score

FACTORIES = run.load()
TRACES = pathlib.Path(__file__).parents[5] / 'lab/traces'


def hits(events, last):
    """Share of right predictions in the last periods."""
    predictor = adaptive.AdaptivePredictor()
    right = []
    for number in events:
        state = quantise.to_state(number)
        right.append(predictor.predict() == state)
        predictor.observe(state, number)
    return sum(right[-last:]) / last


class LearningTest(base.TestCase):
    def test_idle_before_anything_was_seen(self):
        self.assertEqual(
            quantise.IDLE_STATE, adaptive.AdaptivePredictor().predict()
        )

    def test_a_constant_is_predicted_at_once(self):
        self.assertEqual(1.0, hits([130.0] * 10, 9))

    def test_a_cycle_is_learned_within_four_rounds(self):
        self.assertEqual(1.0, hits([10.0, 60.0, 210.0, 110.0] * 20, 64))

    def test_the_end_of_a_run_is_known_by_its_length(self):
        # Neither two periods of events nor eight of states tell the tenth
        # from the ninth.
        self.assertEqual(1.0, hits(([10.0] * 10 + [110.0]) * 30, 55))

    def test_what_was_before_tells_runs_apart(self):
        runs = [310.0] + [10.0] * 9 + [110.0] + [10.0] * 11
        self.assertEqual(1.0, hits(runs * 40, 88))

    def test_an_outlier_just_over_the_edge_falls_back(self):
        predictor = adaptive.AdaptivePredictor()
        predictor.observe(1, 0.0)
        predictor.observe(2, 52.0)
        self.assertEqual(1, predictor.predict())

    def test_idle_is_no_outlier_after_the_launch_of_a_program(self):
        predictor = adaptive.AdaptivePredictor()
        for number in (72.0, 80.0, 0.0):
            predictor.observe(quantise.to_state(number), number)
        self.assertEqual(quantise.IDLE_STATE, predictor.predict())

    def test_two_new_states_in_a_row_are_a_new_phase(self):
        predictor = adaptive.AdaptivePredictor()
        said = []
        for number in (0.0, 0.0, 0.0, 0.0, 490.0, 710.0):
            predictor.observe(quantise.to_state(number), number)
            said.append(predictor.predict())
        # The first looks like a stray, as it may be one.
        self.assertEqual([1, 1, 1, 1, 1, 15], said)

    def test_the_second_leads_back_if_that_is_nearer_to_the_first(self):
        predictor = adaptive.AdaptivePredictor()
        for number in (40.0, 40.0, 40.0, 40.0, 110.0, 710.0):
            predictor.observe(quantise.to_state(number), number)
            predictor.predict()
        self.assertEqual(1, predictor.predict())

    def test_a_new_program_in_the_same_vm_is_learned_again(self):
        first = [10.0, 110.0] * 600
        second = [10.0, 260.0, 160.0, 60.0] * 40
        self.assertGreater(hits(first + second, 100), 0.95)

    def test_raw_events_tell_what_the_state_cannot(self):
        # 110 and 140 are the same state but have different successors,
        # and how often each comes is irregular.
        cycle = [110.0, 10.0, 140.0, 210.0, 110.0, 10.0, 110.0, 10.0]
        cycle += [140.0, 210.0, 140.0, 210.0]
        predictor = adaptive.AdaptivePredictor()
        for number in cycle * 8:
            predictor.observe(quantise.to_state(number), number)
            predictor.predict()
        predictor.observe(3, 110.0)
        self.assertEqual(1, predictor.predict())
        predictor.observe(3, 140.0)
        self.assertEqual(5, predictor.predict())


class MembersTest(base.TestCase):
    def members(self, number):
        members = [adaptive.AdaptivePredictor()]
        while len(members) < number:
            members.append(members[0].for_peer())
        return members

    def period(self, members, *numbers):
        for member, number in zip(members, numbers, strict=True):
            member.observe(quantise.to_state(number), number)
        return [member.predict() for member in members]

    def test_what_is_noise_to_one_another_announces(self):
        # The first exchanges at random, the second just before it does.
        source = random.Random(5)
        alone = adaptive.AdaptivePredictor()
        members = self.members(2)
        right = {'alone': 0, 'member': 0}
        coming = 10.0
        for period in range(400):
            now, coming = coming, source.choice((10.0, 110.0, 260.0))
            state = quantise.to_state(now)
            if period >= 300:
                right['alone'] += alone.predict() == state
                right['member'] += members[0].predict() == state
            alone.observe(state, now)
            alone.predict()
            self.period(members, now, coming)
        self.assertLess(right['alone'], 60)
        self.assertGreater(right['member'], 90)

    def test_removed_member_still_predicts(self):
        first, second = members = self.members(2)
        self.period(members, 10.0, 110.0)
        second.observe(3, 110.0)
        for _ in range(12):
            self.period([first], 10.0)
        self.assertEqual(3, second.predict())

    def test_old_predictions_are_not_judged(self):
        first, second = members = self.members(2)
        for number in [10.0, 110.0] * 10:
            self.period(members, number, number)
        weights = first._shared_learning.weights
        for _ in range(12):
            first.observe(1, 10.0)
            first.predict()
        away = first._shared_learning.weights
        self.assertNotEqual(weights, away)
        second.observe(6, 260.0)
        second.predict()
        # All are forgotten at their rate, but no expert gained.
        self.assertEqual(
            sorted(range(5), key=away.__getitem__),
            sorted(range(5), key=first._shared_learning.weights.__getitem__),
        )

    def test_who_predicts_first_does_not_matter(self):
        forth, back = self.members(3), self.members(3)
        source = random.Random(3)
        for _ in range(60):
            numbers = [source.choice((10.0, 90.0, 170.0)) for _ in range(3)]
            said = self.period(forth, *numbers)
            for member, number in zip(back, numbers, strict=True):
                member.observe(quantise.to_state(number), number)
            answers = [member.predict() for member in reversed(back)]
            self.assertEqual(said, answers[::-1])

    def test_a_prediction_stands_until_the_next_period(self):
        members = self.members(2)
        self.period(members, 10.0, 110.0)
        first = members[0].predict()
        members[1].observe(6, 260.0)
        members[1].predict()
        self.assertEqual(first, members[0].predict())

    def test_what_is_shared_is_counted_once(self):
        members = self.members(4)
        alone = adaptive.AdaptivePredictor()
        for number in [10.0, 110.0, 260.0, 60.0] * 40:
            self.period(members, *[number] * 4)
            self.period([alone], number)
        # Each has its own tables and a quarter of what is common.
        self.assertLess(members[0].state_bytes, alone.state_bytes)
        self.assertEqual(1, len({member.state_bytes for member in members}))


def compare(trace):
    """Ours, the best of the others, and RLE, on one trace."""
    scores = {
        name: predictors_score.score(make, trace)
        for name, make in FACTORIES.items()
    }
    ours = scores.pop('adaptive')
    best = max(scores.values(), key=lambda score: score.overall)
    return ours, best, scores['rle']


def recorded(directory='.'):
    """All traces of a directory, every one of which can be read."""
    found, faults = traces.read_all(TRACES / directory)
    if faults:
        raise faults[0]
    return found


class TargetMixin:
    """Overall at most 0.5 points behind the best of the others on every
    trace; transitions ahead of RLE on all that have more than 50, by 10
    points on the mean."""

    def hold(self, all_traces):
        gains = []
        for trace in all_traces:
            ours, best, rle = compare(trace)
            self.assertGreaterEqual(
                ours.overall, best.overall - 0.005, trace.name
            )
            if ours.transitions > 50:
                self.assertGreater(ours.transition, rle.transition, trace.name)
                gains.append(ours.transition - rle.transition)
        self.assertGreaterEqual(sum(gains) / len(gains), 0.10)


class RecordedTest(TargetMixin, base.TestCase):
    def test_recorded_benchmarks(self):
        self.hold(recorded())

    def test_rle_is_as_good_as_its_maker_measured(self):
        # README of the traces: overall and transition, with 50 events per
        # state. Small tables and hashes differ; rounding would not pass.
        measured = {
            'bt-a': (0.65, 0.60),
            'sp-a': (0.60, 0.39),
            'lu-a': (0.88, 0.26),
            'cg-a': (0.75, 0.14),
            'mg-b': (0.31, 0.24),
        }
        make = FACTORIES['rle']
        for name, (overall, transition) in measured.items():
            score = predictors_score.score(
                make, traces.read(TRACES / f'{name}.csv')
            )
            self.assertAlmostEqual(overall, score.overall, delta=0.015)
            self.assertAlmostEqual(transition, score.transition, delta=0.025)


class FamilyTest(TargetMixin, base.TestCase):
    def test_programs_of_the_same_family(self):
        self.hold(
            traces.Trace(
                f'{name} {seed}',
                ('vm0', 'vm1', 'vm2', 'vm3'),
                tuple(tuple(make(10 * seed + member)) for member in range(4)),
            )
            for name, make in family.FAMILY.items()
            for seed in range(2)
        )


class JoinedTest(base.TestCase):
    def test_joined_stretches_of_recordings(self):
        """Nothing was fitted to these, so each cannot be won, but all can."""
        gaps, gains = [], []
        for trace in recorded():
            for seed in range(3):
                ours, best, rle = compare(
                    traces.Trace(
                        f'{trace.name} {seed}',
                        trace.vms,
                        family.joined(trace.events, seed),
                    )
                )
                gaps.append(ours.overall - best.overall)
                if ours.transitions > 50:
                    gains.append(ours.transition - rle.transition)
        self.assertGreater(sum(gaps) / len(gaps), 0.04)
        self.assertGreater(min(gaps), -0.10)
        self.assertGreater(sum(gains) / len(gains), 0.10)


class OtherProgramsTest(base.TestCase):
    """Recorded programs besides the eight; see the docs on predictors.

    Many are short, so luck decides some; of up to 20 periods precision says
    nothing.
    """

    def hold(self, directory, gap, gain, behind, not_ahead):
        gaps, gains, lost = [], [], set()
        for trace in recorded(directory):
            ours, best, rle = compare(trace)
            if len(trace.events[0]) > 20:
                gaps.append(ours.overall - best.overall)
            if ours.transitions > 50:
                gains.append(ours.transition - rle.transition)
                if gains[-1] <= 0:
                    lost.add(trace.name)
        self.assertGreater(sum(gaps) / len(gaps), gap)
        self.assertGreater(sum(gains) / len(gains), gain)
        self.assertLessEqual(sum(lead < -0.005 for lead in gaps), behind)
        self.assertLessEqual(lost, not_ahead)

    def test_runs_recorded_after_most_constants_were_chosen(self):
        # 15 that are long enough, 8 with transitions.
        self.hold('skeletons', 0.033, 0.105, behind=4, not_ahead=set())

    def test_runs_that_were_recorded_later(self):
        # 31 that are long enough, 17 with transitions.
        self.hold('later', 0.028, 0.115, behind=8, not_ahead={'sp-a10'})

    def test_runs_that_were_recorded_last(self):
        # 16 that are long enough, 9 with transitions.
        self.hold('unseen', 0.025, 0.12, behind=4, not_ahead=set())

    def test_real_programs(self):
        # 16 that are long enough, 10 with transitions.
        self.hold('npb', 0.025, 0.1, behind=1, not_ahead=set())

    def test_real_programs_that_were_recorded_later(self):
        # 18 that are long enough, 10 with transitions.
        self.hold('npb_later', 0.026, 0.1, behind=2, not_ahead=set())
