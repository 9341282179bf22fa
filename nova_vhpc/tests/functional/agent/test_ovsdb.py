# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The connection to a real ovsdb-server: loss, return and writes."""

import threading
import time

from oslotest import base

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.tests.functional.topology import ovs_lab
from nova_vhpc.topology import open_vswitch
from nova_vhpc_lab.testbed.patience import PATIENCE_S

KEY = 'encap-ip'


class OvsdbTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.lab = self.useFixture(ovs_lab.OvsLab())
        self.switch = self.lab.switch
        self.nic = self.lab.veth('n1')
        self.bridge = self.lab.bridge('b1', self.nic)
        self.ovsdb = self.lab.connect()
        self.lab.settle(self.ovsdb)

    def interface(self, name: str | None = None) -> open_vswitch.Interface:
        contents = self.ovsdb.read()
        assert contents is not None
        (interface,) = (
            i for i in contents.interfaces if i.name == (name or self.nic)
        )
        return interface

    def value(self) -> str:
        """Return the key's value as ovs-vsctl sees it."""
        return self.switch.vsctl(
            '--if-exists', 'get', 'Interface', self.nic, f'external_ids:{KEY}'
        ).strip(' \n"')

    def write(self, value: str | None, expected: str | None) -> bool:
        self.lab.settle(self.ovsdb)
        return self.ovsdb.set_external_id(
            self.interface().uuid, KEY, value, expected
        )

    def test_contents_are_kept_while_the_server_is_away(self) -> None:
        before = self.ovsdb.read()
        self.switch.kill_database()
        ovs_lab.wait_for(lambda: not self.ovsdb.connected)
        self.assertEqual(before, self.ovsdb.read())
        self.assertIn('is away', self.ovsdb.problem() or '')
        with self.assertRaises(connection.OvsdbError):
            self.ovsdb.set_external_id(self.interface().uuid, KEY, 'x', None)

    def test_changes_are_read_when_the_server_is_back(self) -> None:
        self.switch.kill_database()
        ovs_lab.wait_for(lambda: not self.ovsdb.connected)
        self.switch.start_database()
        bridge = self.lab.bridge('b2')
        ovs_lab.wait_for(lambda: self.ovsdb.connected)
        self.lab.settle(self.ovsdb)
        self.assertIsNone(self.ovsdb.problem())
        contents = self.ovsdb.read()
        assert contents is not None
        self.assertEqual({self.bridge, bridge}, set(contents.bridge))

    def test_first_read_after_a_late_start_of_the_server(self) -> None:
        self.switch.kill_database()
        ovsdb = connection.Ovsdb(self.switch.remote)
        ovsdb.start()
        self.addCleanup(ovsdb.stop)
        self.assertFalse(ovsdb.wait(0.3))
        self.assertIn('cannot be read', ovsdb.problem() or '')
        self.switch.start_database()
        ovs_lab.wait_for(lambda: ovsdb.connected)
        self.assertEqual(self.ovsdb.remote, ovsdb.remote)
        self.assertIsNotNone(ovsdb.read())

    def test_listener_is_called_for_each_new_port(self) -> None:
        called = threading.Event()
        self.ovsdb.add_listener(called.set)
        called.clear()
        nic = self.lab.veth('n2')
        self.switch.vsctl('add-port', self.bridge, nic)
        self.assertTrue(called.wait(PATIENCE_S))
        self.lab.settle(self.ovsdb)
        self.assertEqual(nic, self.interface(nic).name)

    def test_listener_is_called_when_the_server_goes(self) -> None:
        called = threading.Event()
        self.ovsdb.add_listener(called.set)
        self.switch.kill_database()
        self.assertTrue(called.wait(PATIENCE_S))
        self.assertFalse(self.ovsdb.connected)

    def test_key_is_set_and_removed_and_others_are_kept(self) -> None:
        self.switch.vsctl(
            'set', 'Interface', self.nic, 'external_ids:other=kept'
        )
        self.assertTrue(self.write('10.1.0.1', None))
        self.assertEqual('10.1.0.1', self.value())
        self.assertTrue(self.write('10.2.0.1', '10.1.0.1'))
        self.assertEqual('10.2.0.1', self.value())
        self.assertTrue(self.write(None, '10.2.0.1'))
        self.assertEqual('', self.value())
        self.lab.settle(self.ovsdb)
        self.assertEqual({'other': 'kept'}, self.interface().external_ids)

    def test_value_of_another_is_not_overwritten(self) -> None:
        self.switch.vsctl(
            'set', 'Interface', self.nic, f'external_ids:{KEY}=10.9.0.1'
        )
        self.assertFalse(self.write('10.1.0.1', None))
        self.assertFalse(self.write(None, '10.1.0.1'))
        self.assertEqual('10.9.0.1', self.value())

    def test_value_that_is_there_already_is_no_conflict(self) -> None:
        self.switch.vsctl(
            'set', 'Interface', self.nic, f'external_ids:{KEY}=10.1.0.1'
        )
        self.assertTrue(self.write('10.1.0.1', None))

    def test_write_to_a_deleted_port_does_nothing(self) -> None:
        uuid = self.interface().uuid
        self.switch.vsctl('del-port', self.nic)
        self.lab.settle(self.ovsdb)
        self.assertFalse(self.ovsdb.set_external_id(uuid, KEY, 'x', None))

    def test_frozen_server_is_waited_for_once(self) -> None:
        """A host may have hundreds of guests to restore."""
        before = self.ovsdb.read()
        uuid = self.interface().uuid
        self.switch.pause_database()
        self.addCleanup(self.switch.resume_database)
        self.assertTrue(self.ovsdb.connected)
        with self.assertRaises(connection.OvsdbError):
            self.ovsdb.set_external_id(uuid, KEY, 'x', None)
        self.assertFalse(self.ovsdb.connected)
        self.assertIn('is away', self.ovsdb.problem() or '')
        start_s = time.monotonic()
        for _ in range(100):
            with self.assertRaisesRegex(connection.OvsdbError, 'is away'):
                self.ovsdb.set_external_id(uuid, KEY, 'y', None)
            self.assertEqual(before, self.ovsdb.read())
        # Much less than a hundred waits, of two seconds each.
        self.assertLess(time.monotonic() - start_s, 20)
        self.switch.resume_database()
        ovs_lab.wait_for(lambda: self.ovsdb.connected)
        # The write that timed out may have been carried out.
        self.lab.settle(self.ovsdb)
        present = self.value() or None
        self.assertTrue(self.write('z', present))
        self.assertEqual('z', self.value())

    def test_frozen_server_blocks_nobody_for_long(self) -> None:
        before = self.ovsdb.read()
        uuid = self.interface().uuid
        self.switch.pause_database()
        self.addCleanup(self.switch.resume_database)
        start_s = time.monotonic()
        with self.assertRaises(connection.OvsdbError):
            self.ovsdb.set_external_id(uuid, KEY, 'x', None)
        self.assertEqual(before, self.ovsdb.read())
        self.ovsdb.stop(0.1)
        self.assertLess(time.monotonic() - start_s, 30)
