# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Slots of a frame are shared like buddies."""

import hypothesis
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.control.slots import frame

MASKS = st.integers(0, frame.ALL)


class FrameTest(base.BaseTestCase):
    def test_places_of_one_size_share_out_the_frame(self) -> None:
        for count in frame.COUNTS:
            masks = [frame.mask(index, count) for index in range(count)]
            self.assertEqual(frame.ALL, sum(masks))
            self.assertEqual(
                {frame.SLOTS // count}, {one.bit_count() for one in masks}
            )

    def test_any_two_places_are_disjoint_or_nested(self) -> None:
        masks = [
            frame.mask(index, count)
            for count in frame.COUNTS
            for index in range(count)
        ]
        for one in masks:
            for other in masks:
                self.assertIn(one & other, (0, one, other))

    def test_parts_that_fit_find_places_from_the_largest_down(self) -> None:
        taken = 0
        for count in (2, 8, 8, 16, 16, 16, 16):
            place = frame.choose(count, taken, 0, None)
            assert place is not None
            self.assertEqual(count, place.every)
            taken |= frame.mask(*place)
        self.assertEqual(frame.ALL, taken)

    @hypothesis.given(MASKS, MASKS, st.sampled_from(frame.COUNTS))
    def test_chosen_place_is_not_blocked(
        self, blocked: int, avoided: int, count: int
    ) -> None:
        place = frame.choose(count, blocked, avoided, None)
        if place is None:
            self.assertEqual(frame.ALL, blocked)
        else:
            self.assertFalse(frame.mask(*place) & blocked)
            self.assertGreaterEqual(place.every, count)
            # What was chosen once stays, whomever it drives away.
            again = frame.choose(count, blocked, frame.ALL, place)
            self.assertEqual(place, again)

    def test_choice_drives_away_as_few_as_possible(self) -> None:
        avoided = frame.ALL & ~frame.mask(3, 4)
        self.assertEqual(frame.Place(3, 4), frame.choose(4, 0, avoided, None))

    def test_cluster_without_room_gets_half_of_its_slots(self) -> None:
        blocked = frame.ALL & ~frame.mask(5, 8)
        self.assertEqual(frame.Place(5, 8), frame.choose(4, blocked, 0, None))

    def test_cluster_gets_more_slots_when_there_is_room(self) -> None:
        place = frame.choose(4, 0, 0, frame.Place(5, 8))
        # It keeps those that it has, for hosts that hear of it later.
        self.assertEqual(frame.Place(1, 4), place)


class CountTest(base.BaseTestCase):
    def test_part_is_rounded_down_to_a_power_of_two(self) -> None:
        for part, count in (
            (1.0, 1),
            (0.5, 2),
            (0.3, 4),
            (0.2, 8),
            (0.01, 16),
        ):
            self.assertEqual(count, frame.count_for(part))

    def test_nearly_a_power_of_two_is_enough(self) -> None:
        self.assertEqual(4, frame.count_for(0.23))

    def test_small_change_changes_nothing(self) -> None:
        self.assertEqual(8, frame.count_for(0.21))
        self.assertEqual(4, frame.count_for(0.21, before=4))
        self.assertEqual(8, frame.count_for(0.12, before=4))
        self.assertEqual(4, frame.count_for(0.25, before=8))
