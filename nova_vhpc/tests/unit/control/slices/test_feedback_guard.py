# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The guard on hosts where a shorter slice is better, or worse."""

import itertools

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.slices import atc, base, feedback_guard
from nova_vhpc.tests import base as tests_base

MEMBERS = frozenset(('a',))


class Noise:
    """Repeatable noise, uniform within -1..1."""

    def __init__(self, seed=1):
        self.state = seed

    def __call__(self):
        self.state = (self.state * 1103515245 + 12345) % 2**31
        return self.state / 2**30 - 1


def replay(
    latency_of,
    periods=600,
    others=lambda period: 0,
    measured=lambda uuid, period: True,
    reasons=None,
    **config,
):
    """Run ATC on a host whose latency is a function of the slice.

    :param latency_of: returns the latency, us, by slice and period.
    :param others: returns the number of further VMs in a period.
    :param measured: whether the latency of a VM is known in a period.
    :param reasons: list to which the reason of each period is added.
    :returns: slice of each period, us.
    """
    policy = atc.AtcPolicy(control_config.ControlConfig(**config))
    noise = Noise()
    slice_us = 30_000
    slices_us = []
    for period in range(periods):
        latency = latency_of(slice_us, period) * (1 + 0.05 * noise())
        vms = tuple(
            model.VmView(
                uuid,
                2,
                workload=model.Workload.PARALLEL,
                sample=model.Sample(
                    sync_latency_us=(
                        latency if measured(uuid, period) else None
                    )
                ),
            )
            for uuid in 'abc'[: 1 + others(period)]
        )
        view = model.HostView(
            period,
            0,
            100_000,
            (),
            vms,
            limits=model.ActuatorLimits(effective_min_slice_us=4_000),
        )
        decision = policy.decide(base.SliceContext(view, {}, {}))
        slice_us = decision.vms['a'].slice_us or 30_000
        slices_us.append(slice_us)
        if reasons is not None:
            reasons.append(decision.vms['a'].reason)
    return slices_us


def shorter_is_worse(slice_us, period):
    return 1_000 + 300_000_000 / slice_us


def shorter_is_a_little_worse(slice_us, period):
    return 5_000 + 150_000_000 / slice_us


def shorter_is_better(slice_us, period):
    return 200 + slice_us


def best_at(best_us, delay=0):
    """Return the latency function of a host with one best slice.

    :param best_us: the slice with the least latency.
    :param delay: periods of half the latency at first, which shifts the
        windows that the guard compares.
    """

    def latency(slice_us, period):
        whole = 200 + abs(slice_us - best_us) / 10
        return whole if period >= delay else whole / 2

    return latency


class ComingAndGoingTest(tests_base.TestCase):
    """A second VM comes and goes at regular intervals."""

    def slices_of(self, every, latency_of=shorter_is_worse):
        return replay(
            latency_of,
            periods=1_200,
            others=lambda period: period // every % 2,
        )

    def test_slice_stays_long_if_shorter_is_worse_and_vms_change(self):
        for every in (4, 7, 9, 10, 12, 15, 30):
            slices_us = self.slices_of(every)
            self.assertGreaterEqual(min(slices_us), 15_000, every)
            self.assertGreater(sum(slices_us) / len(slices_us), 27_000, every)

    def test_slice_gets_short_if_shorter_is_better_and_vms_change(self):
        self.assertLessEqual(self.slices_of(30, shorter_is_better)[-1], 6_000)


