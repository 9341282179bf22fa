# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gangs are packed into the slots of a rotation."""

import os
import subprocess
import sys
import unittest.mock

import hypothesis
from hypothesis import strategies

from nova_vhpc.control.gang import matrix
from nova_vhpc.tests import base


@strategies.composite
def hosts(draw):
    """Return demands of gangs that the CPUs can meet, and the CPUs."""
    cpus = draw(strategies.sampled_from((2, 3, 4, 8, 16, 32)))
    widths = draw(
        strategies.lists(strategies.integers(2, cpus), min_size=1, max_size=8)
    )
    load = draw(strategies.floats(0.05, 1.0))
    parts = [
        draw(strategies.floats(0.2, 1.0)) * load * cpus / len(widths) / width
        for width in widths
    ]
    return [
        matrix.Demand(f'g{number}', width, min(1.0, part))
        for number, (width, part) in enumerate(zip(widths, parts, strict=True))
    ], cpus


def rotation(*demands, cpus, is_shared=False, outside=()):
    """Return the rotation of gangs, each given by key, width and part."""
    return matrix.rotation(
        [matrix.Demand(*one) for one in demands], cpus, is_shared, outside
    )


def clear_parts(rotation, widths, cpus):
    """Return the part of the host's CPU time that no gang has."""
    return sum(
        slot.part * (1 - sum(widths[key] for key in slot.gangs) / cpus)
        for slot in rotation.slots
    )


THIRDS = [(key, 2, 1 / 3) for key in 'abc']
TWO_THIRDS = [(key, 4, 2 / 3) for key in 'abc']
HALVES = [('a', 2, 0.5), ('b', 2, 0.5)]


class TestRotation(base.TestCase):
    def test_gangs_have_these_slots_and_parts(self):
        for demands, cpus, is_shared, slots, served in (
            ([], 4, False, [], {}),
            # As wide as the host.
            (THIRDS, 2, False, 'abc', dict.fromkeys('abc', 1 / 3)),
            # Side by side; CPUs that nobody else needs go to gangs.
            (HALVES, 4, False, ['ab'], {'a': 1.0, 'b': 1.0}),
            # Two at a time.
            (
                *(TWO_THIRDS, 8, False, ['ab', 'ac', 'bc']),
                dict.fromkeys('abc', 2 / 3),
            ),
            (
                [('a', 2, 0.8), ('b', 2, 0.2)],
                2,
                False,
                'ab',
                {'a': 0.8, 'b': 0.2},
            ),
            # A pause for VMs in no gang.
            (HALVES[:1], 2, True, ['a', ''], {'a': 0.5}),
        ):
            found = rotation(*demands, cpus=cpus, is_shared=is_shared)
            self.assertEqual(
                set(map(frozenset, slots)),
                {slot.gangs for slot in found.slots},
            )
            self.assertEqual(frozenset(), found.excluded)
            for key, part in served.items():
                self.assertAlmostEqual(part, found.served[key], delta=0.01)

    def test_gang_that_does_not_fit_costs_no_other_its_slots(self):
        for demands, cpus, excluded in (
            ([('a', 4, 0.5), ('b', 2, 0.5)], 2, {'a'}),
            # While the narrow one runs, the wide one cannot.
            ([('w', 8, 0.6), ('n', 2, 0.9)], 8, {'w'}),
            # It is owed too little for a slot.
            ([('a', 2, 0.498), ('b', 2, 0.498), ('l', 2, 0.004)], 2, {'l'}),
        ):
            found = rotation(*demands, cpus=cpus)
            self.assertEqual(excluded, found.excluded)
            self.assertEqual(
                {key for key, _, _ in demands} - excluded, set(found.served)
            )
            for key, _, part in demands:
                if key not in excluded:
                    self.assertGreaterEqual(found.served[key], 0.94 * part)

    def test_narrow_vm_outside_has_its_cpu_in_nine_tenths_of_the_time(self):
        # A vCPU can use one CPU of a pause only: its part needs slots that
        # leave a CPU clear.
        found = rotation(
            ('a', 2, 0.75),
            ('b', 2, 0.75),
            cpus=4,
            is_shared=True,
            outside=(matrix.Outside(1, 0.9, 1024),),
        )
        clear = sum(slot.part for slot in found.slots if len(slot.gangs) < 2)
        self.assertGreaterEqual(clear, 0.9 * (1 - matrix.GOOD_ENOUGH) - 1e-9)

    def test_gangs_run_together_for_less_time_if_a_vm_outside_lacks(self):
        alone = rotation(('a', 2, 0.5), cpus=2, is_shared=True)
        beside = rotation(
            ('a', 2, 0.5),
            cpus=2,
            is_shared=True,
            outside=(matrix.Outside(1, 0.64, 1024),),
        )
        self.assertLess(beside.served['a'], alone.served['a'])

    @hypothesis.given(hosts(), strategies.booleans())
    @hypothesis.settings(deadline=None, max_examples=60)
    def test_gangs_get_their_parts_and_no_slot_is_too_wide(
        self, host, is_shared
    ):
        demands, cpus = host
        found = matrix.rotation(demands, cpus, is_shared)
        widths = {one.key: one.width for one in demands}
        for slot in found.slots:
            self.assertGreater(slot.part, 0)
            self.assertLessEqual(sum(widths[key] for key in slot.gangs), cpus)
        left = [one for one in demands if one.key not in found.excluded]
        self.assertEqual({one.key for one in left}, set(found.served))
        if not left:
            self.assertEqual((), found.slots)
            return
        self.assertAlmostEqual(1.0, sum(slot.part for slot in found.slots))
        for one in left:
            self.assertGreaterEqual(
                found.served[one.key],
                one.part * (1 - matrix.GOOD_ENOUGH) - 1e-9,
            )
            self.assertAlmostEqual(
                found.served[one.key],
                sum(
                    slot.part for slot in found.slots if one.key in slot.gangs
                ),
            )

    @hypothesis.given(hosts())
    @hypothesis.settings(deadline=None, max_examples=60)
    def test_vms_in_no_gang_keep_what_gangs_are_not_entitled_to(self, host):
        demands, cpus = host
        found = matrix.rotation(demands, cpus, True)
        left = [one for one in demands if one.key not in found.excluded]
        if not left:
            return
        due = cpus - sum(one.width * one.part for one in left)
        widths = {one.key: one.width for one in demands}
        self.assertGreaterEqual(
            cpus * clear_parts(found, widths, cpus),
            due - matrix.GOOD_ENOUGH * max(due, 0.1) - 1e-6,
        )

    @hypothesis.given(hosts(), strategies.randoms())
    @hypothesis.settings(deadline=None, max_examples=30)
    def test_hosts_with_the_same_gangs_have_the_same_rotation(
        self, host, chance
    ):
        demands, cpus = host
        permuted = list(demands)
        chance.shuffle(permuted)
        self.assertEqual(
            matrix.rotation(demands, cpus, True),
            matrix.rotation(permuted, cpus, True),
        )

    def test_rotation_does_not_depend_on_the_hashes_of_names(self):
        program = """
from nova_vhpc.control.gang.matrix import Demand, rotation
demands = [
    Demand(f'g{n}', 2 + n % 4, 1.6 / (2 + n % 4) * (0.7 + n % 5 * 0.1))
    for n in range(9)
]
print([slot.part for slot in rotation(demands, 16, True).slots])
"""
        lengths = {
            subprocess.check_output(
                [sys.executable, '-c', program],
                env={**os.environ, 'PYTHONHASHSEED': seed},
            )
            for seed in '0123'
        }
        self.assertEqual(1, len(lengths), lengths)

    def test_thirty_gangs_on_64_cpus_take_bounded_work(self):
        widths = (2, 4, 8, 16, 2, 4)
        total = sum(widths) * 5
        demands = [
            matrix.Demand(f'g{number:02}', width, 56 / total)
            for number, width in enumerate(widths * 5)
        ]
        with unittest.mock.patch.object(
            matrix, '_fit', side_effect=matrix._fit
        ) as fit:
            found = matrix.rotation(demands, 64, True)
        self.assertLessEqual(len(found.slots), max(matrix.SLOT_COUNTS))
        self.assertLessEqual(len(found.excluded), 15)
        self.assertLess(
            fit.call_count,
            matrix.CAPACITIES
            * len(matrix.SLOT_COUNTS)
            * len(matrix.REDUCTIONS)
            * (1 + len(found.excluded)),
        )


