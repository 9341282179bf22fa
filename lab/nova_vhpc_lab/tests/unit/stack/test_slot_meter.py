# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.tests import base
from nova_vhpc_lab.stack import slot_meter


class TestParts(base.TestCase):
    def test_slots_of_all_frames_are_added_up(self):
        # Frames of two slots of 10 us; the first slot is run alone.
        readings = [(0, 0), (10, 10), (20, 10), (30, 20), (40, 20)]
        self.assertEqual([1.0, 0.0], slot_meter.parts(readings, 10, 2))

    def test_time_of_a_reading_counts_for_the_slot_in_its_middle(self):
        readings = [(0, 0), (16, 8), (20, 12)]
        self.assertEqual([0.5, 1.0], slot_meter.parts(readings, 10, 2))

    def test_slot_without_a_reading_was_not_run(self):
        self.assertEqual([0.5, 0.0], slot_meter.parts([(0, 0), (8, 4)], 10, 2))
