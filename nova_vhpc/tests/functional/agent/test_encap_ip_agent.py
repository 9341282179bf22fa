# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A real agent sets encap IPs of a real guest's port, and restores them."""

import os
import signal
import socket

from nova_vhpc.cli import ctl
from nova_vhpc.tests.functional.agent import binding_agent
from nova_vhpc.topology import model
from nova_vhpc_lab.ovn import lab


class EncapIpAgentTest(binding_agent.BindingAgentCase):
    def start_claimed(self, binding: str) -> object:
        """Start the agent, and claim the second uplink.

        :param binding: value of ``bind_uplinks``.
        """
        return self.start(
            [self.host.nic(f'n{rail}') for rail in range(self.UPLINKS)],
            self.host.bridge('n1'),
            self.host.nic('n1'),
            binding,
        )

    def start_bound(self) -> object:
        """Start the agent; wait until the second uplink is used."""
        agent = self.start_claimed('true')
        self.wait_for(
            lambda: self.host.encap_ip(self.tap) == self.host.encap_ips[1],
            'the claimed encap IP',
        )
        return agent

    def test_encap_ip_follows_the_claim_and_is_restored(self) -> None:
        before = self.host.external_ids(self.tap)
        agent = self.start_bound()
        uuid = self.target.UUIDString()
        binding = self.wait_for(self.bound, 'the status of the binding')
        self.assertEqual([uuid], binding['bound'])
        self.assertEqual('encap_ip', binding['uplinks'][uuid]['binder'])
        self.assertEqual(
            {binding_agent.MAC: self.host.encap_ips[1]},
            binding['uplinks'][uuid]['in_force'],
        )
        lab.wait_for(
            lambda: self.lab.encap_of('port1') == self.host.encap_ips[1],
            'OVN to use it',
        )

        # A hard reboot: another port, another run of the domain.
        self.target.destroy()
        self.host.unplug(self.tap)
        self.plug()
        self.target.create()
        self.wait_for(
            lambda: self.host.encap_ip(self.tap) == self.host.encap_ips[1],
            'the encap IP after a hard reboot',
        )

        self.stop_agent(agent, signal.SIGKILL)
        self.assertEqual(self.host.encap_ips[1], self.host.encap_ip(self.tap))
        self.assertEqual(0, self.restore())
        self.assertEqual(before, self.host.external_ids(self.tap))

        agent = self.start_bound()
        self.assertEqual(0, self.stop_agent(agent))
        self.assertEqual(before, self.host.external_ids(self.tap))
        self.assertEqual([], os.listdir(self.path / 'state' / 'encap-ips'))

    def test_claim_is_said_to_steer_nothing_while_binding_is_off(self) -> None:
        before = self.host.external_ids(self.tap)
        agent = self.start_claimed('false')
        uuid = self.target.UUIDString()
        self.wait_for(
            lambda: self.status()['binding']['unsteered'].get(uuid),
            'the claim that steers nothing',
        )
        document = self.status()
        unsteered = document['binding']['unsteered'][uuid]
        self.assertEqual('off', unsteered['cause'])
        for word in (socket.gethostname(), binding_agent.MAC, 'bind_uplinks'):
            self.assertIn(word, unsteered['what'])
        part = document['health']['parts']['binding']
        self.assertEqual('degraded', part['state'])
        self.assertIn(unsteered['what'], part['what'])
        self.assertIn(unsteered['remedy'], part['action'])
        text = ctl.describe('h1', document)
        self.assertIn(f'({uuid}) steer nothing: ', text)
        self.assertEqual(before, self.host.external_ids(self.tap))
        self.assertEqual(0, self.stop_agent(agent))
        self.assertEqual(before, self.host.external_ids(self.tap))

    def test_dead_link_is_reported_and_reserved_until_it_is_up(self) -> None:
        agent = self.start_bound()
        uuid = self.target.UUIDString()
        self.wait_for(self.bound, 'the status of the binding')
        self.assertFalse(self.is_reserved())
        self.host.set_link(1, up=False)
        self.wait_for(
            lambda: self.host.encap_ip(self.tap) == self.host.encap_ips[0],
            'the default encap IP',
        )
        self.wait_for(self.is_reserved, 'the reservation')
        unsteered = self.wait_for(
            lambda: self.status()['binding']['unsteered'].get(uuid),
            'the problem in the status',
        )
        self.assertEqual('link-down', unsteered['cause'])
        self.assertIn(f'{self.host.nic("n1")} (bridge', unsteered['what'])
        self.assertIn(self.host.encap_ips[0], unsteered['remedy'])
        part = self.status()['health']['parts']['binding']
        self.assertEqual('degraded', part['state'])

        self.host.set_link(1, up=True)
        self.wait_for(self.bound, 'the end of the problem')
        self.wait_for(
            lambda: not self.is_reserved(), 'the end of the reservation'
        )
        self.assertEqual(self.host.encap_ips[1], self.host.encap_ip(self.tap))
        self.assertEqual(0, self.stop_agent(agent))
        self.assertEqual('', self.host.encap_ip(self.tap))

    def is_reserved(self) -> bool:
        """Return whether Placement gives the claimed uplink to nobody."""
        provider = model.provider_uuid(
            'cn1', self.host.bridge('n1'), self.host.nic('n1')
        )
        slots = self.nova(
            'GET', f'/resource_providers/{provider}/inventories'
        )['inventories'][model.UPLINK]
        return bool(slots['reserved'] == slots['total'])