class ReplayTest(tests_base.TestCase):
    def test_slice_falls_to_the_minimum_without_guard(self):
        self.assertEqual(4_000, replay(shorter_is_worse, guard=False)[-1])

    def test_slice_stays_at_best_latency_with_guard(self):
        slices_us = replay(shorter_is_worse)
        long = [slice_us for slice_us in slices_us if slice_us >= 25_000]
        self.assertGreater(len(long), 0.85 * len(slices_us))
        self.assertGreaterEqual(min(slices_us), 15_000)

    def test_slice_stays_long_in_noise_if_shorter_is_worse(self):
        # At times a shorter slice is, by chance, not worse.
        late = []
        for seed in range(1, 5):
            noise = Noise(seed)
            slices_us = replay(
                lambda slice_us, period, noise=noise: (
                    shorter_is_worse(slice_us, period) * (1 + 0.6 * noise())
                ),
                periods=9_000,
            )
            late.append(sum(slices_us[-3_000:]) / 3_000)
        self.assertGreater(sum(late) / 4, 28_000)
        self.assertGreater(min(late), 24_000)

    def test_best_slice_is_found_despite_bursts(self):
        # In one of twenty periods another cause makes all VMs wait.
        for latency_of, least_us, most_us in (
            (shorter_is_worse, 27_000, 30_000),
            (shorter_is_a_little_worse, 27_000, 30_000),
            (shorter_is_better, 4_000, 6_000),
        ):
            mean_us = 0.0
            for seed in range(1, 9):
                noise = Noise(seed)
                slices_us = replay(
                    lambda slice_us, period, noise=noise, of=latency_of: (
                        of(slice_us, period) * (10 if noise() > 0.9 else 1)
                    ),
                    periods=6_000,
                )
                mean_us += sum(slices_us) / 6_000 / 8
            self.assertGreater(mean_us, least_us, latency_of)
            self.assertLess(mean_us, most_us, latency_of)

    def test_shorter_slice_is_tried_at_growing_intervals(self):
        slices_us = replay(shorter_is_worse, periods=3_000)
        backs = [
            period
            for period in range(1, len(slices_us))
            if slices_us[period] - slices_us[period - 1] >= 2_000
        ]
        waits = [b - a for a, b in itertools.pairwise(backs)]
        self.assertGreaterEqual(len(waits), 2)
        self.assertEqual(sorted(waits), waits)
        self.assertGreater(waits[-1], 2 * waits[0])

    def test_reason_names_the_guard_only_while_it_holds(self):
        reasons = []
        replay(best_at(10_000), reasons=reasons)
        self.assertEqual(
            {'ATC', 'ATC: DEFAULT', 'ATC: held by the guard'}, set(reasons)
        )
        reasons.clear()
        replay(shorter_is_worse, reasons=reasons, guard=False)
        self.assertEqual({'ATC', 'ATC: DEFAULT'}, set(reasons))

    def test_slice_settles_at_the_best_latency(self):
        # The slice changes in every period, so each window has several slices;
        # a latency worse than the best of them must be noticed.
        for delay in range(5):
            for best_us in range(5_000, 29_000, 4_000):
                slices_us = replay(best_at(best_us, delay), periods=300)[100:]
                away_us = [abs(slice_us - best_us) for slice_us in slices_us]
                self.assertLess(sum(away_us) / len(away_us), 1_500, best_us)

    def test_slice_gets_short_if_shorter_is_better(self):
        self.assertLessEqual(replay(shorter_is_better)[-1], 6_000)

    def test_latency_is_the_mean_of_the_measured_vms(self):
        # The number of measured VMs changes; every 50th period has none.
        slices_us = replay(
            shorter_is_better,
            others=lambda period: 1,
            measured=lambda uuid, period: (
                period % 50 and (uuid == 'a' or period // 20 % 2)
            ),
            reasons=(reasons := []),
        )
        self.assertLessEqual(slices_us[-1], 6_000)
        self.assertNotIn('ATC: held by the guard', reasons)

    def test_slice_gets_short_after_an_unrelated_rise_of_latency(self):
        # The load doubles in period 100 and has nothing to do with the
        # slice; afterwards shorter is better as before.
        def latency(slice_us, period):
            return (20_000 if period < 100 else 60_000) + slice_us

        self.assertLessEqual(replay(latency, periods=900)[-1], 6_000)

    def test_slice_falls_to_the_minimum_with_literal_atc(self):
        self.assertEqual(4_000, replay(shorter_is_worse, atc_literal=True)[-1])


class GuardTest(tests_base.TestCase):
    def guard(self):
        return feedback_guard.FeedbackGuard(window=3, margin=0.1, hold=10)

    def feed(self, subject, applied, wanted, latency, members=MEMBERS):
        return subject.step(applied, wanted, latency, members)

    def window(self, subject, applied, latency):
        """Feed one window of equal periods; return the last result."""
        for _ in range(3):
            result = self.feed(subject, applied, applied, latency)
        return result

    def test_slice_is_not_shortened_before_a_baseline(self):
        subject = self.guard()
        self.assertEqual(30, self.feed(subject, 30, 29, 100.0))
        self.assertEqual(30, self.feed(subject, 30, 29, 101.0))
        self.assertEqual(29, self.feed(subject, 30, 29, 99.0))

    def test_noise_does_not_start_a_hold(self):
        subject = self.guard()
        for latency in (50.0, 100.0, 150.0):
            self.feed(subject, 30, 30, latency)
        for latency in (80.0, 120.0, 140.0):
            result = self.feed(subject, 20, 20, latency)
        self.assertEqual(20, result)
        self.assertFalse(subject.holding)

    def feed_roots(self, subject, slice_us, more=0.0):
        """Feed three periods whose fourth roots vary.

        The standard error of the difference of two such windows is 0.289.

        :param more: by how many standard errors the latency is greater.
        """
        for root in (10.0, 10.5, 10.0):
            result = self.feed(
                subject, slice_us, slice_us, (root + more * 0.289) ** 4
            )
        return result

    def test_hold_starts_beyond_1_75_standard_errors(self):
        for more, worse in ((1.6, False), (1.9, True)):
            subject = self.guard()
            self.feed_roots(subject, 30)
            self.feed_roots(subject, 20, more)
            self.assertEqual(worse, subject.holding)

    def test_slice_is_proven_beyond_three_standard_errors(self):
        for less, proven_us in ((-2.8, 30), (-3.2, 20)):
            subject = self.guard()
            self.feed_roots(subject, 30)
            self.feed_roots(subject, 20, less)
            self.assertEqual(proven_us, self.feed_roots(subject, 15, 9.0))

    def test_hold_starts_if_a_falling_trend_reverses(self):
        subject = self.guard()
        # Latency falls down to slice 28; at 27 it is higher than at first.
        for slice_us, latency in ((30, 100.0), (29, 75.0), (28, 50.0)):
            self.feed(subject, slice_us, slice_us, latency)
        for slice_us in (27, 27, 27):
            result = self.feed(subject, slice_us, slice_us, 120.0)
        self.assertTrue(subject.holding)
        self.assertEqual(29, result)

    def test_latency_that_rose_without_a_shortening_is_the_new_baseline(self):
        subject = self.guard()
        self.window(subject, 30, 100.0)
        self.window(subject, 30, 200.0)
        self.assertFalse(subject.holding)
        self.assertEqual(29, self.feed(subject, 30, 29, 200.0))

    def test_holds_double_up_to_sixteenfold(self):
        subject = self.guard()
        holds = []
        self.feed(subject, 30, 30, 100.0)
        for _ in range(7):
            # The period in which a hold ends begins the next window.
            self.feed(subject, 30, 30, 100.0)
            self.feed(subject, 30, 30, 100.0)
            self.window(subject, 20, 200.0)
            periods = 0
            while subject.holding:
                self.feed(subject, 30, 30, 100.0)
                periods += 1
            holds.append(periods)
        self.assertEqual([10, 20, 40, 80, 160, 160, 160], holds)

    def test_worse_slice_is_taken_back_and_held(self):
        subject = self.guard()
        self.window(subject, 30, 100.0)
        result = self.window(subject, 20, 200.0)
        self.assertEqual(30, result)
        self.assertTrue(subject.holding)
        self.assertEqual(30, self.feed(subject, 30, 29, 100.0))

    def taken_back(self):
        """Return a guard that has just gone back from 20 to 30."""
        subject = self.guard()
        self.window(subject, 30, 100.0)
        self.window(subject, 20, 200.0)
        self.assertTrue(subject.holding)
        return subject

    def test_first_sample_after_going_back_does_not_count(self):
        # It still measures the shorter slice. If it counted, it would hide
        # that going back helped.
        subject = self.taken_back()
        for latency in (200.0, 100.0, 100.0, 100.0):
            self.assertEqual(30, self.feed(subject, 30, 29, latency))
        self.assertTrue(subject.holding)

    def test_new_baseline_is_measured_after_a_hold(self):
        subject = self.taken_back()
        while subject.holding:
            self.assertEqual(30, self.feed(subject, 30, 29, 100.0))
        # The period in which the hold ended begins the next window.
        answers = [self.feed(subject, 30, 29, 100.0) for _ in range(2)]
        self.assertEqual([30, 29], answers)

    def test_hold_ends_if_going_back_did_not_help(self):
        # Four samples: the first does not count, three make a window.
        subject = self.taken_back()
        for _ in range(3):
            self.assertEqual(30, self.feed(subject, 30, 29, 200.0))
            self.assertTrue(subject.holding)
        self.assertEqual(29, self.feed(subject, 30, 29, 200.0))
        self.assertFalse(subject.holding)

    def held_anew(self, subject, applied):
        """Find a shorter slice worse again; return the periods of hold."""
        self.window(subject, applied, 100.0)
        self.window(subject, applied - 5, 200.0)
        periods = 0
        while subject.holding:
            self.feed(subject, applied, applied, 100.0)
            periods += 1
        return periods

    def test_next_hold_is_short_after_going_back_did_not_help(self):
        subject = self.taken_back()
        for _ in range(4):
            self.feed(subject, 30, 30, 200.0)
        self.assertFalse(subject.holding)
        self.assertEqual(10, self.held_anew(subject, 30))
        # This time going back helped, so the next hold is twice as long.
        self.feed(subject, 30, 30, 100.0)
        self.feed(subject, 30, 30, 100.0)
        self.assertEqual(20, self.held_anew(subject, 30))

    def test_next_hold_is_short_after_a_shorter_slice_was_better(self):
        subject = self.guard()
        self.assertEqual(10, self.held_anew(subject, 30))
        for _ in range(5):
            self.feed(subject, 30, 30, 300.0)
        self.window(subject, 25, 100.0)
        self.assertEqual(10, self.held_anew(subject, 20))

    def test_hold_continues_if_going_back_gains_half_the_margin(self):
        for latency, holding in ((192.0, False), (188.0, True)):
            subject = self.taken_back()
            for _ in range(4):
                self.feed(subject, 30, 30, latency)
            self.assertEqual(holding, subject.holding, latency)

    def test_hold_continues_if_latency_rises_after_going_back_helped(self):
        subject = self.taken_back()
        for latency in (*[100.0] * 4, *[200.0] * 4):
            self.feed(subject, 30, 30, latency)
        self.assertTrue(subject.holding)

    def test_lengthening_is_allowed_during_a_hold(self):
        subject = self.guard()
        self.window(subject, 10, 100.0)
        self.window(subject, 5, 200.0)
        self.assertTrue(subject.holding)
        self.assertEqual(12, self.feed(subject, 10, 12, 100.0))

    def test_small_losses_add_up_to_a_hold(self):
        # Each step costs 6%, below the margin of 10%.
        subject = self.guard()
        applied, latency = 30, 100.0
        lowest = applied
        for _ in range(20):
            for _ in range(3):
                result = self.feed(subject, applied, applied - 1, latency)
            if result > applied:
                break
            applied, latency = result, latency * 1.06
            lowest = applied
        self.assertTrue(subject.holding)
        self.assertGreaterEqual(lowest, 27)

    def test_hold_continues_if_vms_come_and_go(self):
        subject = self.taken_back()
        nobody = frozenset()
        for members in (MEMBERS | {'b'}, frozenset('b'), nobody, {'b'}):
            self.feed(subject, 30, 30, 100.0, members=frozenset(members))
            self.assertTrue(subject.holding, members)

    def test_hold_ends_when_another_vm_replaces_the_held_one(self):
        subject = self.taken_back()
        self.feed(subject, 30, 30, 100.0, members=frozenset('b'))
        self.assertFalse(subject.holding)

    def test_unproven_slice_is_taken_back_when_vms_come(self):
        subject = self.guard()
        self.window(subject, 30, 100.0)
        self.assertEqual(29, self.feed(subject, 30, 29, 100.0))
        self.assertEqual(
            30, self.feed(subject, 29, 28, 100.0, members=MEMBERS | {'b'})
        )

    def test_slice_is_unproven_after_two_periods(self):
        # The samples before it are of the longer slice, so no proof either.
        subject = self.taken_back()
        for _ in range(4):
            self.feed(subject, 30, 30, 200.0)
        self.assertFalse(subject.holding)
        self.feed(subject, 20, 20, 50.0)
        self.assertEqual(
            30, self.feed(subject, 20, 20, 50.0, members=MEMBERS | {'b'})
        )

    def test_first_sample_after_vms_came_does_not_count(self):
        # It still measures the shorter slice, as after going back.
        subject = self.guard()
        self.window(subject, 30, 100.0)
        both = MEMBERS | {'b'}
        self.feed(subject, 29, 28, 100.0, members=both)
        answers = [
            self.feed(subject, 30, 29, 100.0, members=both) for _ in range(4)
        ]
        self.assertEqual([30, 30, 30, 29], answers)

    def test_proven_slice_stays_when_vms_come(self):
        subject = self.guard()
        for applied in (30, 20):
            self.window(subject, applied, 10.0 * applied)
        self.assertEqual(
            20, self.feed(subject, 20, 19, 200.0, members=MEMBERS | {'b'})
        )

    def test_periods_without_measurement_do_not_count(self):
        subject = self.guard()
        for _ in range(9):
            self.assertEqual(30, self.feed(subject, 30, 29, None))
