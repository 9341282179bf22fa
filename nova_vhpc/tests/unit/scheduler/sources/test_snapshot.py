# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_vhpc.scheduler.sources import snapshot
from nova_vhpc.tests.unit.scheduler import neutron
from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world


class ParseTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.body = world.bulk_body(2)
        self.names = snapshot.parse_names(world.names(2))
        self.root = world.root_uuid('host00001')

    def test_every_uplink_of_every_host_is_read(self):
        parsed = snapshot.parse(self.body, self.names, 7.0)
        self.assertEqual(7.0, parsed.taken_s)
        self.assertEqual(2, len(parsed.hosts))
        host = parsed.hosts[self.root]
        self.assertEqual(29000000, host.stamp_minutes)
        self.assertEqual(
            [
                ('br0', 'eth0'),
                ('br1', 'eth1'),
                ('br2', 'eth2'),
                ('br3', 'eth3'),
            ],
            [(uplink.bridge, uplink.nic) for uplink in host.uplinks],
        )
        uplink = host.uplinks[0]
        self.assertIs(model.BridgeKind.SEPARATE, uplink.kind)
        self.assertEqual(
            (10000, 1, 0, 1, True),
            (uplink.mbps, uplink.slots, uplink.used, uplink.free, uplink.up),
        )
        self.assertEqual('NIC eth0 on bridge br0', str(uplink))

    def test_dead_and_full_uplinks_have_no_free_slot(self):
        uuids = world.uplink_uuids('host00001')
        summaries = self.body['provider_summaries']
        summaries[uuids[0]]['resources'][model.UPLINK]['capacity'] = 0
        summaries[uuids[1]]['resources'][model.UPLINK]['used'] = 1
        dead, full, free, _ = (
            snapshot.parse(self.body, self.names).hosts[self.root].uplinks
        )
        self.assertEqual((False, 0), (dead.up, dead.free))
        self.assertEqual((True, 0), (full.up, full.free))
        self.assertEqual((True, 1), (free.up, free.free))

    def test_dead_link_with_a_guest_has_no_free_slot(self):
        (uuid, *_) = world.uplink_uuids('host00001')
        found = self.body['provider_summaries'][uuid]['resources']
        found[model.UPLINK] = {'capacity': 0, 'used': 1}
        dead, *_ = (
            snapshot.parse(self.body, self.names).hosts[self.root].uplinks
        )
        self.assertEqual(0, dead.free)

    def test_uplinks_are_sorted_by_bridge(self):
        summaries = self.body['provider_summaries']
        self.body['provider_summaries'] = dict(reversed(summaries.items()))
        uplinks = (
            snapshot.parse(self.body, self.names).hosts[self.root].uplinks
        )
        self.assertEqual(
            ['br0', 'br1', 'br2', 'br3'], [u.bridge for u in uplinks]
        )

    def test_marker_of_the_nodes_former_name_does_not_make_it_stale(self):
        summaries = self.body['provider_summaries']
        for uuid, stamp in (('first', 5), ('last', 7)):
            summaries = {
                uuid: {
                    'root_provider_uuid': self.root,
                    'resources': {model.STAMP: {'capacity': stamp, 'used': 0}},
                    'traits': [],
                },
                **summaries,
            }
        for order in (summaries, dict(reversed(summaries.items()))):
            self.body['provider_summaries'] = order
            parsed = snapshot.parse(self.body, self.names)
            self.assertEqual(29000000, parsed.hosts[self.root].stamp_minutes)

    def test_host_without_uplinks_has_published(self):
        for uuid in world.uplink_uuids('host00001'):
            del self.body['provider_summaries'][uuid]
        parsed = snapshot.parse(self.body, self.names)
        self.assertEqual((), parsed.hosts[self.root].uplinks)

    def test_kind_and_speed_of_each_uplink_are_read(self):
        uuids = world.uplink_uuids('host00001')
        summaries = self.body['provider_summaries']
        summaries[uuids[0]]['traits'] = [model.TRAIT_SHARED]
        del summaries[uuids[1]]['resources'][model.MBPS]
        # Neither kind of bridge, and a bridge without an uplink.
        summaries[uuids[2]]['traits'] = ['CUSTOM_OTHER']
        del summaries[uuids[3]]['resources'][model.UPLINK]
        uplinks = (
            snapshot.parse(self.body, self.names).hosts[self.root].uplinks
        )
        self.assertEqual(
            [
                (model.BridgeKind.SHARED, 10000),
                (model.BridgeKind.SEPARATE, 0),
            ],
            [(uplink.kind, uplink.mbps) for uplink in uplinks],
        )

    def test_unknown_providers_are_ignored(self):
        self.body['provider_summaries']['strange'] = {
            'root_provider_uuid': self.root,
            'resources': {'CUSTOM_OTHER': {'capacity': 1, 'used': 0}},
            'traits': [],
        }
        parsed = snapshot.parse(self.body, self.names)
        self.assertEqual(4, len(parsed.hosts[self.root].uplinks))

    def test_bridge_without_known_name_is_the_uuid(self):
        parsed = snapshot.parse(self.body, {})
        uplink = parsed.hosts[self.root].uplinks[0]
        self.assertEqual((uplink.uuid, '?'), (uplink.bridge, uplink.nic))

    def test_resources_of_the_host_itself_are_read(self):
        self.body['provider_summaries'][self.root]['resources'] = {
            'VCPU': {'capacity': 14, 'used': 3},
            'PCPU': {'capacity': 8, 'used': 8},
            'CUSTOM_OTHER': {'capacity': 1, 'used': 0},
        }
        found = snapshot.parse(self.body, self.names).hosts
        self.assertEqual(
            {'VCPU': (14, 3), 'PCPU': (8, 8)}, found[self.root].resources
        )

    def test_physical_networks_of_each_uplink_are_read(self):
        uuids = world.uplink_uuids('host00001')
        traits = self.body['provider_summaries'][uuids[1]]['traits']
        traits += ['CUSTOM_PHYSNET_HPC1', 'CUSTOM_OTHER']
        uplinks = (
            snapshot.parse(self.body, self.names).hosts[self.root].uplinks
        )
        self.assertEqual({'CUSTOM_PHYSNET_HPC1'}, uplinks[1].physnets)
        self.assertEqual(frozenset(), uplinks[0].physnets)

    def test_tunnels_rails_and_bonds_are_read(self):
        uuids = world.uplink_uuids('host00001')
        self.assertFalse(snapshot.parse(self.body, self.names).has_tunnels)
        for number, traits in enumerate(
            (
                [model.TRAIT_TUNNEL, model.rail_trait('10.1.0.0/24')],
                [model.TRAIT_TUNNEL],
                [model.TRAIT_BOND],
            )
        ):
            self.body['provider_summaries'][uuids[number]]['traits'] += traits
        found = snapshot.parse(self.body, self.names)
        self.assertTrue(found.has_tunnels)
        self.assertEqual(
            [
                (True, False, '10.1.0.0/24'),
                (True, False, ''),
                (False, True, ''),
                (False, False, ''),
            ],
            [
                (u.tunnel, u.bond, u.rail)
                for u in found.hosts[self.root].uplinks
            ],
        )

    def test_uplinks_of_neutron_are_read(self):
        providers = neutron.Providers(self.body)
        node = 'host00001'
        providers.add(node, 'HPC1', used=300_000)
        providers.add(node, 'HPC0', neutron.OVS, NET_BW_EGR_KILOBIT_PER_SEC=7)
        names = {**self.names, **snapshot.parse_names(providers.names)}
        hosts = snapshot.parse(self.body, names).hosts
        host = hosts[self.root]
        self.assertEqual(4, len(host.uplinks))
        zero, one = host.neutron_uplinks
        self.assertEqual(['br-hpc0', 'br-hpc1'], [zero.device, one.device])
        self.assertEqual(
            {'NET_BW_EGR_KILOBIT_PER_SEC': (7, 0)}, zero.bandwidth
        )
        self.assertEqual(neutron.both((1_000_000, 300_000)), one.bandwidth)
        self.assertLessEqual(set(neutron.traits('HPC1')), one.traits)
        self.assertEqual(1000, one.mbps)
        other = hosts[world.root_uuid('host00000')]
        self.assertEqual((), other.neutron_uplinks)

    def test_uplink_of_neutron_without_known_name_is_the_uuid(self):
        uuid = neutron.Providers(self.body).add('host00001', 'HPC1')
        host = snapshot.parse(self.body, self.names).hosts[self.root]
        (uplink,) = host.neutron_uplinks
        self.assertEqual(uuid, uplink.device)

    def test_parse_raises_if_it_is_no_placement_answer(self):
        self.assertRaises(KeyError, snapshot.parse, {'errors': []}, {})


