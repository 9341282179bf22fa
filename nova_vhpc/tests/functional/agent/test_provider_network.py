# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Packets on a provider network that is mapped to one uplink of each host.

Neutron and OVN steer them; the agent only reads. It must leave them alone.
"""

from nova_vhpc.tests.functional.agent import frames
from nova_vhpc_lab.ovn import lab

PHYSNET = 'hpc1'
RAIL = 1
VLAN = 100


class ProviderNetworkTest(frames.FramesTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for host in cls.hosts.values():
            bridge = host.bridge(f'n{RAIL}')
            host.set_external_ids(ovn_bridge_mappings=f'{PHYSNET}:{bridge}')

    @classmethod
    def make_network(cls) -> None:
        cls.lab.provider_network(cls.lab.tag, PHYSNET, VLAN)

    def setUp(self) -> None:
        super().setUp()
        self.wait_for_answer(self.here, self.far)

    def assert_on_its_uplink(self) -> None:
        for carried in self.frames(self.here, self.far).values():
            self.assert_rail(RAIL, carried)

    def test_agent_writes_nothing_for_members_without_claims(self) -> None:
        guests = (self.here, self.peer, self.far)
        before = [guest.host.external_ids(guest.tap) for guest in guests]
        for guest in guests:
            agent = self.agents[guest.host.name]
            agent.guests[guest.uuid] = guest.as_managed()
        self.assert_on_its_uplink()
        for carried in self.frames(self.here, self.peer).values():
            # OVN announces ports of provider networks.
            self.assertLessEqual(sum(carried), frames.NOISE)
        for agent in self.agents.values():
            self.assertEqual({}, agent.binder.status()['problems'])
            agent.binder.stop()
        self.assertEqual(
            before, [guest.host.external_ids(guest.tap) for guest in guests]
        )
        self.assert_on_its_uplink()

    def test_uplink_is_the_same_after_what_happens_to_a_host(self) -> None:
        host = self.hosts['h2']
        self.far.unplug()
        self.far.plug()
        self.wait_for_answer(self.here, self.far)
        self.assert_on_its_uplink()

        host.place.kill('ovn-controller')
        lost = self.here.ping(self.far, frames.PINGS)
        self.assertLess(lost, frames.PINGS // 2)
        host.start_controller()
        self.assert_on_its_uplink()

        host.restart_vswitchd()
        self.wait_for_answer(self.here, self.far)
        self.assert_on_its_uplink()

    def test_dead_link_cuts_members_off_until_it_is_up(self) -> None:
        host = self.hosts['h2']
        host.set_link(RAIL, up=False)
        self.addCleanup(host.set_link, RAIL, up=True)
        self.assertEqual(5, self.here.ping(self.far, 5))
        # On its host, it is still reached.
        self.assertLess(self.here.ping(self.peer, 5), 5)
        host.set_link(RAIL, up=True)
        self.wait_for_answer(self.here, self.far)
        self.assert_on_its_uplink()

    def test_migrated_member_has_the_same_uplink_of_its_new_host(self) -> None:
        self.choose_hosts(self.here, 'h1,h2')
        incoming = self.here.incoming(self.hosts['h2'])
        incoming.make_namespace()
        incoming.plug()
        self.addCleanup(incoming.unplug)
        self.choose_hosts(self.here, 'h2')
        self.here.unplug()
        lab.wait_for(
            lambda: not self.peer.ping(incoming, 1), 'the first answer'
        )
        for carried in self.frames(self.peer, incoming).values():
            self.assert_rail(RAIL, carried)
