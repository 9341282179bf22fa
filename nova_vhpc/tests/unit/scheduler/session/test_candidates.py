# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from nova_vhpc.scheduler.hosts import network_fit
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.session import candidates
from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.topology import model


def candidate(*uuids):
    return {
        'allocations': {
            'root': {'resources': {'VCPU': 1}},
            **{uuid: {'resources': {model.UPLINK: 1}} for uuid in uuids},
        },
        'mappings': {'': ['root']},
    }


def uplink(uuid, slots=1, mbps=1000, used=0):
    bridge, nic = uuid[0], uuid[1:]
    return snapshot.UplinkState(
        uuid, network_fit.SEPARATE, bridge, nic, mbps, slots, used
    )


def claimed(candidates_):
    return [candidates.uplinks_of(found) for found in candidates_]


class CandidatesTest(base.BaseTestCase):
    def test_first_element_moves_on_when_taken(self):
        calls = []
        found = candidates.Candidates('abc', lambda: calls.append(1))
        self.assertEqual(list('abca'), [found[0] for _ in range(4)])
        self.assertEqual(4, len(calls))

    def test_two_candidates_alternate(self):
        found = candidates.Candidates(['a', 'b'])
        self.assertEqual(['a', 'b', 'a'], [found[0] for _ in range(3)])

    def test_other_operations_are_those_of_a_list(self):
        found = candidates.Candidates('abc')
        self.assertEqual(list('abc'), list(found))
        self.assertEqual(('b', 'c', 3), (found[1], found[-1], len(found)))
        self.assertEqual(['a', 'b'], found[:2])
        self.assertEqual([], found.handed_out)

    def test_single_and_empty(self):
        self.assertEqual('a', candidates.Candidates('a')[0])
        self.assertRaises(IndexError, candidates.Candidates().__getitem__, 0)

    def test_pinned_members_get_no_shared_cpus_where_there_are_others(self):
        shared = [candidate('A0'), candidate('B0')]
        pinned = [candidate('A0'), candidate('B0')]
        for found in pinned:
            found['allocations']['root']['resources'] = {'PCPU': 1}
        self.assertEqual(pinned, candidates.dedicated([*pinned, *shared]))
        # A host that reports no dedicated CPUs.
        self.assertEqual(shared, candidates.dedicated(shared))
        self.assertEqual([], candidates.dedicated([]))

    def test_offered(self):
        self.assertEqual(
            {'a1', 'a2', 'b1'},
            candidates.offered([candidate('a1', 'b1'), candidate('a2')]),
        )


class UplinkReservationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.rule = network_fit.RULES['separate']

    def reservations(self, *uplinks, unknown=False):
        return candidates.UplinkReservations(uplinks, self.rule, unknown)

    def order(self, reservations, found):
        return reservations.order(found, chance=lambda: 0.0)

    def test_claimed_uplink_is_never_tried_again(self):
        reservations = self.reservations(uplink('a1'), uplink('b2'))
        found = self.order(reservations, [candidate('a1'), candidate('b2')])
        found[0]
        reservations.note_outcome(found, placed=True)
        self.assertEqual(1, reservations.members_left())
        found = self.order(reservations, found)
        self.assertEqual([('b2',)], claimed(found))
        found[0]
        reservations.note_outcome(found, placed=True)
        self.assertEqual([], self.order(reservations, found))

    def test_lost_claim_goes_last(self):
        reservations = self.reservations(
            uplink('a1'), uplink('b2'), uplink('c3')
        )
        found = self.order(
            reservations, [candidate('a1'), candidate('b2'), candidate('c3')]
        )
        # Two claims fail, the third one succeeds.
        for _ in range(3):
            found[0]
        reservations.note_outcome(found, placed=True)
        self.assertEqual(
            [('a1',), ('b2',)], claimed(self.order(reservations, found))
        )
        self.assertEqual(2, reservations.members_left())

    def test_untried_candidate_precedes_a_lost_one(self):
        reservations = self.reservations(uplink('a1'), uplink('b2'))
        found = self.order(reservations, [candidate('a1'), candidate('b2')])
        found[0]
        reservations.note_outcome(found, placed=False)
        self.assertEqual(
            [('b2',), ('a1',)], claimed(self.order(reservations, found))
        )

    def test_list_of_another_filter_counts_its_first_candidate(self):
        reservations = self.reservations(uplink('a1'), uplink('b2'))
        pruned = [candidate('b2'), candidate('a1')]
        # What it handed out is unknown if no member was placed.
        reservations.note_outcome(pruned, placed=False)
        self.assertEqual(
            [('b2',), ('a1',)], claimed(self.order(reservations, pruned))
        )
        reservations.note_outcome(pruned, placed=True)
        self.assertEqual([('a1',)], claimed(self.order(reservations, pruned)))

    def test_shared_uplink_is_claimed_until_it_is_full(self):
        self.rule = network_fit.RULES['shared']
        reservations = self.reservations(uplink('a1', slots=2))
        for left in (1, 0):
            found = self.order(reservations, [candidate('a1')])
            found[0]
            reservations.note_outcome(found, placed=True)
            self.assertEqual(left, reservations.members_left())
        self.assertEqual([], self.order(reservations, found))

    def test_members_of_a_host_meet_on_one_shared_bridge(self):
        self.rule = network_fit.RULES['shared']
        reservations = self.reservations(
            uplink('a1', 2), uplink('b1', 4), uplink('a2', 2)
        )
        offer = [candidate('a1'), candidate('b1'), candidate('a2')]
        taken = []
        for _ in range(6):
            found = self.order(reservations, offer)
            taken.extend(candidates.uplinks_of(found[0]))
            reservations.note_outcome(found, placed=True)
        # The uplinks of one bridge in turn; the next bridge when it is full.
        self.assertEqual(['a1', 'a2', 'a1', 'a2', 'b1', 'b1'], taken)

    def test_members_meet_no_longer_than_others_leave_room(self):
        self.rule = network_fit.RULES['shared']
        reservations = self.reservations(
            uplink('a1', 3, mbps=10000, used=2), uplink('b1', 4)
        )
        offer = [candidate('a1'), candidate('b1')]
        taken = []
        for _ in range(3):
            found = self.order(reservations, offer)
            taken.extend(candidates.uplinks_of(found[0]))
            reservations.note_outcome(found, placed=True)
        self.assertEqual(['a1', 'b1', 'b1'], taken)
        # Who has used it may be gone by now.
        self.assertEqual(
            [('b1',), ('a1',)], claimed(self.order(reservations, offer))
        )

    def test_fast_and_empty_uplinks_come_first(self):
        reservations = self.reservations(
            uplink('a1', 8, used=1),
            uplink('b2', 8),
            uplink('c3', 8, mbps=10000, used=7),
        )
        found = [candidate('a1'), candidate('b2'), candidate('c3')]
        self.assertEqual(
            [('c3',), ('b2',), ('a1',)],
            claimed(self.order(reservations, found)),
        )

    def test_of_a_pair_the_slow_link_counts(self):
        self.rule = network_fit.RULES['multiple-shared']
        reservations = self.reservations(
            uplink('a1', mbps=40000),
            uplink('b1', mbps=1000),
            uplink('c1', mbps=10000),
            uplink('d1', mbps=10000),
        )
        for pair in (('a1', 'b1'), ('b1', 'a1')):
            found = [candidate(*pair), candidate('c1', 'd1')]
            self.assertEqual(
                [('c1', 'd1'), pair], claimed(self.order(reservations, found))
            )

    def test_offered_uplink_is_free_whatever_the_snapshot_counts(self):
        reservations = self.reservations(uplink('a1', used=1))
        self.assertEqual(1, reservations.members_left())
        self.assertEqual(
            [('a1',)], claimed(self.order(reservations, [candidate('a1')]))
        )

    def test_chance_decides_between_equals(self):
        reservations = self.reservations(uplink('a1'), uplink('b2'))
        found = [candidate('a1'), candidate('b2')]
        first = reservations.order(found, chance=iter([0.9, 0.1]).__next__)
        self.assertEqual([('b2',), ('a1',)], claimed(first))

    def test_pair_needs_two_bridges(self):
        self.rule = network_fit.RULES['multiple-shared']
        reservations = self.reservations(
            uplink('a1', 4), uplink('a2', 4), uplink('b1', 4)
        )
        found = [candidate('a1', 'a2'), candidate('a1', 'b1')]
        self.assertEqual(
            [('a1', 'b1')], claimed(self.order(reservations, found))
        )
        self.assertEqual(4, reservations.members_left())

    def test_pair_may_be_of_two_members_of_a_steered_bond(self):
        self.rule = network_fit.RULES['multiple-shared']
        reservations = self.reservations(
            *(
                dataclasses.replace(uplink(uuid, 4), bond=True)
                for uuid in ('a1', 'a2')
            )
        )
        found = [candidate('a1', 'a1'), candidate('a1', 'a2')]
        self.assertEqual(
            [('a1', 'a2')], claimed(self.order(reservations, found))
        )
        self.assertEqual(4, reservations.members_left())

    def test_pair_that_later_members_need_comes_last(self):
        self.rule = network_fit.RULES['multiple-shared']
        reservations = self.reservations(
            uplink('a1', mbps=10000), uplink('b1', mbps=10000), uplink('c1', 2)
        )
        pairs = [('a1', 'b1'), ('a1', 'c1'), ('b1', 'c1')]
        found = [candidate(*pair) for pair in pairs]
        # c has two slots, which want one of a and one of b.
        first = reservations.order(found, chance=lambda: 0.0, more=1)
        self.assertEqual([*pairs[1:], pairs[0]], claimed(first))
        # A lone member takes the fast ones.
        first = reservations.order(found, chance=lambda: 0.0)
        self.assertEqual(pairs[0], claimed(first)[0])

    def test_uplinks_that_do_not_serve_are_pruned(self):
        reservations = self.reservations(uplink('a1'))
        found = [candidate('x9'), candidate('a1')]
        self.assertEqual([('a1',)], claimed(self.order(reservations, found)))

    def test_both_of_two_uplinks_are_to_serve(self):
        # A flavor that names no network configuration may claim several.
        self.rule = network_fit.ANY
        reservations = self.reservations(uplink('a1'), uplink('b1'))
        found = [candidate('a1', 'x9'), candidate('a1', 'b1')]
        self.assertEqual(
            [('a1', 'b1')], claimed(self.order(reservations, found))
        )

    def test_two_uplinks_of_a_member_are_never_the_same_one(self):
        two = network_fit.RULES['multiple-shared']
        found = [candidate('A0'), candidate('A0', 'B0')]
        for uplinks, unknown in (
            ([uplink('A0', slots=2), uplink('B0')], False),
            ([], True),
        ):
            reservations = candidates.UplinkReservations(uplinks, two, unknown)
            self.assertEqual(
                [('A0', 'B0')], claimed(self.order(reservations, found))
            )

    def test_unknown_topology_takes_each_uplink_once(self):
        reservations = self.reservations(unknown=True)
        self.assertEqual(NO_LIMIT, reservations.members_left())
        found = self.order(reservations, [candidate('x1'), candidate('x2')])
        found[0]
        reservations.note_outcome(found, placed=True)
        self.assertEqual([('x2',)], claimed(self.order(reservations, found)))
