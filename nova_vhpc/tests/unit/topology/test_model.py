# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import os_traits

from nova_vhpc.tests import base
from nova_vhpc.topology import model


class ModelTest(base.TestCase):
    def test_provider_uuid_never_changes(self):
        # A change would orphan every provider that is published already.
        self.assertEqual(
            'cn1:vhpc:br-a:eth1', model.provider_name('cn1', 'br-a', 'eth1')
        )
        self.assertEqual(
            '523fb512-8b5d-5ffd-81e3-ed8ed867f5f8',
            model.provider_uuid('cn1', 'br-a', 'eth1'),
        )

    def test_physnet_trait_is_as_neutron_names_it(self):
        self.assertEqual(
            'CUSTOM_PHYSNET_PHYS_NET1', model.physnet_trait('phys-net1')
        )
        for physnet in ('hpc0', 'a--b', '_x__y.', 'Straße', '10.1/24', '-'):
            self.assertEqual(
                os_traits.normalize_name(f'PHYSNET_{physnet}'),
                model.physnet_trait(physnet),
            )

    def test_rail_of_its_trait_is_the_rail(self) -> None:
        for rail, trait in (
            ('10.1.0.0/24', 'CUSTOM_VHPC_RAIL_10_1_0_0_24'),
            (
                'fd00:1::/64',
                'CUSTOM_VHPC_RAIL_FD00_0001_0000_0000_0000_0000_0000_0000_64',
            ),
        ):
            self.assertEqual(trait, model.rail_trait(rail))
            self.assertEqual(rail, model.rail_of([model.TRAIT_TUNNEL, trait]))

    def test_other_traits_name_no_rail(self) -> None:
        for traits in (
            [],
            [model.TRAIT_TUNNEL],
            ['CUSTOM_VHPC_RAIL_1'],
            ['CUSTOM_VHPC_RAIL_10_1_0_300_24'],
        ):
            self.assertIsNone(model.rail_of(traits))

    def test_uplinks_are_in_name_order(self):
        def uplink(bridge, nic):
            return model.Uplink(nic, bridge, model.BridgeKind.SHARED, 1000)

        topology = model.HostTopology(
            'cn1',
            (
                model.Bridge(
                    'br-b', model.BridgeKind.SHARED, (uplink('br-b', 'e0'),)
                ),
                model.Bridge(
                    'br-a',
                    model.BridgeKind.SHARED,
                    (uplink('br-a', 'e2'), uplink('br-a', 'e1')),
                ),
            ),
        )
        self.assertEqual(
            [('br-a', 'e1'), ('br-a', 'e2'), ('br-b', 'e0')],
            [(u.bridge, u.nic) for u in topology.uplinks],
        )
