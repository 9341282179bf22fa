# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""VMs are held at their entitlement by what they received."""

from nova_vhpc.control.gang import feedback
from nova_vhpc.tests import base

TICK_US = 100_000.0


class FeedbackTestCase(base.TestCase):
    def setUp(self):
        super().setUp()
        self.feedback = feedback.Feedback(0.05)

    def advance(self, seconds, gangs, outside, mix=None):
        """Give the same CPU times for some seconds.

        :param gangs: received CPUs by uuid; each VM is entitled to one.
        :param mix: VMs that never sleep; all by default.
        """
        for _ in range(round(seconds * 10)):
            self.feedback.advance(
                TICK_US,
                {
                    uuid: feedback.Account(1.0, cpus)
                    for uuid, cpus in gangs.items()
                },
                {
                    uuid: feedback.Account(1.0, cpus)
                    for uuid, cpus in outside.items()
                },
                frozenset({**gangs, **outside} if mix is None else mix),
            )

    def play(self):
        """Watch a gang and a hog until their windows are played."""
        self.advance(3.1, {'a': 1.0}, {'h': 1.0})
        self.assertTrue(self.feedback.playing)


class TestWatching(FeedbackTestCase):
    def test_new_mix_is_watched_without_windows(self):
        self.advance(2.9, {'a': 1.0}, {'h': 1.0})
        self.assertFalse(self.feedback.playing)
        self.assertEqual(feedback.WATCHED, self.feedback.reason)
        self.advance(0.2, {'a': 1.0}, {'h': 1.0})
        self.assertTrue(self.feedback.playing)
        self.assertEqual('', self.feedback.reason)

    def test_host_is_watched_again_if_a_vm_comes(self):
        self.play()
        self.advance(0.1, {'a': 1.0, 'b': 1.0}, {'h': 1.0})
        self.assertFalse(self.feedback.playing)

    def test_windows_go_on_if_a_vm_is_not_measured_once(self):
        self.play()
        self.advance(1, {'a': 1.2}, {'h': 0.8})
        correction = self.feedback.pause_correction
        self.advance(0.1, {'a': 1.2}, {}, mix='ah')
        self.advance(0.1, {'a': 1.2}, {'h': 0.8})
        self.assertTrue(self.feedback.playing)
        self.assertGreaterEqual(self.feedback.pause_correction, correction)

    def test_windows_go_on_if_a_vm_that_sleeps_comes(self):
        for gangs, outside in (({}, {'s': 1.0}), ({'s': 1.0}, {})):
            self.feedback = feedback.Feedback(0.05)
            self.play()
            self.advance(
                1, {'a': 1.0, **gangs}, {'h': 1.0, **outside}, mix='ah'
            )
            self.assertTrue(self.feedback.playing)
            self.assertEqual(0.0, self.feedback.correction(['s']))

    def test_host_is_watched_again_if_the_policy_asks_for_it(self):
        self.play()
        self.feedback.watch_again()
        self.assertFalse(self.feedback.playing)
        self.advance(3.1, {'a': 1.0}, {'h': 1.0})
        self.assertTrue(self.feedback.playing)

    def test_host_without_gangs_never_plays(self):
        self.advance(10, {}, {'h': 1.0})
        self.assertFalse(self.feedback.playing)

    def test_vm_that_lacks_as_much_without_windows_misses_less(self):
        self.advance(3.1, {'a': 1.04}, {'h': 0.96})
        self.advance(4, {'a': 1.04}, {'h': 0.96})
        self.assertLess(self.feedback.missing, 0.01)

    def test_vm_is_not_believed_to_lack_much_under_stock_linux(self):
        self.advance(3.1, {'a': 1.5}, {'h': 0.5})
        self.advance(0.5, {'a': 1.5}, {'h': 0.5})
        self.assertAlmostEqual(
            1 - 0.5 / feedback.LEAST_ON_STOCK,
            self.feedback.missing,
            delta=0.01,
        )


