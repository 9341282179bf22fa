# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Which slots of a frame a cluster takes."""

import hypothesis
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.control.slots import frame

MASKS = st.integers(0, frame.ALL)
COUNTS = st.integers(1, frame.SLOTS)


class FrameTest(base.BaseTestCase):
    @hypothesis.given(COUNTS, MASKS, MASKS, MASKS)
    def test_chosen_slots_are_free_and_stay(
        self, wanted: int, blocked: int, avoided: int, held: int
    ) -> None:
        chosen = frame.choose(wanted, blocked, avoided, held)
        free = frame.ALL & ~blocked
        self.assertFalse(chosen & blocked)
        self.assertEqual(min(wanted, free.bit_count()), chosen.bit_count())
        kept = held & free
        self.assertIn(kept & chosen, (kept, chosen))
        # What was chosen once stays, whomever it drives away.
        self.assertEqual(
            chosen, frame.choose(wanted, blocked, frame.ALL, chosen)
        )

    @hypothesis.given(COUNTS, MASKS, MASKS)
    def test_choice_drives_away_as_few_as_possible(
        self, wanted: int, blocked: int, avoided: int
    ) -> None:
        chosen = frame.choose(wanted, blocked, avoided, 0)
        unharmed = frame.ALL & ~(blocked | avoided)
        self.assertEqual(
            max(0, chosen.bit_count() - unharmed.bit_count()),
            (chosen & avoided).bit_count(),
        )

    @hypothesis.given(COUNTS, MASKS)
    def test_fewer_slots_are_some_of_those_held(
        self, wanted: int, held: int
    ) -> None:
        chosen = frame.choose(wanted, 0, 0, held)
        if held.bit_count() >= wanted:
            self.assertEqual(chosen, chosen & held)

    def test_slots_are_spread_over_the_frame(self) -> None:
        for wanted, mask in ((2, 0x0101), (4, 0x1111), (8, 0x5555)):
            self.assertEqual(mask, frame.choose(wanted, 0, 0, 0))

    @hypothesis.given(MASKS)
    def test_numbers_and_part(self, mask: int) -> None:
        numbers = list(frame.numbers(mask))
        self.assertEqual(mask, sum(1 << number for number in numbers))
        self.assertEqual(mask.bit_count() / frame.SLOTS, frame.part(numbers))


class CountTest(base.BaseTestCase):
    def test_part_is_rounded_down(self) -> None:
        for part, count in ((1.0, 16), (0.5, 8), (0.3, 5), (0.01, 1)):
            self.assertEqual(count, frame.count_for(part))

    @hypothesis.given(st.floats(0.07, 1.0), st.floats(-0.05, 0.05))
    def test_small_changes_change_nothing(
        self, part: float, change: float
    ) -> None:
        before = frame.count_for(part)
        after = frame.count_for(part * (1 + change), before)
        if part > 0.2:
            self.assertEqual(before, after)
        self.assertLessEqual(abs(before - after), 1)

    @hypothesis.given(COUNTS)
    def test_least_is_a_part_of_what_is_wanted(self, wanted: int) -> None:
        least = frame.least(wanted)
        self.assertLessEqual(1, least)
        self.assertLessEqual(least, wanted)
        if wanted >= 15:
            self.assertEqual(wanted, least)
