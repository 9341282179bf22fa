# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova_vhpc.tests import base
from nova_vhpc_lab.stack.demo import slots

SERVER, OTHER = 'server', 'other'


def status(slot, turns, playing=True):
    """Return the status of an agent, with windows of 50 ms or more."""
    return {
        'vms': [{'uuid': SERVER, 'cluster': 'pair'}],
        'peers': {'slots': {'clusters': {'pair': {'slot': slot}}}},
        'windows': {
            'playing': playing,
            'turns': [
                {'width_us': width_us, 'favoured': favoured}
                for width_us, favoured in turns
            ],
        },
    }


class TestPlace(base.TestCase):
    def test_windows_in_every_other_slot_are_favoured_slots(self):
        turns = [(50_000, [SERVER]), (50_000, [])] * 8
        place = slots.place(
            status({'slots': [*range(0, 16, 2)]}, turns), SERVER
        )
        self.assertEqual(50_000, place.slot_us)
        self.assertEqual(frozenset(range(0, 16, 2)), place.favoured)
        self.assertEqual(place.favoured, place.agreed)

    def test_window_of_several_slots_covers_each_of_them(self):
        turns = [(200_000, [OTHER]), (150_000, [SERVER]), (450_000, [])]
        place = slots.place(status({'slots': [4]}, turns), SERVER)
        self.assertEqual({4, 5, 6}, place.favoured)
        self.assertEqual({4}, place.agreed)

    def test_windows_that_are_not_played_favour_nobody(self):
        turns = [(50_000, [SERVER])] * 16
        place = slots.place(status(None, turns, playing=False), SERVER)
        self.assertEqual((0, set()), (place.slot_us, place.favoured))

    def test_agent_without_slots_has_agreed_on_none(self):
        place = slots.place({'vms': [], 'peers': {}}, SERVER)
        self.assertEqual(frozenset(), place.agreed)


class TestSplit(base.TestCase):
    def test_means_of_the_slots_inside_and_outside_of_windows(self):
        self.assertEqual(
            (0.75, 0.25), slots.split([1.0, 0.25, 0.5, 0.25], {0, 2})
        )

    def test_member_favoured_in_all_slots_has_nothing_outside(self):
        self.assertEqual((0.5, 0.0), slots.split([0.5, 0.5], {0, 1}))
