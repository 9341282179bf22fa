# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.guest_ports`."""

from oslotest import base

from nova_vhpc.agent.uplinks.binders import guest_ports
from nova_vhpc.tests.unit.agent.uplinks.binders import ovsdb
from nova_vhpc.topology import open_vswitch

MAC = 'fa:16:3e:00:00:0a'


class GuestPortsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ovsdb = ovsdb.MemoryOvsdb()
        self.ports = guest_ports.GuestPorts(self.ovsdb.read)

    def macs(self, uuid: str) -> set[str]:
        return set(self.ports.of_guest(uuid))

    def test_ports_are_found_by_the_keys_of_os_vif_and_libvirt(self) -> None:
        self.ovsdb.plug('u', MAC.upper())
        self.ovsdb.add(
            open_vswitch.Interface(
                'tap', external_ids={'vm-id': 'v', 'attached-mac': MAC}
            )
        )
        self.assertEqual({MAC}, self.macs('u'))
        self.assertEqual({MAC}, self.macs('v'))
        self.assertEqual(set(), self.macs('w'))

    def test_later_changes_are_seen(self) -> None:
        self.assertEqual(set(), self.macs('u'))
        row = self.ovsdb.plug('u', MAC)
        self.assertEqual({MAC}, self.macs('u'))
        self.ovsdb.unplug(row)
        self.assertEqual(set(), self.macs('u'))

    def test_port_of_a_trunk_is_that_in_the_integration_bridge(self) -> None:
        ids = {'iface-id': 'p', 'attached-mac': MAC}
        tap = open_vswitch.Interface('tap', external_ids={**ids, 'vm-id': 'u'})
        self.ovsdb.add(open_vswitch.Interface('tpi', external_ids=ids))
        self.ovsdb.set_bridges(
            open_vswitch.Bridge('tbr', (open_vswitch.Port('tap', (tap,)),))
        )
        self.assertEqual('tpi', self.ports.of_guest('u')[MAC].name)

    def test_port_without_mac_is_of_nobody(self) -> None:
        self.ovsdb.add(
            open_vswitch.Interface('tap', external_ids={'vm-uuid': 'u'})
        )
        self.assertEqual(set(), self.macs('u'))
