# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova import objects
from oslotest import base

from nova_vhpc.scheduler.hosts import network_fit, ports
from nova_vhpc.scheduler.sources import neutron_uplink, snapshot
from nova_vhpc.tests.unit.scheduler import neutron

objects.register_all()

PACKETS = {'NET_PACKET_RATE_KILOPACKET_PER_SEC': 1000}

HPC0 = {'physnet': 'HPC0'}
HPC1 = {'physnet': 'HPC1'}


def networks(*physnets, tunneled=False):
    return objects.NetworkMetadata(physnets=set(physnets), tunneled=tunneled)


def requests(*groups):
    return ports.requested(
        objects.RequestSpec(requested_resources=list(groups))
    )


class RequestedTest(base.BaseTestCase):
    def test_bandwidth_of_each_port_is_read(self):
        found = requests(
            neutron.group('HPC0', port='a'),
            neutron.group('HPC1', 5000, port='b'),
        )
        self.assertEqual(
            [
                (neutron.provider_uuid('a'), neutron.both(1_000_000)),
                (neutron.provider_uuid('b'), neutron.both(5000)),
            ],
            [(one.group, one.kbps) for one in found],
        )
        self.assertEqual({'CUSTOM_PHYSNET_HPC1'}, found[1].physnets)
        self.assertEqual(set(neutron.traits('HPC1')), found[1].traits)

    def test_group_without_bandwidth_is_left_out(self):
        self.assertEqual((), requests(neutron.group('HPC0', **PACKETS)))

    def test_request_without_groups_has_none(self):
        self.assertEqual((), ports.requested(objects.RequestSpec()))
        none = objects.RequestSpec(requested_resources=[])
        self.assertEqual((), ports.requested(none))


class FlawTest(base.BaseTestCase):
    def flaw(self, network, metadata, *groups):
        rule = network_fit.RULES[network]
        return ports.flaw(metadata, rule, requests(*groups))

    def test_shared_separate_needs_a_network_for_peers(self):
        one = networks('hpc1')
        found = self.flaw('shared-separate', one, neutron.group('HPC1'))
        self.assertIn('none is for co-located peers', found)
        self.assertIsNone(self.flaw('separate', one, neutron.group('HPC1')))

    def test_network_for_peers_may_be_any_other(self):
        for groups, metadata in (
            # Its port has no policy.
            ((), networks('hpc0', 'hpc1')),
            # With a small one.
            ((neutron.group('HPC0', 1000),), networks('hpc0', 'hpc1')),
            ((), networks('hpc1', tunneled=True)),
            ((), None),
        ):
            self.assertIsNone(
                self.flaw(
                    'shared-separate',
                    metadata,
                    *groups,
                    neutron.group('HPC1'),
                )
            )


