# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Encap IPs of guests' ports, on real Open vSwitch and OVN."""

import time
import types

from vif_plug_ovs.ovsdb import ovsdb_lib

from nova_vhpc.tests.functional.agent import encap_ip
from nova_vhpc_lab.ovn import lab

SOON_S = 1.0
"""Longest time without the claimed encap IP after a port is plugged again."""


class EncapIpTest(encap_ip.EncapIpTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.host = self.hosts['h1']
        self.target = self.guest('h1')
        self.before = self.host.external_ids(self.target.tap)

    def assert_restored(self) -> None:
        self.assertEqual(self.before, self.host.external_ids(self.target.tap))
        self.wait_for_encap_ip(self.target, self.host.encap_ips[0])

    def bind(self, rail: int = 1) -> encap_ip.Agent:
        agent = self.agent('h1')
        agent.manage(self.target, rail)
        self.wait_for_encap_ip(self.target, self.host.encap_ips[rail])
        return agent

    def test_ovn_uses_the_claimed_uplink_until_the_agent_stops(self) -> None:
        agent = self.bind()
        self.assertEqual(self.host.encap_ips[1], self.target.encap_ip)
        self.assertEqual([self.target.uuid], agent.binder.status()['bound'])
        agent.binder.stop()
        self.assertFalse(agent.binder.left)
        self.assert_restored()
        self.assertEqual(frozenset(), agent.encap_ips.uuids())

    def test_port_plugged_again_is_bound_within_a_second(self) -> None:
        agent = self.bind()
        for _ in range(5):
            self.target.unplug()
            self.target.plug()
            plugged_s = time.monotonic()
            lab.wait_for(
                lambda: self.target.encap_ip == self.host.encap_ips[1],
                'the encap IP of the new port',
            )
            self.assertLess(time.monotonic() - plugged_s, SOON_S)
        agent.binder.stop()
        self.assert_restored()

    def test_port_of_os_vif_is_bound_and_stays_so(self) -> None:
        os_vif = ovsdb_lib.BaseOVS(
            types.SimpleNamespace(
                ovs_vsctl_timeout=10,
                ovsdb_connection=self.host.socket,
                ovsdb_interface='native',
            )
        )
        self.addCleanup(os_vif.ovsdb.ovsdb_connection.stop)

        def plug() -> None:
            os_vif.create_ovs_vif_port(
                self.host.bridge('int'),
                self.target.tap,
                self.target.port,
                self.target.mac,
                self.target.uuid,
            )

        agent = self.bind()
        # A hard reboot.
        os_vif.delete_ovs_vif_port(
            self.host.bridge('int'), self.target.tap, delete_netdev=False
        )
        plug()
        lab.wait_for(
            lambda: self.target.encap_ip == self.host.encap_ips[1],
            'the encap IP of the new port',
        )
        # nova-compute starts, and plugs again what is plugged.
        plug()
        self.assertEqual(self.host.encap_ips[1], self.target.encap_ip)
        agent.binder.stop()
        self.assert_restored()

    def test_vswitchd_killed_keeps_the_binding(self) -> None:
        agent = self.bind()
        self.host.place.kill('ovs-vswitchd')
        self.host.start_vswitchd()
        self.host.place.kill('ovn-controller')
        self.host.start_controller()
        self.wait_for_encap_ip(self.target, self.host.encap_ips[1])
        self.assertEqual(self.host.encap_ips[1], self.target.encap_ip)
        agent.binder.stop()
        self.assert_restored()

    def test_ovsdb_killed_keeps_the_binding(self) -> None:
        agent = self.bind()
        self.host.place.kill('ovsdb-server')
        lab.wait_for(lambda: not agent.ovsdb.connected, 'the loss')
        self.host.start_ovsdb()
        lab.wait_for(lambda: agent.ovsdb.connected, 'the reconnection')
        self.target.unplug()
        self.target.plug()
        self.wait_for_encap_ip(self.target, self.host.encap_ips[1])
        agent.binder.stop()
        self.assert_restored()

    def test_next_agent_restores_after_a_crash(self) -> None:
        agent = self.bind()
        # As a process that is killed: it never writes again.
        agent.binder._thread.stop(10.0)
        self.assertEqual(self.host.encap_ips[1], self.target.encap_ip)
        other = self.agent('h1', running=False)
        self.assertEqual({}, other.encap_ips.restore_all(self.fail))
        self.assert_restored()

    def test_claim_that_moves_to_another_uplink_is_followed(self) -> None:
        agent = self.bind()
        agent.manage(self.target, 2)
        self.wait_for_encap_ip(self.target, self.host.encap_ips[2])
        agent.binder.stop()
        self.assert_restored()

    def test_encap_ip_set_by_an_operator_is_restored(self) -> None:
        self.host.vsctl(
            'set',
            'Interface',
            self.target.tap,
            f'external_ids:encap-ip={self.host.encap_ips[2]}',
        )
        self.before = self.host.external_ids(self.target.tap)
        agent = self.bind()
        agent.binder.stop()
        self.assertEqual(self.before, self.host.external_ids(self.target.tap))

    def test_encap_ip_changed_by_somebody_else_is_left_alone(self) -> None:
        agent = self.bind()
        theirs = self.host.encap_ips[2]
        self.host.vsctl(
            'set',
            'Interface',
            self.target.tap,
            f'external_ids:encap-ip={theirs}',
        )
        lab.wait_for(lambda: agent.problem(self.target), 'the problem')
        self.assertIn(self.target.tap, agent.problem(self.target))
        self.assertEqual(theirs, self.target.encap_ip)
        agent.binder.stop()
        self.assertEqual(theirs, self.target.encap_ip)
        # Plugged again, the port is a new one.
        other = self.agent('h1')
        other.manage(self.target, 1)
        lab.wait_for(lambda: other.problem(self.target), 'the problem')
        self.target.unplug()
        self.target.plug()
        self.wait_for_encap_ip(self.target, self.host.encap_ips[1])

    def test_host_with_one_encap_ip_is_refused(self) -> None:
        both = ','.join(self.host.encap_ips)
        self.host.set_external_ids(ovn_encap_ip=self.host.encap_ips[0])
        self.addCleanup(self.host.set_external_ids, ovn_encap_ip=both)
        agent = self.agent('h1')
        agent.manage(self.target, 0)
        lab.wait_for(lambda: agent.problem(self.target), 'the problem')
        self.assertIn('one OVN encap IP only', agent.problem(self.target))
        self.assertEqual('', self.target.encap_ip)

    def test_server_without_a_port_is_refused_until_it_has_one(self) -> None:
        self.target.unplug()
        agent = self.agent('h1')
        agent.manage(self.target, 1)
        lab.wait_for(lambda: agent.problem(self.target), 'the problem')
        self.assertIn(self.target.mac, agent.problem(self.target))
        self.target.plug()
        self.wait_for_encap_ip(self.target, self.host.encap_ips[1])
