# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""On which CPUs the gangs of each slot run."""

import hypothesis
from hypothesis import strategies

from nova_vhpc.control import model
from nova_vhpc.control.gang import gangs, placement
from nova_vhpc.tests import base


def host(cpus, per_cache=0):
    """Return CPUs.

    :param per_cache: number of CPUs with a last-level cache in common; 0 for
        all.
    """
    return tuple(
        model.Cpu(number, llc=number // per_cache if per_cache else 0)
        for number in range(cpus)
    )


def gang(key, *vcpus, cpus=range(64)):
    """Return a gang with members of these numbers of vCPUs."""
    return gangs.Gang(
        key,
        tuple(
            gangs.Member(f'{key}{number}', count, frozenset(cpus))
            for number, count in enumerate(vcpus)
        ),
    )


class PlacerTestCase(base.TestCase):
    def setUp(self):
        super().setUp()
        self.placer = placement.Placer()

    def place(self, *slots, cpus=None, last=(), side=0):
        return self.placer.place(slots, cpus or host(8), frozenset(last), side)


class TestPlace(PlacerTestCase):
    def test_each_vcpu_of_a_slot_has_a_cpu_of_its_own(self):
        (placed,) = self.place([gang('a', 2, 2), gang('b', 4)])
        used = [cpu for cpus in placed.values() for cpu in cpus]
        self.assertEqual(list(range(8)), sorted(used))
        self.assertEqual(
            {'a0': 2, 'a1': 2, 'b0': 4},
            {uuid: len(cpus) for uuid, cpus in placed.items()},
        )

    def test_gang_has_the_same_cpus_in_each_slot(self):
        a, b, c = gang('a', 4), gang('b', 4), gang('c', 4)
        first, second = self.place([a, b], [a, c])
        self.assertEqual(first['a0'], second['a0'])

    def test_gang_stays_while_others_come_and_go(self):
        a, b, c = gang('a', 4), gang('b', 4), gang('c', 2)
        (before,) = self.place([b, a])
        (after,) = self.place([a, c])
        self.assertEqual(before['a0'], after['a0'])

    def test_gang_whose_home_is_taken_moves_for_that_slot(self):
        a, b, c = (gang(key, 4) for key in 'abc')
        # One after the other, all have the same home.
        alone = self.place([a], [b], [c])
        self.assertEqual(1, len({*(tuple(p.values()) for p in alone)}))
        beside, last = self.place([a, b], [b])
        self.assertEqual(alone[0]['a0'], beside['a0'])
        self.assertTrue(set(beside['a0']).isdisjoint(beside['b0']))
        self.assertEqual(alone[1]['b0'], last['b0'])

    def test_slots_leave_the_same_cpus_clear(self):
        placed = self.place([gang('a', 6)], [gang('b', 3, 3)])
        clear = {
            frozenset(range(8)).difference(*one.values()) for one in placed
        }
        self.assertEqual(1, len(clear))

    def test_cpus_of_bound_vms_are_taken_last(self):
        (placed,) = self.place([gang('a', 6)], last={0, 1})
        self.assertTrue({0, 1}.isdisjoint(placed['a0']))
        (placed,) = self.place([gang('b', 8)], last={0, 1})
        self.assertEqual(set(range(8)), set(placed['b0']))

    def test_member_stays_within_a_cache_that_holds_it(self):
        (placed,) = self.place(
            [gang('a', 3), gang('b', 4)], cpus=host(8, per_cache=4)
        )
        for cpus in placed.values():
            self.assertEqual(1, len({cpu // 4 for cpu in cpus}))

    def test_member_fills_the_smallest_cache_that_holds_it(self):
        cpus = (
            *(model.Cpu(number, llc=0) for number in range(4)),
            *(model.Cpu(number, llc=1) for number in range(4, 6)),
        )
        (placed,) = self.place([gang('a', 2)], cpus=cpus)
        self.assertEqual({4, 5}, set(placed['a0']))

    def test_member_runs_only_on_cpus_that_it_may_use(self):
        (placed,) = self.place([gang('a', 2, cpus={3, 6, 7}), gang('b', 4)])
        self.assertLessEqual(set(placed['a0']), {3, 6, 7})

    def test_gang_that_finds_no_cpus_is_left_out_of_the_slot(self):
        (placed,) = self.place(
            [gang('a', 2, cpus={0, 1}), gang('b', 2, cpus={1, 2})],
            cpus=host(3),
        )
        self.assertEqual({'a0'}, set(placed))

    def test_gang_without_cpus_for_one_member_is_left_out_whole(self):
        one, other = gang('a', 2), gang('b', 2, cpus={0})
        both = gangs.Gang('x', one.members + other.members)
        self.assertEqual(({},), self.place([both]))

    def test_gang_that_may_use_other_cpus_now_moves_there(self):
        self.place([gang('a', 2)])
        (placed,) = self.place([gang('a', 2, cpus={6, 7})])
        self.assertEqual({6, 7}, set(placed['a0']))

    def test_cpu_that_went_off_is_not_used(self):
        (before,) = self.place([gang('a', 2)])
        left = tuple(cpu for cpu in host(8) if cpu.id not in before['a0'])
        (after,) = self.place([gang('a', 2)], cpus=left)
        self.assertTrue(set(before['a0']).isdisjoint(after['a0']))

    def test_gangs_change_sides_but_leave_the_cpus_of_bound_vms(self):
        used = set()
        for side in range(12):
            (placed,) = self.place([gang('a', 2)], last={0, 1}, side=side)
            self.assertEqual(2, len(set(placed['a0'])))
            used.update(placed['a0'])
        self.assertEqual(set(range(2, 8)), used)

    def test_gang_stays_while_the_side_stays(self):
        (before,) = self.place([gang('a', 2)], side=3)
        (after,) = self.place([gang('a', 2), gang('b', 2)], side=3)
        self.assertEqual(before['a0'], after['a0'])

    @hypothesis.given(
        strategies.lists(
            strategies.lists(strategies.integers(0, 5), max_size=4),
            min_size=1,
            max_size=6,
        ),
        strategies.lists(strategies.integers(1, 6), min_size=6, max_size=6),
    )
    @hypothesis.settings(deadline=None)
    def test_no_cpu_has_two_vcpus_in_a_slot(self, slots, widths):
        every = [gang(str(n), width) for n, width in enumerate(widths)]
        chosen = [
            [every[number] for number in sorted(set(slot))] for slot in slots
        ]
        for placed in self.place(*chosen):
            used = [cpu for cpus in placed.values() for cpu in cpus]
            self.assertEqual(len(set(used)), len(used))
            for uuid, cpus in placed.items():
                self.assertEqual(widths[int(uuid[:-1])], len(cpus))
