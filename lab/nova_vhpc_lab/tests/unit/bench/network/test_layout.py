# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bridges, uplinks and NICs by network configuration."""

import collections

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import layout


def plan(text, configuration):
    return layout.plan(layout.Cluster.parse(text), configuration)


def uplinks_of(planned, host):
    return [one for one in planned.uplinks if one.name.startswith(host)]


class ClusterTest(base.TestCase):
    def test_text_means_hosts_and_guests(self):
        cluster = layout.Cluster.parse('8x2')
        self.assertEqual((8, 2, 16), (cluster.hosts, cluster.guests, 16))
        self.assertEqual(16, cluster.members)
        self.assertEqual('8x2', str(cluster))

    def test_other_texts_are_refused(self):
        for text in ('', '2', '2x', 'x4', '1x1', '2x0', '2x4x1', '-2x4'):
            self.assertRaises(ValueError, layout.Cluster.parse, text)


class PlanTest(base.TestCase):
    def test_shared_has_one_bridge_and_uplink_for_all_guests(self):
        planned = plan('2x4', 'shared')
        self.assertEqual(1, len(uplinks_of(planned, 'h0')))
        (bridge,) = {
            nic.bridge for guest in planned.guests[:4] for nic in guest.nics
        }
        self.assertEqual(uplinks_of(planned, 'h0')[0].bridge, bridge)

    def test_multiple_shared_has_two_uplinks_on_networks_of_their_own(self):
        planned = plan('2x4', 'multiple-shared')
        uplinks = uplinks_of(planned, 'h1')
        self.assertEqual(2, len({one.network for one in uplinks}))
        for guest in planned.guests[4:]:
            self.assertEqual(
                [one.bridge for one in uplinks],
                [nic.bridge for nic in guest.nics],
            )

    def test_separate_has_an_uplink_and_bridge_for_each_guest(self):
        planned = plan('2x4', 'separate')
        self.assertEqual(8, len(planned.uplinks))
        self.assertEqual(
            [one.bridge for one in planned.uplinks],
            [guest.nics[-1].bridge for guest in planned.guests],
        )

    def test_shared_separate_has_the_bridges_of_both(self):
        planned = plan('2x2', 'shared-separate')
        self.assertEqual(3, len(uplinks_of(planned, 'h0')))
        first, second = planned.guests[:2]
        self.assertEqual(first.nics[0].bridge, second.nics[0].bridge)
        self.assertNotEqual(first.nics[-1].bridge, second.nics[-1].bridge)
        # The shared bridge is on a network of its own.
        self.assertNotEqual(first.nics[0].network, first.nics[-1].network)

    def test_exported_nics_are_on_no_bridge_of_the_host(self):
        planned = plan('8x1', 'exported')
        self.assertEqual(((), ()), (planned.bridges, planned.uplinks))
        self.assertEqual(
            {None},
            {nic.bridge for guest in planned.guests for nic in guest.nics},
        )

    def test_native_hosts_have_a_nic_for_each_rank(self):
        planned = plan('2x4', layout.NATIVE)
        self.assertEqual((2, 4), (len(planned.guests), planned.ranks))
        self.assertEqual(((), ()), (planned.bridges, planned.uplinks))
        for host in planned.guests:
            self.assertEqual(
                [f'eth{number}' for number in range(4)],
                [nic.name for nic in host.nics],
            )
            self.assertEqual({None}, {nic.bridge for nic in host.nics})

    def test_native_ranks_have_the_addresses_of_exported_guests(self):
        addresses = [
            [
                nic.address
                for guest in plan('2x4', row).guests
                for nic in guest.nics
            ]
            for row in (layout.NATIVE, 'exported')
        ]
        self.assertEqual(*addresses)

    def test_names_and_addresses_are_unique_and_fit_the_kernel(self):
        for configuration in layout.ROWS:
            planned = plan('8x2', configuration)
            nics = [nic for guest in planned.guests for nic in guest.nics]
            names = [
                *planned.switches,
                *planned.bridges,
                *(one.name for one in planned.uplinks),
                *(f'{one.name}x' for one in planned.uplinks),
                *(nic.outside for nic in nics),
            ]
            for values in (names, [nic.address for nic in nics]):
                (_, most), *_ = collections.Counter(values).most_common(1)
                self.assertEqual(1, most, values)
            self.assertLess(max(map(len, names)), 16)

    def test_ranks_of_one_host_follow_each_other(self):
        hosts = [guest.host for guest in plan('3x2', 'shared').guests]
        self.assertEqual(['h0', 'h0', 'h1', 'h1', 'h2', 'h2'], hosts)