class TestCorrections(FeedbackTestCase):
    def test_no_correction_while_all_receive_their_entitlement(self):
        self.play()
        self.advance(5, {'a': 1.0}, {'h': 1.0})
        self.assertEqual(0.0, self.feedback.pause_correction)
        self.assertEqual(0.0, self.feedback.correction(['a']))

    def test_pauses_grow_for_vms_outside_and_shrink_for_gangs(self):
        for gang, hog in ((1.2, 0.8), (0.6, 0.4), (0.8, 1.2)):
            self.feedback = feedback.Feedback(0.05)
            self.play()
            corrections = [0.0]
            for _ in range(2):
                self.advance(1, {'a': gang}, {'h': hog})
                corrections.append(self.feedback.pause_correction)
            self.assertEqual(
                corrections, sorted(set(corrections), reverse=gang < hog)
            )

    def test_gang_that_is_short_gets_more_of_the_rotation(self):
        self.advance(3.1, {'a': 1.0, 'b': 1.0}, {})
        self.advance(2, {'a': 0.8, 'b': 1.2}, {})
        self.assertGreater(self.feedback.correction(['a']), 0)
        self.assertLess(self.feedback.correction(['b']), 0)
        self.assertEqual(
            self.feedback.correction(['a']),
            self.feedback.correction(['a', 'b']),
        )

    def test_unknown_member_gives_no_correction(self):
        self.play()
        self.assertEqual(0.0, self.feedback.correction(['z']))

    def test_corrections_are_bounded_however_long_a_vm_is_short(self):
        self.feedback = feedback.Feedback(1.0)
        self.play()
        self.advance(4.5, {'a': 2.0}, {'h': 0.0})
        self.assertTrue(self.feedback.playing)
        self.assertAlmostEqual(
            # Half of the CPU time is for VMs in no gang.
            feedback.PAUSE_PER_S * 0.5 * feedback.MOST_DEBT_S,
            self.feedback.pause_correction,
        )
        self.assertAlmostEqual(
            -feedback.SHARE_PER_S * feedback.MOST_DEBT_S,
            self.feedback.correction(['a']),
        )

    def test_correction_ends_soon_after_the_debt_is_paid(self):
        # Bounded debts: minutes of shortage do not take minutes to undo.
        self.play()
        self.advance(4.5, {'a': 1.9}, {'h': 0.1})
        self.advance(2.5, {'a': 0.7}, {'h': 1.3})
        self.assertLessEqual(self.feedback.pause_correction, 0.01)

    def test_no_debt_grows_while_no_windows_are_played(self):
        self.advance(2.9, {'a': 1.5}, {'h': 0.5})
        self.assertEqual(0.0, self.feedback.correction(['h']))

    def test_vm_that_gets_all_of_its_time_at_once_lacks_nothing(self):
        self.play()
        for _ in range(8):
            self.advance(0.1, {'a': 4.0}, {'h': 0.0})
            for _ in range(3):
                self.advance(0.1, {'a': 0.0}, {'h': 4 / 3})
        self.assertLess(self.feedback.missing, 0.05)

    def test_what_something_else_takes_from_all_alike_is_not_counted(self):
        self.play()
        self.advance(20, {'a': 0.6}, {'h': 0.6})
        self.assertTrue(self.feedback.playing)
        self.assertEqual(0.0, self.feedback.pause_correction)
        self.assertAlmostEqual(0.0, self.feedback.missing)

    def test_parts_converge_if_a_hog_uses_half_of_what_pauses_add(self):
        # A model of two vCPUs of a hog that sit on one CPU at times: they
        # get less of a pause than its length.
        self.play()
        received = 0.8
        for _ in range(600):
            self.advance(0.1, {'a': 2.0 - received}, {'h': received})
            received = 0.8 + 0.5 * self.feedback.pause_correction * 2
        self.assertTrue(self.feedback.playing)
        self.assertGreater(received, 0.95)
        self.assertLess(self.feedback.missing, 0.05)

    def test_windows_of_no_gang_are_no_trial(self):
        # Its VM counts outside now: the mix of VMs stays the same.
        self.play()
        self.advance(20, {}, {'a': 1.2, 'h': 0.8})
        self.assertFalse(self.feedback.playing)
        self.assertFalse(self.feedback.is_harmful)
        self.advance(0.1, {'a': 1.0}, {'h': 1.0})
        self.assertTrue(self.feedback.playing)


class TestHarm(FeedbackTestCase):
    def test_windows_go_off_if_a_vm_lacks_more_than_the_limit(self):
        for limit, seconds, gang, hog, playing in (
            (0.05, 9, 1.2, 0.8, False),
            # What runs in windows may lack CPU time.
            (0.05, 60, 0.8, 1.2, True),
            (0.05, 60, 1.04, 0.96, True),
            (0.3, 60, 1.2, 0.8, True),
            # Borne for as long as corrections need.
            (0.05, 4.9, 1.05, 0.95, True),
            (0.05, 1.2, 2.0, 0.0, True),
            (0.05, 2.5, 2.0, 0.0, False),
            # Windows in which nothing runs cost all VMs alike, too.
            (0.05, 20, 0.4, 0.4, False),
        ):
            self.feedback = feedback.Feedback(limit)
            self.play()
            self.advance(seconds, {'a': gang}, {'h': hog})
            self.assertEqual(playing, self.feedback.playing)
            self.assertEqual(playing, not self.feedback.is_harmful)

    def test_harm_that_ends_in_time_leaves_windows_on(self):
        self.play()
        for _ in range(10):
            self.advance(2, {'a': 1.2}, {'h': 0.8})
            self.advance(4, {'a': 0.95}, {'h': 1.05})
        self.assertTrue(self.feedback.playing)

    def seconds_off(self):
        """Return how long windows stay off after the harm."""
        self.advance(9, {'a': 1.2}, {'h': 0.8})
        self.assertFalse(self.feedback.playing)
        seconds = 0.0
        while not self.feedback.playing:
            self.advance(1, {'a': 1.0}, {'h': 1.0})
            seconds += 1
        return seconds

    def test_windows_are_tried_again_later_each_time(self):
        self.play()
        first, second, third = (self.seconds_off() for _ in range(3))
        # Corrections begin anew.
        self.assertEqual(0.0, self.feedback.pause_correction)
        self.assertEqual(0.0, self.feedback.correction(['a']))
        least_s = feedback.LEAST_OFF_US / 1e6
        self.assertAlmostEqual(least_s, first, delta=5)
        self.assertAlmostEqual(2 * least_s, second, delta=5)
        self.assertAlmostEqual(4 * least_s, third, delta=5)


class TestShares(FeedbackTestCase):
    def test_shares_tell_what_each_vm_received(self):
        self.play()
        self.advance(30, {'a': 1.04}, {'h': 0.96})
        shares = self.feedback.shares()
        self.assertAlmostEqual(1.04, shares.received['a'], places=2)
        self.assertAlmostEqual(0.96, shares.received['h'], places=2)
        self.assertAlmostEqual(0.04, shares.missing, places=2)
        self.assertEqual(1.0, shares.played)

    def test_vm_that_is_gone_is_forgotten(self):
        self.play()
        self.advance(0.1, {'a': 1.0}, {})
        self.assertEqual({'a'}, set(self.feedback.shares().received))
