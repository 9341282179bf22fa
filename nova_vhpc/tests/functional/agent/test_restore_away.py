# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-agent --restore`` while libvirt or Open vSwitch is away."""

import pathlib
import signal
import threading
from unittest import mock

import fixtures

from nova_vhpc.agent.daemon import options, restore_host
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import (
    encap_ip,
    encap_ip_writer,
    guest_ports,
)
from nova_vhpc.tests.functional.agent import base
from nova_vhpc.topology import links
from nova_vhpc_lab.ovn import domain as ovn_domain
from nova_vhpc_lab.testbed import open_vswitch
from nova_vhpc_lab.testbed.patience import PATIENCE_S

MAC = 'fa:16:3e:00:00:01'
TAP = f'tap{MAC[-2:]}'
ENCAP_IPS = ('10.1.0.1', '10.2.0.1')


class RestoreAwayTest(base.AgentTestCase):
    """An agent was killed that had written to a guest, and to its port."""

    def setUp(self) -> None:
        super().setUp()
        self.switch = open_vswitch.PrivateOpenVswitch()
        self.switch.__enter__()
        self.addCleanup(self.switch.close)
        self.target = self.domain({'vhpc:workload': 'parallel'})
        self.uuid = self.target.UUIDString()
        self.switch.vsctl(
            *('set', 'Open_vSwitch', '.'),
            f'external_ids:ovn-encap-ip="{",".join(ENCAP_IPS)}"',
            *('--', 'add-br', 'br-int', '--'),
            *('set', 'Bridge', 'br-int', 'datapath_type=netdev', '--'),
            *('add-port', 'br-int', TAP, '--', 'set', 'Interface', TAP),
            *('type=internal', f'external_ids:vm-uuid={self.uuid}'),
            f'external_ids:attached-mac="{MAC}"',
        )
        self.before = base.everything(self.target)
        self.port_before = self.port()
        process = self.start_agent(
            vhpc_topology__ovsdb_connection=self.switch.remote
        )
        self.wait_for_write(self.target)
        self.bind()
        self.stop_agent(process, signal.SIGKILL)
        self.assertNotEqual(self.before, base.everything(self.target))
        self.assertIn(ENCAP_IPS[1], self.port())

    def bind(self) -> None:
        ovsdb = connection.Ovsdb(self.switch.remote)
        ovsdb.start()
        self.addCleanup(ovsdb.stop)
        self.assertTrue(ovsdb.wait(PATIENCE_S))
        self.journal = encap_ip_writer.EncapIpJournal(str(self.path / 'state'))
        encap_ip.EncapIpBinder(
            ovsdb,
            self.journal,
            'h1',
            guest_ports.UplinkLinks(links.Links(pathlib.Path('/nowhere'))),
            lambda: False,
        ).bind(
            claims.Claimant(
                ovn_domain.Domain(self.uuid, (MAC,)),
                (claims.ClaimedUplink('b', 'n', ENCAP_IPS[1]),),
            )
        )

    def port(self) -> str:
        return self.switch.vsctl('get', 'Interface', TAP, 'external_ids')

    def assert_restored(self) -> None:
        self.assertEqual(0, self.restore())
        self.assertEqual(self.before, base.everything(self.target))
        self.assertEqual(self.port_before, self.port())
        self.assertEqual((), self.journal.uuids())

    def test_guest_is_restored_if_open_vswitch_is_away(self) -> None:
        self.switch.kill_database()
        self.assertEqual(1, self.restore())
        self.assertEqual(self.before, base.everything(self.target))
        (summary,) = self.log_lines('Restore: ')
        self.assertIn('1 restored, 0 gone, 1 failed', summary)
        self.assertIn(self.uuid, summary)
        self.assertIn(f'the encap IPs of {TAP} are left', summary)
        (hint,) = self.log_lines('does not answer, so that NICs')
        self.assertIn(self.switch.remote, hint)

        self.switch.start_database()
        self.assert_restored()
        self.assertEqual(1, len(self.log_lines('NICs of 1 servers are')))

    def test_guest_is_restored_if_ovsdb_connection_is_gone(self) -> None:
        for value in ('', 'nonsense'):
            self.configure(vhpc_topology__ovsdb_connection=value)
            self.assertEqual(1, self.restore())
            self.assertEqual(self.before, base.everything(self.target))
            summary = self.log_lines('Restore: ')[-1]
            self.assertIn('ovsdb_connection', summary)
            self.assertIn('set it as before', summary)
        self.configure(vhpc_topology__ovsdb_connection=self.switch.remote)
        self.assert_restored()

    def test_encap_ip_is_restored_if_libvirt_is_away(self) -> None:
        file = self.configure(
            libvirt_uri=f'qemu+unix:///system?socket={self.path}/none',
            vhpc_topology__ovsdb_connection=self.switch.remote,
        )
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        with mock.patch.object(restore_host, 'CONNECT_SECONDS', 0.6):
            self.assertEqual(
                1,
                restore_host.restore_host(
                    options.load(['--config-file', file])
                ),
            )
        self.assertEqual(self.port_before, self.port())
        self.assertEqual((), self.journal.uuids())
        self.assertIn('NICs of 1 servers are restored', log.output)
        self.assertIn('no domain is restored, 1 servers', log.output)
        # The test's own connection ends with the test.
        self.assertEqual(
            1, [t.name for t in threading.enumerate()].count('vhpc-ovsdb')
        )

        self.configure(vhpc_topology__ovsdb_connection=self.switch.remote)
        self.assert_restored()

    def test_both_away_is_said(self) -> None:
        self.switch.kill_database()
        file = self.configure(
            libvirt_uri=f'qemu+unix:///system?socket={self.path}/none',
            vhpc_topology__ovsdb_connection=self.switch.remote,
        )
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        with (
            mock.patch.object(restore_host, 'CONNECT_SECONDS', 0.6),
            mock.patch.object(restore_host, 'OVSDB_SECONDS', 0.6),
        ):
            self.assertEqual(
                1,
                restore_host.restore_host(
                    options.load(['--config-file', file])
                ),
            )
        self.assertIn(f'the encap IPs of {TAP} are left', log.output)
        self.assertIn('no domain is restored', log.output)
        self.assertEqual((self.uuid,), self.journal.uuids())
        self.switch.start_database()
        self.configure(vhpc_topology__ovsdb_connection=self.switch.remote)
        self.assert_restored()
