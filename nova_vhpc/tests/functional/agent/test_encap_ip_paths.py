# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Packets take the claimed uplink, on two hosts with real OVN."""

from nova_vhpc.tests.functional.agent import frames
from nova_vhpc_lab.ovn import domain, lab


class EncapIpPathsTest(frames.FramesTestCase):
    def test_packets_take_the_claimed_uplinks(self) -> None:
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(0, carried)

        self.claim(self.here, 1)
        self.claim(self.far, 1)
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(1, carried)

        # Each receives on its own uplink.
        self.claim(self.far, 2)
        carried = self.frames(self.here, self.far)
        self.assert_rail(1, carried['h1 in'])
        self.assert_rail(2, carried['h2 in'])

        for agent in self.agents.values():
            agent.binder.stop()
        for guest in (self.here, self.far):
            self.wait_for_encap_ip(guest, guest.host.encap_ips[0])
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(0, carried)

    def test_packets_to_a_peer_stay_on_the_host(self) -> None:
        self.claim(self.here, 1)
        self.claim(self.peer, 2)
        for carried in self.frames(self.here, self.peer).values():
            self.assertEqual([0, 0, 0], carried)

    def test_packets_return_to_the_uplink_after_a_hard_reboot(self) -> None:
        self.claim(self.here, 1)
        self.claim(self.far, 1)
        self.far.unplug()
        self.far.plug()
        lab.wait_for(
            lambda: self.far.encap_ip == self.hosts['h2'].encap_ips[1],
            'the encap IP of the new port',
        )
        self.wait_for_encap_ip(self.far, self.hosts['h2'].encap_ips[1])
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(1, carried)

    def test_each_of_two_nics_uses_one_of_two_claimed_uplinks(self) -> None:
        # Both are NICs of one server, as with multiple-shared.
        other = self.peer
        other.unplug()
        other.uuid = self.here.uuid
        other.plug()
        self.here.domain = domain.Domain(
            self.here.uuid, (self.here.mac, other.mac)
        )
        self.agents['h1'].manage(self.here, 1, 2)
        for rail, nic in ((1, self.here), (2, other)):
            self.wait_for_encap_ip(nic, self.hosts['h1'].encap_ips[rail])
        for rail, nic in ((1, self.here), (2, other)):
            self.assert_rail(rail, self.frames(nic, self.far)['h1 in'])
            self.assert_rail(rail, self.frames(self.far, nic)['h1 in'])

        self.agents['h1'].binder.stop()
        for nic in (self.here, other):
            self.assertEqual('', nic.encap_ip)