class NamesTest(base.BaseTestCase):
    def test_names_of_neutron_are_read_by_the_type_of_port(self):
        body = world.bulk_body(1)
        providers = neutron.Providers(body)
        uuid = providers.add('host00000', 'HPC1')
        names = snapshot.parse_names(world.names(1))
        self.assertEqual(
            '/resource_providers?required=in:CUSTOM_VNIC_TYPE_DIRECT,'
            'CUSTOM_VNIC_TYPE_NORMAL',
            snapshot.names_read(body, names),
        )
        names.update(snapshot.parse_names(providers.names))
        self.assertEqual((neutron.OVN, 'br-hpc1'), names[uuid])
        self.assertIsNone(snapshot.names_read(body, names))

    def test_node_names_may_contain_colons(self):
        self.assertEqual(
            {'u': ('br0', 'eth0')},
            snapshot.parse_names(
                [{'uuid': 'u', 'name': 'rack:7:node:vhpc:br0:eth0'}]
            ),
        )

    def test_names_of_other_providers_are_left_out(self):
        self.assertEqual(
            {}, snapshot.parse_names([{'uuid': 'u', 'name': 'node'}])
        )

    def test_names_are_read_only_if_an_uplink_is_new(self):
        body = world.bulk_body(2)
        names = snapshot.parse_names(world.names(2))
        self.assertIsNone(snapshot.names_read(body, names))
        names.popitem()
        self.assertEqual(
            '/resource_providers?required=in:CUSTOM_VHPC_BRIDGE_SEPARATE',
            snapshot.names_read(body, names),
        )