class TestCorrected(base.TestCase):
    def setUp(self):
        super().setUp()
        self.two = rotation(('a', 2, 0.5), ('b', 2, 0.5), cpus=2)
        self.paused = rotation(('a', 2, 0.5), cpus=2, is_shared=True)

    def parts(self, found, corrections=None, pause=0.0):
        slots = matrix.corrected(found, corrections or {}, pause)
        self.assertAlmostEqual(1.0, sum(slot.part for slot in slots))
        return {''.join(sorted(slot.gangs)): slot.part for slot in slots}

    def test_no_correction_changes_nothing(self):
        self.assertEqual({'a': 0.5, 'b': 0.5}, self.parts(self.two))

    def test_gang_with_a_debt_gets_a_longer_slot(self):
        parts = self.parts(self.two, {'a': 0.2, 'b': -0.2})
        self.assertAlmostEqual(0.6, parts['a'], delta=0.01)

    def test_pause_is_added_where_there_is_none(self):
        parts = self.parts(self.two, pause=0.2)
        self.assertAlmostEqual(0.2, parts[''], delta=0.02)
        self.assertAlmostEqual(parts['a'], parts['b'])

    def test_longer_pause_shortens_the_slots_of_gangs(self):
        before, after = (
            self.parts(self.paused),
            self.parts(self.paused, pause=0.2),
        )
        self.assertGreater(after[''], before[''])
        self.assertLess(after['a'], before['a'])

    def test_negative_pause_gives_gangs_the_time(self):
        before, after = (
            self.parts(self.paused),
            self.parts(self.paused, pause=-0.2),
        )
        self.assertLess(after[''], before[''])
        self.assertGreater(after['a'], before['a'])

    def test_pause_that_is_all_taken_away_is_left_out(self):
        self.assertEqual({'a': 1.0}, self.parts(self.paused, pause=-0.9))
