# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Commands that make the links, and what guests are told."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import fabric, layout, trial, vendordata


def plan(text, configuration):
    return layout.plan(layout.Cluster.parse(text), configuration)


class ShapingTest(base.TestCase):
    def test_both_ends_of_each_uplink_are_shaped(self):
        lines = list(fabric.shaped_outside(plan('2x1', 'separate'), 50))
        devices = [line.split()[3] for line in lines]
        self.assertEqual(['h0u0', 'h0u0x', 'h1u0', 'h1u0x'], devices)
        self.assertIn(' rate 50000000bit ', lines[0])

    def test_ports_of_exported_nics_are_shaped(self):
        lines = list(fabric.shaped_outside(plan('2x1', 'exported'), 50))
        self.assertEqual(['g0n1', 'g1n1'], [line.split()[3] for line in lines])

    def test_taps_of_bridges_are_not_shaped(self):
        lines = list(fabric.shaped_outside(plan('2x4', 'shared'), 50))
        self.assertEqual(4, len(lines))


class MaskTest(base.TestCase):
    def test_cpus_are_bits_in_groups_of_32(self):
        self.assertEqual('00000001', fabric.mask([0]))
        self.assertEqual('0000000a', fabric.mask([3, 1, 1]))
        self.assertEqual('00000001,00000000', fabric.mask([32]))
        self.assertEqual('00000000', fabric.mask([]))


class LinksTest(base.TestCase):
    def test_exported_nics_lead_to_the_switch(self):
        lines = list(fabric.links(plan('2x1', 'exported')))
        self.assertIn('link set g0n1 master switch1 up', lines)

    def test_uplinks_connect_bridge_and_switch(self):
        lines = list(fabric.links(plan('2x1', 'shared')))
        self.assertIn('link set h0s1 master h0shared1 up', lines)
        self.assertIn('link set h0s1x master switch1 up', lines)
        self.assertLess(
            lines.index('link add h0shared1 type bridge'),
            lines.index('link set h0s1 master h0shared1 up'),
        )


class VendordataTest(base.TestCase):
    def test_shared_separate_routes_to_neighbours_only(self):
        planned = plan('2x2', 'shared-separate')
        first, *_, last = vendordata.answers(planned, 'shared-separate')
        self.assertEqual(
            [('10.97.0.2/32', '10.96.0.2', 0)],
            [(r['destination'], r['via'], r['nic']) for r in first['routes']],
        )
        self.assertEqual(
            ['10.97.0.3/32'], [r['destination'] for r in last['routes']]
        )

    def test_guests_have_one_slot_each_in_rank_order(self):
        for configuration in layout.CONFIGURATIONS:
            planned = plan('2x2', configuration)
            hostfiles = vendordata.answers(planned, configuration)[0][
                'hostfile'
            ]
            self.assertEqual(
                [f'10.97.0.{number}:1' for number in (1, 2, 3, 4)],
                hostfiles['mpich'].split(),
            )

    def test_ranks_are_not_bound_to_cpus(self):
        answer = vendordata.answers(plan('2x2', 'shared'), 'shared')[0]
        self.assertIn('none', answer['mpi']['mpich'])
        flags = answer['mpi']['openmpi']
        self.assertEqual('none', flags[flags.index('--bind-to') + 1])


class LauncherTest(base.TestCase):
    def test_every_address_of_a_guest_leads_to_its_namespace(self):
        script = trial.launcher(plan('2x1', 'multiple-shared'))
        self.assertIn('10.97.0.1|10.98.0.1) guest=g0 ;;', script)
        self.assertIn('10.97.0.2|10.98.0.2) guest=g1 ;;', script)
