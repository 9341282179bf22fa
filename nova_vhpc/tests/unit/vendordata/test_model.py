# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import model

NOWHERE = fakes.member(9, None)


class ClusterTest(base.TestCase):
    @given(st.permutations(range(5)), st.permutations(['a', 'b', 'c']))
    def test_ranks_follow_the_fabric_whoever_asks_which_server(
        self, order, ids
    ):
        """Servers of vendordata without a secret have IDs of their own."""
        one, two, three = ids
        members = [
            fakes.member(1, one, one, one),
            fakes.member(4, one, one, one),
            fakes.member(3, two, one, one),
            fakes.member(2, three, two, one),
            NOWHERE,
        ]
        ranked = model.ranked([members[i] for i in order])
        self.assertEqual(tuple(members), ranked)

    def test_members_of_a_place_follow_each_other(self):
        places = [('h1', 's1'), ('h2', 's2'), ('h1', 's1'), ('h3', 's2')]
        places += [('h4', 's1'), ('h2', 's2'), ('h5', None), ('h1', 's1')]
        ranked = model.ranked(
            fakes.member(number, *place) for number, place in enumerate(places)
        )
        self.assertEqual(
            ['h1', 'h1', 'h1', 'h4', 'h2', 'h2', 'h3', 'h5'],
            [member.host for member in ranked],
        )

    def test_distance(self):
        me = fakes.member(1, 'h1', 's1', 'r1')
        for other, expected in (
            (me, 'self'),
            (fakes.member(2, 'h1', 's1', 'r1'), 'same-host'),
            (fakes.member(2, 'h2', 's1', 'r1'), 'same-switch'),
            (fakes.member(2, 'h2', 's2', 'r1'), 'same-rack'),
            (fakes.member(2, 'h2', 's2', 'r2'), 'far'),
            (fakes.member(2, 'h2'), 'far'),
        ):
            self.assertEqual(expected, model.distance(me, other))
        self.assertEqual('far', model.distance(NOWHERE, fakes.member(8, None)))

    @given(
        st.lists(
            st.tuples(*3 * [st.sampled_from([None, 'a', 'b'])]),
            min_size=1,
            max_size=8,
        )
    )
    def test_distances_of_a_member_are_those_of_each_pair(self, places):
        members = [
            fakes.member(number, *place) for number, place in enumerate(places)
        ]
        known = model.Places(members)
        for rank, me in enumerate(members):
            self.assertEqual(
                [model.distance(me, other) for other in members],
                known.distances(rank),
            )

    @given(
        st.lists(
            st.ip_addresses(v=4) | st.ip_addresses(v=6), min_size=1, max_size=6
        )
    )
    def test_covering_is_the_smallest_that_covers(self, addresses):
        found = model.covering(addresses)
        same = [a for a in addresses if a.version == found.version]
        self.assertTrue(all(a in found for a in same))
        if found.prefixlen < found.max_prefixlen:
            halves = list(found.subnets())
            self.assertFalse(
                any(all(a in half for a in same) for half in halves)
            )

    def test_covering_of_nothing(self):
        self.assertIsNone(model.covering([]))
        one = ipaddress.ip_address('10.0.0.1')
        self.assertEqual('10.0.0.1/32', str(model.covering([one])))

    def test_uplink_nic_beyond_the_nics_is_the_last(self):
        me = fakes.member(1, 'h1', nics=3)
        for index, expected in ((None, 2), (0, 0), (1, 1), (7, 2)):
            (member,) = fakes.cluster([me], uplink_nic=index).members
            self.assertIs(me.nics[expected], model.own_nic(member))
