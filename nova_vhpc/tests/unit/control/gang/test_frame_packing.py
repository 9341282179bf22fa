# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gangs packed into a frame of slots that other hosts play, too."""

import itertools

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import model
from nova_vhpc.control.gang import frame_packing, matrix
from nova_vhpc.control.slots import frame
from nova_vhpc.tests import base

EVERY_FOURTH = {
    'a': model.ClusterSlot(0x1111),
    'b': model.ClusterSlot(0x4444),
}


def demands(part, *keys, width=2):
    return [matrix.Demand(key, width, part) for key in keys]


def two(part):
    """Return the packing of two gangs in two CPUs, each in its slots."""
    return frame_packing.pack(demands(part, 'a', 'b'), EVERY_FOURTH, 2, True)


def received(windows):
    """Return the part of the frame that each gang has."""
    parts = {}
    for window in windows:
        for key in window.gangs:
            parts[key] = parts.get(key, 0.0) + window.part
    return parts


def playing(windows, slot):
    """Return the gangs that run when a slot begins."""
    begin = slot / frame.SLOTS + 1e-6
    ends = itertools.accumulate(window.part for window in windows)
    for window, end in zip(windows, ends, strict=True):
        if begin < end:
            return window.gangs
    raise AssertionError('the windows are shorter than a frame')


class TestPack(base.TestCase):
    def test_clusters_run_when_their_slots_begin(self):
        packing = two(1 / 3)
        windows = packing.windows({}, 0.0)
        for slot in range(0, frame.SLOTS, 4):
            self.assertEqual({'a'}, playing(windows, slot))
            self.assertEqual({'b'}, playing(windows, slot + 2))

    def test_free_slots_make_up_what_slots_of_its_own_lack(self):
        packing = frame_packing.pack(
            demands(1 / 3, 'a', 'b'),
            EVERY_FOURTH,
            2,
            True,
            [matrix.Outside(2, 2 / 3, 1024)],
        )
        parts = received(packing.windows({}, 0.0))
        self.assertAlmostEqual(1 / 3, parts['a'], delta=0.02)
        self.assertAlmostEqual(1 / 3, parts['b'], delta=0.02)

    def test_gang_owed_less_than_its_slots_pauses_at_their_ends(self):
        packing = two(0.22)
        windows = packing.windows({}, 0.0)
        self.assertAlmostEqual(0.22, received(windows)['a'], delta=0.03)
        self.assertEqual({'a'}, windows[0].gangs)
        self.assertFalse(windows[1].gangs)

    def test_longer_pauses_shorten_windows(self):
        packing = two(1 / 3)
        before = received(packing.windows({}, 0.0))
        after = received(packing.windows({}, 0.1))
        self.assertAlmostEqual(
            0.1, sum(before.values()) - sum(after.values()), delta=0.03
        )

    def test_correction_gives_a_gang_more_of_the_free_slots(self):
        packing = two(1 / 3)
        parts = received(packing.windows({'a': 0.2}, 0.0))
        self.assertAlmostEqual(0.4, parts['a'], delta=0.02)
        self.assertAlmostEqual(1 / 3, parts['b'], delta=0.02)

    def test_without_other_vms_no_cpu_is_idle(self):
        packing = frame_packing.pack(
            demands(1 / 3, 'a', 'b', 'c'), EVERY_FOURTH, 2, False
        )
        windows = packing.windows({}, 0.0)
        self.assertTrue(all(window.gangs for window in windows))
        for part in received(windows).values():
            self.assertAlmostEqual(1 / 3, part, delta=0.02)

    def test_narrow_gang_runs_beside_a_cluster(self):
        packing = frame_packing.pack(
            [*demands(0.5, 'a', width=4), *demands(0.5, 'c', width=4)],
            {'a': model.ClusterSlot(0x5555)},
            8,
            True,
        )
        self.assertEqual({'a', 'c'}, packing.slots[0])

    def test_gang_that_finds_no_place_is_said(self):
        packing = frame_packing.pack(
            [*demands(1.0, 'a', width=8), *demands(0.5, 'c', width=8)],
            {'a': model.ClusterSlot(frame.ALL)},
            8,
            True,
        )
        self.assertEqual({'c'}, packing.rotation.excluded)

    @hypothesis.settings(deadline=None, max_examples=60)
    @hypothesis.given(
        strategies.lists(
            strategies.tuples(
                strategies.integers(1, 8),
                strategies.floats(0.02, 1.0),
                strategies.integers(1, frame.ALL),
            ),
            min_size=1,
            max_size=6,
        ),
        strategies.booleans(),
        strategies.floats(-0.3, 0.3),
    )
    def test_windows_fill_the_frame_and_need_no_more_cpus_than_there_are(
        self, gangs, is_shared, pause
    ):
        wanted = [
            matrix.Demand(str(number), width, part)
            for number, (width, part, _) in enumerate(gangs)
        ]
        agreed = {
            str(number): model.ClusterSlot(slots)
            for number, (_, _, slots) in enumerate(gangs)
            if number % 2
        }
        packing = frame_packing.pack(wanted, agreed, 8, is_shared)
        windows = packing.windows({'0': 0.3}, pause)
        self.assertAlmostEqual(1.0, sum(window.part for window in windows))
        widths = {one.key: one.width for one in wanted}
        for window in windows:
            self.assertGreater(window.part, 0.0)
            self.assertLessEqual(sum(widths[key] for key in window.gangs), 8)
        for slot, keys in enumerate(packing.slots):
            if keys:
                self.assertIn(playing(windows, slot), (keys, frozenset()))
