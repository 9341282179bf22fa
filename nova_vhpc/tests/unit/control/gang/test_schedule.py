# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""From gangs to windows: which take turns, which run side by side."""

import hypothesis
from hypothesis import strategies

from nova_vhpc.control.gang import schedule
from nova_vhpc.tests import base as tests_base


def one_gang(key, cpus, weight=512.0):
    return schedule.Gang(key, frozenset({key}), frozenset(cpus), weight)


def gangs_on_one_cpu(number, cpu):
    """Return gangs that must take turns on one CPU."""
    return [one_gang(f'{cpu}.{n}', {cpu}) for n in range(number)]


class CountedCpus(frozenset):
    """Set of CPUs that counts comparisons with other sets."""

    compared = 0

    def __and__(self, other):
        CountedCpus.compared += 1
        return frozenset.__and__(self, other)


class TestIslands(tests_base.TestCase):
    """Gangs in one island share CPUs, directly or through others."""

    def gang(self, key, cpus):
        return schedule.Gang(key, frozenset({key}), CountedCpus(cpus), 1.0)

    @hypothesis.given(
        places=strategies.lists(
            strategies.frozensets(strategies.integers(0, 19), min_size=1),
            max_size=12,
        )
    )
    def test_islands_share_no_cpu_and_cannot_be_divided(self, places):
        gangs = [self.gang(f'g{n}', cpus) for n, cpus in enumerate(places)]
        islands = schedule.islands(gangs)
        self.assertEqual(
            sorted(one.key for one in gangs),
            sorted(one.key for island in islands for one in island),
        )
        for number, island in enumerate(islands):
            self.assertEqual(sorted(island, key=lambda one: one.key), island)
            cpus = frozenset().union(*(one.cpus for one in island))
            for other in islands[:number]:
                self.assertLess(other[0].key, island[0].key)
                self.assertFalse(
                    cpus & frozenset().union(*(one.cpus for one in other))
                )
            reached, rest = set(island[0].cpus), island[1:]
            while near := [one for one in rest if one.cpus & reached]:
                reached = reached.union(*(one.cpus for one in near))
                rest = [one for one in rest if one not in near]
            self.assertEqual([], rest)

    def test_comparisons_do_not_grow_with_the_square_of_gangs(self):
        gangs = [
            self.gang(str(n), {n % 256, 256 + n % 256}) for n in range(768)
        ]
        CountedCpus.compared = 0
        self.assertEqual(256, len(schedule.islands(gangs)))
        self.assertLess(CountedCpus.compared, 5 * len(gangs))


class TestRotation(tests_base.TestCase):
    """Widths of windows and pauses in a rotation."""

    def gangs(self, number):
        return [one_gang(str(n), {0, 1}) for n in range(number)]

    @hypothesis.given(
        number=strategies.integers(1, 9),
        part=strategies.floats(0.05, 0.9),
        window_us=strategies.integers(5_000, 200_000),
    )
    def test_pauses_have_the_requested_part(self, number, part, window_us):
        timeline = schedule.rotation(
            self.gangs(number), window_us, part, 20_000
        )
        pauses = sum(w.width_us for w in timeline if not w.favoured)
        whole = schedule.length_us(timeline)
        self.assertAlmostEqual(part, pauses / whole, 2)

    def test_single_gang_has_a_window_only_if_requested(self):
        self.assertEqual(
            [], schedule.rotation(self.gangs(1), 50_000, 0.0, 20_000)
        )
        self.assertEqual(
            [schedule.Window(50_000, frozenset({'0'}))],
            schedule.rotation(
                self.gangs(1), 50_000, 0.0, 20_000, single_gang_window=True
            ),
        )

    def test_pauses_are_not_shorter_than_the_minimum_width(self):
        for part, number in ((0.05, 1), (0.1, 1), (0.2, 2), (0.5, 4)):
            pauses = [
                window.width_us
                for window in schedule.rotation(
                    self.gangs(4), 50_000, part, 20_000
                )
                if not window.favoured
            ]
            self.assertEqual(number, len(pauses))
            if number > 1:
                self.assertGreaterEqual(min(pauses), 20_000)

    def test_gangs_favoured_together_do_not_widen_their_window(self):
        a, b, c = (
            one_gang(key, cpus)
            for key, cpus in (('a', {0, 1}), ('b', {1, 2}), ('c', {2, 3}))
        )
        timeline = schedule.rotation([a, b, c], 50_000, 0.0, 20_000)
        self.assertEqual(
            [
                schedule.Window(50_000, frozenset('ac')),
                schedule.Window(50_000, frozenset('b')),
            ],
            timeline,
        )

    def test_shorter_rotation_is_repeated_when_merged(self):
        short, long = (
            schedule.rotation(
                gangs_on_one_cpu(size, cpu=size),
                50_000,
                0.0,
                1,
            )
            for size in (2, 4)
        )
        self.assertEqual(
            [(50_000, {f'2.{n % 2}', f'4.{n}'}) for n in range(4)],
            [
                (window.width_us, window.favoured)
                for window in schedule.merge([short, long])
            ],
        )

    @hypothesis.given(
        sizes=strategies.lists(strategies.integers(2, 5), max_size=4)
    )
    def test_merged_islands_keep_the_part_of_each_gang(self, sizes):
        rotations = []
        for island, size in enumerate(sizes):
            gangs = gangs_on_one_cpu(size, cpu=island)
            rotations.append(schedule.rotation(gangs, 50_000, 0.0, 1))
        merged = schedule.merge(rotations)
        whole = schedule.length_us(merged)
        for island, size in enumerate(sizes):
            for n in range(size):
                favoured_us = sum(
                    w.width_us for w in merged if f'{island}.{n}' in w.favoured
                )
                self.assertAlmostEqual(1 / size, favoured_us / whole, 2)