class FitTest(base.BaseTestCase):
    def fit(self, network, groups, *uplinks, mbps=None, **host):
        rule = network_fit.RULES[network] if network else network_fit.ANY
        return ports.fit(
            rule, requests(*groups), neutron.hosts(*uplinks, **host), mbps
        )

    def test_port_as_fast_as_the_link_has_the_uplink_for_itself(self):
        for agent in (neutron.OVN, neutron.OVS):
            fit = self.fit(
                'separate',
                [neutron.group('HPC1')],
                {**HPC0, 'agent': agent},
                {**HPC1, 'agent': agent},
            )
            self.assertIsNone(fit.reason)
            self.assertEqual((1, 1000), (fit.slots, fit.link_mbps))
            name = f'host00000:{agent}:br-hpc1'
            self.assertEqual(
                {neutron.provider_uuid('port'): {neutron.provider_uuid(name)}},
                fit.serving,
            )

    def test_slower_port_has_no_uplink_for_itself(self):
        for network in ('separate', 'shared-separate'):
            fit = self.fit(network, [neutron.group('HPC1', 999_999)], HPC1)
            self.assertIn('br-hpc1 (1000 Mbit/s', fit.reason)
            self.assertIn('999999 kbit/s', fit.reason)
            self.assertIn('as large as the link', fit.reason)

    def test_policy_for_one_direction_is_enough(self):
        for direction in neutron_uplink.DIRECTIONS:
            fit = self.fit(
                'separate',
                [neutron.group('HPC1', **{direction: 1_000_000})],
                HPC1,
            )
            self.assertEqual((None, 1), (fit.reason, fit.slots))

    def test_ports_with_a_small_minimum_share_an_uplink(self):
        group = neutron.group('HPC1', 100_000)
        self.assertEqual(10, self.fit('shared', [group], HPC1).slots)
        used = {**HPC1, 'used': 350_000}
        self.assertEqual(6, self.fit('shared', [group], used).slots)
        two = [group, neutron.group('HPC1', 200_000, port='other')]
        self.assertEqual(2, self.fit('shared', two, used).slots)

    def test_full_uplink_fits_but_has_no_slot(self):
        full = {**HPC1, 'used': 1_000_000}
        fit = self.fit('separate', [neutron.group('HPC1')], full)
        self.assertEqual((None, 0), (fit.reason, fit.slots))

    def test_two_ports_need_uplinks_of_two_physical_networks(self):
        groups = [
            neutron.group('HPC0', 100_000, port='a'),
            neutron.group('HPC1', 500_000, port='b'),
        ]
        fit = self.fit('multiple-shared', groups, HPC0, HPC1)
        self.assertEqual((None, 2), (fit.reason, fit.slots))
        same = [groups[0], neutron.group('HPC0', 1000, port='b')]
        fit = self.fit('multiple-shared', same, HPC0, HPC1)
        self.assertIn('on one uplink there, 2 are needed', fit.reason)

    def test_small_port_for_peers_needs_no_uplink_for_itself(self):
        groups = [
            neutron.group('HPC0', 1000, port='peers'),
            neutron.group('HPC1', port='own'),
        ]
        fit = self.fit(
            'shared-separate',
            groups,
            {**HPC0, 'kbps': 100_000},
            HPC1,
            mbps=1000,
        )
        self.assertEqual((None, 1), (fit.reason, fit.slots))
        self.assertEqual([neutron.provider_uuid('own')], list(fit.serving))

    def test_missing_physical_network_is_named(self):
        fit = self.fit('shared', [neutron.group('HPC1')], HPC0)
        self.assertIn('CUSTOM_PHYSNET_HPC1', fit.reason)
        self.assertIn('published are br-hpc0', fit.reason)
        fit = self.fit('shared', [neutron.group('HPC1')])
        self.assertIn('CUSTOM_PHYSNET_HPC1', fit.reason)

    def test_slow_uplink_is_named(self):
        group = neutron.group('HPC1', 1000)
        fit = self.fit(None, [group], HPC1, mbps=10000)
        self.assertIn('br-hpc1 (1000 Mbit/s', fit.reason)
        self.assertIn('min_link_mbps asks for 10000', fit.reason)
        self.assertIsNone(self.fit(None, [group], HPC1, mbps=1000).reason)

    def test_port_that_is_faster_than_the_link_does_not_fit(self):
        fit = self.fit('shared', [neutron.group('HPC1', 1_000_001)], HPC1)
        self.assertIn('asks for 1000001 kbit/s', fit.reason)

    def test_dead_link_of_a_bridge_of_neutron_is_named(self):
        def nic(bridge, mbps, slots):
            return snapshot.UplinkState(
                'uuid', network_fit.SHARED, bridge, 'eth1', mbps, slots, 0
            )

        group = neutron.group('HPC1')
        for uplinks, words in (
            ([nic('br-hpc1', 0, 0)], 'link of NIC eth1 on bridge br-hpc1 is'),
            # Held for guests that were there before the NIC changed.
            ([nic('br-hpc1', 1000, 0)], None),
            ([nic('br-hpc1', 0, 0), nic('br-hpc1', 1000, 8)], None),
            ([nic('br-hpc0', 0, 0)], None),
        ):
            fit = self.fit('separate', [group], HPC1, uplinks=uplinks)
            if words is None:
                self.assertIsNone(fit.reason)
            else:
                self.assertIn(words, fit.reason)


class AllowsTest(base.BaseTestCase):
    """Which allocation candidates serve the ports of a member."""

    def setUp(self):
        super().setUp()
        self.host = neutron.hosts(HPC0, HPC1)
        self.bridge0, self.bridge1 = (
            uplink.uuid for uplink in self.host.neutron_uplinks
        )

    def allows(self, network, mappings, *groups):
        rule = network_fit.RULES[network]
        fit = ports.fit(rule, requests(*groups), self.host, None)
        mappings = {
            neutron.provider_uuid(port): [uplink]
            for port, uplink in mappings.items()
        }
        return fit.allows(rule, {'mappings': mappings})

    def test_candidate_on_the_ports_uplink_is_allowed(self):
        group = neutron.group('HPC1')
        for uplink, allowed in (
            (self.bridge1, True),
            (self.bridge0, False),
            ('other', False),
        ):
            self.assertIs(
                allowed, self.allows('separate', {'port': uplink}, group)
            )

    def test_candidate_that_does_not_map_the_port_is_not_allowed(self):
        self.assertFalse(self.allows('separate', {}, neutron.group('HPC1')))

    def test_two_ports_must_be_on_two_uplinks(self):
        groups = [
            neutron.group('HPC0', 1000, port='a'),
            neutron.group('HPC1', 1000, port='b'),
        ]
        for second, allowed in ((self.bridge1, True), (self.bridge0, False)):
            self.assertIs(
                allowed,
                self.allows(
                    'multiple-shared',
                    {'a': self.bridge0, 'b': second},
                    *groups,
                ),
            )
