# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_vhpc.scheduler.hosts import network_fit, networks
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources import snapshot


def uplink(kind, bridge='br1', nic='eth1', mbps=1000, slots=1, used=0):
    return snapshot.UplinkState(
        f'{bridge}-{nic}', kind, bridge, nic, mbps, slots, used
    )


SHARED = uplink(network_fit.SHARED, slots=8)
OWN = uplink(network_fit.SEPARATE, 'br2', 'eth2')


class FitTest(base.BaseTestCase):
    """Bridges of each network configuration (HPCVirt'09 section 4)."""

    def fit(self, name, *uplinks, mbps=None, **wanted):
        return network_fit.fit(
            network_fit.RULES[name],
            uplinks,
            mbps,
            networks.Networks(**wanted) if wanted else None,
        )

    def test_each_configuration_uses_its_bridges(self):
        other = uplink(network_fit.SHARED, 'br3', 'eth3')
        for name, uplinks, used in (
            ('exported', (), ()),
            ('shared', (SHARED, OWN), (SHARED,)),
            ('multiple-shared', (SHARED, OWN, other), (SHARED, other)),
            ('separate', (SHARED, OWN), (OWN,)),
            ('shared-separate', (SHARED, OWN), (OWN,)),
        ):
            with self.subTest(name):
                fit = self.fit(name, *uplinks)
                self.assertIsNone(fit.reason)
                self.assertEqual(used, fit.uplinks)

    def test_missing_bridge_is_named_for_each_configuration(self):
        for name, uplinks, reason in (
            ('shared', (OWN,), 'no shared bridge; published are NIC eth2'),
            ('separate', (SHARED,), 'no separate bridge'),
            ('multiple-shared', (SHARED,), 'has 1 shared bridge(s), 2 are'),
            ('shared-separate', (OWN,), 'no shared bridge for co-located'),
            ('shared-separate', (SHARED,), 'no separate bridge'),
            ('separate', (), 'published no uplink at all'),
        ):
            with self.subTest(name):
                self.assertIn(reason, self.fit(name, *uplinks).reason)

    def test_two_uplinks_of_one_bridge_count_as_one_bridge(self):
        twin = uplink(network_fit.SHARED, 'br1', 'eth9')
        self.assertIn(
            '1 shared bridge(s)',
            self.fit('multiple-shared', SHARED, twin).reason,
        )

    def test_shared_link_may_be_down_when_only_peers_use_it(self):
        dead = uplink(network_fit.SHARED, slots=0)
        self.assertIsNone(self.fit('shared-separate', dead, OWN).reason)

    def test_link_of_exactly_the_requested_speed_fits(self):
        self.assertIsNone(self.fit('separate', OWN, mbps=OWN.mbps).reason)
        self.assertIsNotNone(
            self.fit('separate', OWN, mbps=OWN.mbps + 1).reason
        )

    def test_slow_and_dead_links_are_named(self):
        slow = uplink(network_fit.SEPARATE, 'br1', 'eth1', mbps=100)
        dead = uplink(network_fit.SEPARATE, 'br2', 'eth2', mbps=0, slots=0)
        reason = self.fit('separate', slow, dead, mbps=1000).reason
        self.assertIn('NIC eth1 on bridge br1 has a link of 100', reason)
        self.assertIn('link of NIC eth2 on bridge br2 is down', reason)

    def test_bridge_held_for_a_guest_is_named_as_such(self):
        reason = self.fit(
            'separate', uplink(network_fit.SEPARATE, 'br2', 'bond0', slots=0)
        ).reason
        self.assertIn('NIC bond0 on bridge br2 is held for guests', reason)

    def test_uplink_on_another_physical_network_does_not_serve(self):
        one, two = (
            dataclasses.replace(OWN, physnets=frozenset([physnet]))
            for physnet in ('PHYSNET1', 'PHYSNET2')
        )
        for physnets, uplinks in (
            ({'PHYSNET1'}, (one, OWN)),
            ({'PHYSNET1', 'PHYSNET2'}, (one, two, OWN)),
            (set(), (one, two, OWN)),
        ):
            fit = self.fit(
                'separate', one, two, OWN, physnets=frozenset(physnets)
            )
            self.assertEqual(uplinks, fit.uplinks)
        other = frozenset({'OTHER'})
        reason = self.fit('separate', one, two, physnets=other).reason
        self.assertIn('NIC eth2 on bridge br2 is on PHYSNET1', reason)
        self.assertIn('the networks of the server are on OTHER', reason)

    def test_bridge_for_peers_may_be_on_another_physical_network(self):
        shared = dataclasses.replace(SHARED, physnets=frozenset(['OTHER']))
        fit = self.fit(
            'shared-separate', shared, OWN, physnets=frozenset({'PHYSNET1'})
        )
        self.assertIsNone(fit.reason)

    def test_encap_ips_need_no_bridge_for_peers(self):
        tunnel = dataclasses.replace(OWN, tunnel=True)
        for encap_ips in (True, False):
            fit = self.fit(
                'shared-separate',
                tunnel,
                tunneled=True,
                by_encap_ip=encap_ips,
            )
            self.assertEqual(encap_ips, fit.reason is None)

    def test_members_of_a_steered_bond_are_two_paths(self):
        one, other = (
            dataclasses.replace(SHARED, uuid=nic, nic=nic, bond=True)
            for nic in ('eth1', 'eth2')
        )
        fit = self.fit('multiple-shared', one, other)
        self.assertEqual((one, other), fit.uplinks)
        rule = network_fit.RULES['multiple-shared']
        for uplinks, members in (((one, other), 8), ((one, one), 0)):
            free = [(uplink.path, uplink.free) for uplink in uplinks]
            self.assertEqual(members, network_fit.members(rule, free))

    def test_bond_needs_no_bridge_for_peers(self):
        member = dataclasses.replace(OWN, bond=True)
        fit = self.fit('shared-separate', member)
        self.assertEqual((member,), fit.uplinks)

    def test_tunneled_server_gets_uplinks_with_an_encap_ip(self):
        tunnel = dataclasses.replace(OWN, bridge='br4', tunnel=True)
        self.assertEqual(
            (tunnel,),
            self.fit(
                'separate', OWN, tunnel, tunneled=True, by_encap_ip=True
            ).uplinks,
        )
        reason = self.fit(
            'separate', OWN, tunneled=True, by_encap_ip=True
        ).reason
        self.assertIn('NIC eth2 on bridge br2 has no encap IP', reason)

    def test_fastest_uplink_is_first(self):
        fast = uplink(network_fit.SEPARATE, 'br1', 'eth1', mbps=10000)
        self.assertEqual((fast, OWN), self.fit('separate', OWN, fast).uplinks)

    def test_reason_names_four_uplinks_at_most(self):
        many = [
            uplink(network_fit.SEPARATE, f'br{n}', f'eth{n}', slots=0)
            for n in range(9)
        ]
        reason = self.fit('separate', *many).reason
        self.assertIn('eth3', reason)
        self.assertNotIn('eth4', reason)
        self.assertIn('and 5 more', reason)


class MembersTest(base.BaseTestCase):
    def test_members_without_bridge_are_unlimited(self):
        self.assertEqual(
            NO_LIMIT, network_fit.members(network_fit.RULES['exported'], [])
        )

    def test_members_of_one_bridge_use_all_slots(self):
        self.assertEqual(
            5,
            network_fit.members(
                network_fit.RULES['shared'], [('a', 2), ('b', 3)]
            ),
        )

    @hypothesis.given(
        strategies.lists(
            strategies.tuples(
                strategies.sampled_from('abc'), strategies.integers(0, 4)
            ),
            max_size=5,
        )
    )
    def test_members_of_two_bridges_use_as_many_pairs_as_possible(self, free):
        # Pairing the two bridges with most slots left is optimal.
        left = {}
        for bridge, slots in free:
            left[bridge] = left.get(bridge, 0) + slots
        pairs = 0
        while sum(1 for slots in left.values() if slots) >= 2:
            for bridge in sorted(left, key=left.get)[-2:]:
                left[bridge] -= 1
            pairs += 1
        self.assertEqual(
            pairs,
            network_fit.members(network_fit.RULES['multiple-shared'], free),
        )