class TestTurns(tests_base.TestCase):
    """Number and order of the turns of each gang."""

    def turns(self, *gangs):
        return [''.join(sorted(members)) for members in schedule.turns(gangs)]

    def test_heavier_gang_has_more_turns_spread_over_the_rotation(self):
        self.assertEqual(
            ['a', 'a', 'b', 'a'],
            self.turns(one_gang('a', {0, 1}, 1536.0), one_gang('b', {0, 1})),
        )

    def test_equal_gangs_have_one_turn_each(self):
        for number in (2, 3, 5, 30):
            gangs = [one_gang(str(n), {0, 1}) for n in range(number)]
            self.assertEqual(number, len(schedule.turns(gangs)))

    def test_hosts_with_the_same_gangs_have_the_same_order(self):
        # The order must not depend on the width of the local members.
        narrow, wide = {0, 1}, {0, 1, 2, 3}
        for a, b in ((narrow, wide), (wide, narrow), (wide, wide)):
            self.assertEqual(
                ['a', 'b'], self.turns(one_gang('a', a), one_gang('b', b))
            )

    def test_equal_wide_gangs_share_the_time_left_by_narrow_ones(self):
        # Gangs a and b are wide and disjoint, c overlaps both; the narrow ones
        # weigh more and overlap a. The wide ones share the time left.
        gangs = [
            one_gang('a', range(8), 128.0),
            one_gang('b', range(8, 16), 128.0),
            one_gang('c', range(4, 12), 128.0),
            *(one_gang(f'n{n}', {2 * n, 2 * n + 1}) for n in range(2)),
        ]
        in_turn = schedule.turns(gangs)
        parts = {
            gang.key: sum(gang.key in members for members in in_turn)
            / len(in_turn)
            for gang in gangs
        }
        self.assertGreater(parts['a'], 0.15)
        self.assertGreater(parts['c'], 0.4 * parts['b'])
        self.assertGreater(parts['n0'], 3 * parts['a'])

    @hypothesis.given(
        places=strategies.lists(
            strategies.tuples(
                strategies.frozensets(
                    strategies.integers(0, 15), min_size=1, max_size=9
                ),
                strategies.sampled_from((2, 128, 512, 1_024, 262_144)),
            ),
            min_size=1,
            max_size=40,
        )
    )
    def test_each_gang_has_a_turn_and_turns_are_few(self, places):
        gangs = [
            one_gang(f'g{n:02}', cpus, float(weight))
            for n, (cpus, weight) in enumerate(places)
        ]
        in_turn = schedule.turns(gangs)
        self.assertEqual(
            {one.key for one in gangs}, frozenset().union(*in_turn)
        )
        self.assertLessEqual(len(in_turn), max(schedule.MAX_TURNS, len(gangs)))
        self.assertEqual(in_turn, schedule.turns(gangs[::-1]))


class TestGaps(tests_base.TestCase):
    """CPUs that the gangs of a turn leave free."""

    def favoured(self, *gangs):
        return [
            ''.join(sorted(window.favoured))
            for window in schedule.rotation(gangs, 50_000, 0.0, 20_000)
        ]

    def test_wide_gangs_are_placed_before_narrow_ones(self):
        # In the order of their keys they would need three rows.
        self.assertEqual(
            ['ad', 'bc'],
            self.favoured(
                one_gang('a', {3, 4}),
                one_gang('b', {0, 1}),
                one_gang('c', {2, 3, 4, 5}),
                one_gang('d', {1, 2}),
            ),
        )

    def test_gap_is_filled_by_a_gang_that_fits(self):
        self.assertEqual(
            ['ac', 'bc', 'd'],
            self.favoured(
                one_gang('a', {0, 1}),
                one_gang('b', {0, 1}),
                one_gang('c', {2, 3}),
                one_gang('d', {1, 2}),
            ),
        )

    def test_gaps_are_filled_in_rotation(self):
        self.assertEqual(
            ['ay', 'bz', 'cy', 'dz'],
            self.favoured(
                *(one_gang(key, {0, 1}) for key in 'abcd'),
                *(one_gang(key, {2, 3}) for key in 'yz'),
            ),
        )

    def test_heavier_gang_fills_more_gaps(self):
        timeline = schedule.rotation(
            [
                *(one_gang(f'{n:02}', {0, 1}) for n in range(40)),
                one_gang('y', {2, 3}, 1536.0),
                one_gang('z', {2, 3}),
            ],
            50_000,
            0.0,
            20_000,
        )
        y, z = (
            sum(w.width_us for w in timeline if key in w.favoured)
            for key in 'yz'
        )
        self.assertAlmostEqual(3.0, y / z, delta=0.3)

    @hypothesis.given(
        places=strategies.lists(
            strategies.frozensets(
                strategies.integers(0, 15), min_size=1, max_size=9
            ),
            min_size=2,
            max_size=14,
        ),
        part=strategies.sampled_from((0.0, 0.3)),
    )
    def test_no_gang_waits_that_would_fit(self, places, part):
        gangs = [
            one_gang(f'g{n}', cpus, 512.0 * (n + 1))
            for n, cpus in enumerate(places)
        ]
        windows = schedule.rotation(gangs, 50_000, part, 20_000)
        served = set()
        for window in windows:
            if not window.favoured:
                continue
            served |= window.favoured
            running = [one for one in gangs if one.key in window.favoured]
            cpus = frozenset().union(*(one.cpus for one in running))
            self.assertEqual(sum(len(one.cpus) for one in running), len(cpus))
            for waiting in gangs:
                if waiting.key not in window.favoured:
                    self.assertTrue(waiting.cpus & cpus)
        if windows:
            self.assertEqual({one.key for one in gangs}, served)
