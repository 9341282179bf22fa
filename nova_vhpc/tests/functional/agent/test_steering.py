# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Claims that steer nothing are said, on real Open vSwitch and OVN."""

import os
import signal
from typing import Any

import fixtures

from nova_vhpc.agent.uplinks import bound_guest, port_networks
from nova_vhpc.tests.functional.agent import encap_ip
from nova_vhpc_lab.ovn import lab

MAPPINGS = {0: 'hpc0', 1: 'hpc1'}
"""Physical network of each uplink that has one."""


class SteeringTest(encap_ip.EncapIpTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.host = cls.hosts['h1']
        cls.host.set_external_ids(
            ovn_bridge_mappings=','.join(
                f'{physnet}:{cls.host.bridge(f"n{rail}")}'
                for rail, physnet in MAPPINGS.items()
            )
        )
        cls.lab.network('provider')
        cls.lab.localnet('provider', 'hpc0', 'provnet-a', 100)
        cls.lab.network('segments')
        cls.lab.localnet('segments', 'hpc0', 'provnet-b', 200)
        cls.lab.localnet('segments', 'hpc1', 'provnet-c', 200)

    def start(
        self, network: str, rail: int, enabled: bool = True
    ) -> encap_ip.Agent:
        """Start an agent, and let a server of a network claim an uplink."""
        self.target = self.guest('h1', network=network)
        self.before = self.host.external_ids(self.target.tap)
        agent = self.agent('h1', enabled=enabled)
        agent.physnets = {n: (one,) for n, one in MAPPINGS.items()}
        agent.manage(self.target, rail)
        return agent

    def unsteered(self, agent: encap_ip.Agent, cause: str) -> str:
        """Wait until nothing steers the claim; return what is said of it."""

        def found() -> Any:
            known = agent.binder.status()['unsteered'].get(self.target.uuid)
            return known and known['cause'] == cause

        lab.wait_for(found, f'"{cause}"')
        self.assertEqual(self.before, self.host.external_ids(self.target.tap))
        self.assertEqual([], agent.binder.status()['bound'])
        text = agent.problem(self.target)
        self.assertIn('h1', text)
        return text

    def way(self, agent: encap_ip.Agent) -> str:
        """Wait until the claim steers; return what does it."""
        lab.wait_for(
            lambda: agent.binder.status()['bound'] == [self.target.uuid],
            'the binding',
        )
        status = agent.binder.status()
        self.assertEqual({}, status['problems'])
        name: str = status['uplinks'][self.target.uuid]['binder']
        return name

    def test_tunnels_are_steered_beside_provider_networks(self) -> None:
        self.assertEqual('encap_ip', self.way(self.start(self.lab.tag, 1)))

    def test_only_uplink_of_a_provider_network_needs_no_binder(self) -> None:
        agent = self.start('provider', 0)
        lab.wait_for(
            lambda: self.way(agent) == 'neutron', 'the provider network'
        )
        self.assertEqual(self.before, self.host.external_ids(self.target.tap))

    def test_claim_on_another_physnet_is_said(self) -> None:
        text = self.unsteered(self.start('provider', 1), 'other-physnet')
        for word in (self.target.mac, 'hpc0', 'hpc1'):
            self.assertIn(word, text)

    def test_several_mapped_segments_are_said(self) -> None:
        text = self.unsteered(self.start('segments', 0), 'several-segments')
        for word in ('provnet-b', 'provnet-c', 'hpc0', 'hpc1'):
            self.assertIn(word, text)

    def test_bridge_may_speak_new_versions_of_openflow_only(self) -> None:
        bridge = self.host.bridge('int')
        self.addCleanup(
            self.host.vsctl, 'clear', 'Bridge', bridge, 'protocols'
        )
        self.host.vsctl(
            'set', 'Bridge', bridge, 'protocols=OpenFlow13,OpenFlow15'
        )
        agent = self.start('provider', 1)
        self.unsteered(agent, 'other-physnet')
        agent.binder.stop()
        self.assertEqual('encap_ip', self.way(self.start(self.lab.tag, 1)))

    def test_flows_that_cannot_be_read_steer_nothing(self) -> None:
        self.useFixture(
            fixtures.MockPatchObject(port_networks, 'PROGRAM', '/no/ovs-ofctl')
        )
        text = self.unsteered(self.start('provider', 1), 'unknown-network')
        self.assertIn('install ovs-ofctl', text)

    def test_claim_steers_once_ovn_has_taken_it_over(self) -> None:
        self.useFixture(fixtures.MockPatchObject(bound_guest, 'UNSEEN_S', 0.0))
        self.addCleanup(self.signal_controller, signal.SIGCONT)
        self.target = self.guest('h1')
        lab.wait_for(
            lambda: self.host.is_wired(self.target.tap),
            'the port',
        )
        self.signal_controller(signal.SIGSTOP)
        agent = self.agent('h1')
        agent.manage(self.target, 2)
        lab.wait_for(lambda: agent.problem(self.target), 'the problem')
        self.assertEqual(self.host.encap_ips[2], self.target.encap_ip)
        status = agent.binder.status()
        self.assertEqual([], status['bound'])
        for word in ('Port_Binding', self.target.mac, self.target.encap_ip):
            self.assertIn(word, agent.problem(self.target))
        self.signal_controller(signal.SIGCONT)
        self.assertEqual('encap_ip', self.way(agent))
        self.assertEqual(
            self.target.encap_ip, self.lab.encap_of(self.target.port)
        )

    def signal_controller(self, number: int) -> None:
        pid = (self.host.place.path / 'ovn-controller.pid').read_text()
        os.kill(int(pid), number)

    def test_order_of_encap_ips_makes_no_difference(self) -> None:
        self.addCleanup(
            self.host.set_external_ids,
            ovn_encap_ip=','.join(self.host.encap_ips),
        )
        self.host.set_external_ids(
            ovn_encap_ip=','.join(reversed(self.host.encap_ips))
        )
        agent = self.agent('h1')
        guests = [self.guest('h1') for _ in range(3)]
        for rail, guest in enumerate(guests):
            agent.manage(guest, rail)
        lab.wait_for(
            lambda: len(agent.binder.status()['bound']) == 3, 'the bindings'
        )
        self.assertEqual(
            self.host.encap_ips,
            [self.lab.encap_of(guest.port) for guest in guests],
        )

    def test_binding_that_is_off_is_said(self) -> None:
        text = self.unsteered(self.start(self.lab.tag, 1, False), 'off')
        self.assertIn('bind_uplinks', text)

    def test_one_encap_ip_is_said_and_solved(self) -> None:
        self.addCleanup(
            self.host.set_external_ids,
            ovn_encap_ip=','.join(self.host.encap_ips),
        )
        self.host.set_external_ids(ovn_encap_ip=self.host.encap_ips[0])
        agent = self.start(self.lab.tag, 1)
        text = self.unsteered(agent, 'one-encap-ip')
        self.assertIn(self.host.encap_ips[0], text)
        self.host.set_external_ids(ovn_encap_ip=','.join(self.host.encap_ips))
        self.assertEqual('encap_ip', self.way(agent))


class Ml2Test(encap_ip.EncapIpTestCase):
    """A host whose ports Neutron's Open vSwitch agent has wired."""

    HOSTS = {'h1': 2}

    def record(self, guest: encap_ip.Guest, **values: str) -> None:
        """Write what the agent writes of a port (``port_bound``)."""
        guest.host.vsctl(
            'set',
            'Port',
            guest.tap,
            *(f'other_config:{key}={value}' for key, value in values.items()),
        )

    def start(self, **values: str) -> str:
        """Return what an agent says of a claim of a recorded port."""
        target = self.guest('h1')
        self.record(target, net_uuid='net', tag='1', **values)
        agent = self.agent('h1')
        agent.physnets = {1: ('hpc1',)}
        agent.manage(target, 1)
        lab.wait_for(lambda: agent.problem(target), 'the problem')
        return agent.problem(target)

    def test_port_on_another_physnet_is_said(self) -> None:
        text = self.start(
            network_type='vlan', physical_network='hpc0', segmentation_id='9'
        )
        self.assertIn('hpc0', text)

    def test_same_vlan_on_two_physnets_is_said(self) -> None:
        first = self.guest('h1')
        values = {'network_type': 'vlan', 'segmentation_id': '7'}
        self.record(
            first, net_uuid='net', tag='1', physical_network='hpc0', **values
        )
        text = self.start(physical_network='hpc1', **values)
        for word in ('hpc0', 'hpc1', 'VLAN 7', 'h1'):
            self.assertIn(word, text)

    def test_tunnels_are_said(self) -> None:
        self.hosts['h1'].vsctl(
            'remove', 'Open_vSwitch', '.', 'external_ids', 'ovn-encap-ip'
        )
        text = self.start(
            network_type='vxlan', physical_network='None', segmentation_id='8'
        )
        self.assertIn('ML2/OVS', text)
