# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""What happens to packets of members when something happens to a host."""

from concurrent import futures

from nova_vhpc.tests.functional.agent import frames
from nova_vhpc_lab.ovn import lab

MANY = 400
"""Packets of a ping that lasts while something happens: for four seconds."""

FEW = MANY // 40
"""Packets that Open vSwitch in user space may lose on a busy machine.

In 100 ms without a way, as many would be lost.
"""


class EncapIpEventsTest(frames.FramesTestCase):
    def assert_on_rail(self, rail: int) -> None:
        """Assert which uplink carries the packets between the hosts."""
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(rail, carried)

    def claim_one_rail(self) -> None:
        """Let members on both hosts claim uplinks of one number."""
        self.claim(self.here, 1)
        self.claim(self.far, 1)

    def test_agent_that_stops_loses_no_packet(self) -> None:
        self.claim_one_rail()
        self.here.ping(self.far, 5)
        with futures.ThreadPoolExecutor() as threads:
            lost = threads.submit(self.here.ping, self.far, MANY)
            for agent in self.agents.values():
                agent.binder.stop()
            for guest in (self.here, self.far):
                self.wait_for_encap_ip(guest, guest.host.encap_ips[0])
            self.assertFalse(lost.done())
            self.assertLess(lost.result(), FEW)
        self.assert_on_rail(0)

    def test_packets_stay_on_the_uplink_when_ovn_is_restarted(self) -> None:
        self.claim_one_rail()
        for host in self.hosts.values():
            host.place.kill('ovn-controller')
        # Open vSwitch goes on by the flows it has.
        lost = self.here.ping(self.far, frames.PINGS)
        self.assertLess(lost, frames.PINGS // 2)
        for host in self.hosts.values():
            host.start_controller()
        self.assert_on_rail(1)

    def test_packets_return_when_vswitchd_was_killed(self) -> None:
        self.claim_one_rail()
        self.hosts['h2'].restart_vswitchd()
        self.wait_for_answer(self.here, self.far)
        self.assert_on_rail(1)

    def test_member_with_a_dead_link_is_reached_by_another_uplink(
        self,
    ) -> None:
        host = self.hosts['h2']
        self.claim(self.far, 1)
        self.assert_rail(1, self.frames(self.here, self.far)['h2 in'])
        host.set_link(1, up=False)
        self.addCleanup(host.set_link, 1, up=True)
        self.wait_for_encap_ip(self.far, host.encap_ips[0])
        self.wait_for_answer(self.here, self.far)
        self.assert_on_rail(0)
        problem = self.agents['h2'].problem(self.far)
        self.assertIn('the link of uplink n1 (bridge br-n1)', problem)

        host.set_link(1, up=True)
        self.wait_for_encap_ip(self.far, host.encap_ips[1])
        self.assert_rail(1, self.frames(self.here, self.far)['h2 in'])
        self.assertEqual('', self.agents['h2'].problem(self.far))

    def test_agent_that_stops_restores_a_member_with_a_dead_link(self) -> None:
        host = self.hosts['h2']
        before = host.external_ids(self.far.tap)
        self.claim(self.far, 1)
        host.set_link(1, up=False)
        self.addCleanup(host.set_link, 1, up=True)
        self.wait_for_encap_ip(self.far, host.encap_ips[0])
        self.agents['h2'].binder.stop()
        self.assertEqual(before, host.external_ids(self.far.tap))
        self.assertEqual(frozenset(), self.agents['h2'].encap_ips.uuids())

    def test_live_migration_is_steered_on_both_hosts(self) -> None:
        source, target = self.hosts['h1'], self.hosts['h2']
        self.claim(self.here, 1)
        self.claim(self.peer, 1)
        # Neutron binds the port to both, Nova plugs it on the target.
        self.choose_hosts(self.here, 'h1,h2')
        incoming = self.here.incoming(target)
        incoming.make_namespace()
        incoming.plug()
        self.addCleanup(incoming.unplug)
        self.agents['h2'].manage(incoming, 2)
        # OVN 25.03 keeps the one that the port had before, too.
        lab.wait_for(
            lambda: (
                target.encap_ips[2]
                in self.lab.encap_ips_of(self.here.port, 'additional_encap')
            ),
            'the encap IP on the target',
        )
        self.wait_for_encap_ip(self.here, source.encap_ips[1])

        # The guest runs on the target; Nova cleans the source up.
        self.choose_hosts(self.here, 'h2')
        self.here.unplug()
        del self.agents['h1'].guests[self.here.uuid]
        self.wait_for_encap_ip(incoming, target.encap_ips[2])
        carried = self.frames(self.peer, incoming)
        self.assert_rail(1, carried['h1 in'])
        self.assert_rail(2, carried['h2 in'])
        lab.wait_for(
            lambda: self.agents['h1'].encap_ips.uuids() == {self.peer.uuid},
            'the end of the record on the source',
        )
        self.assertEqual('', self.agents['h1'].problem(self.here))
