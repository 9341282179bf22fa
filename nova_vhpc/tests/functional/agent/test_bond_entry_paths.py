# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Frames leave and arrive by the claimed member of a bond, on two hosts.

Members of the cluster are network namespaces, on a VLAN network of OVN. The
unicast frames of each member of the bonds are counted in the fabric between
the hosts.
"""

from nova_vhpc.agent.ovsdb import vswitchd
from nova_vhpc.tests.functional.agent import bond_entry, encap_ip
from nova_vhpc_lab.ovn import domain, lab

PINGS = 50

NOISE = 5
"""Most other frames on a used member, such as those that OVN sends."""


class BondEntryPathsTest(bond_entry.BondEntryTestCase):
    HOSTS = {'h1': 1, 'h2': 1}

    def setUp(self) -> None:
        super().setUp()
        self.here, self.peer = (self.guest('h1', sends=True) for _ in range(2))
        self.far = self.guest('h2', sends=True)
        self.agents = {name: self.bond_agent(name) for name in self.hosts}
        self.lab.nbctl('--wait=hv', 'sync')

    def claim(self, guest: encap_ip.Guest, number: int) -> None:
        """Let a guest claim a member; wait until its entry is set.

        A guest that is silent has no entry.
        """
        agent = self.agents[guest.host.name]
        agent.manage(guest, number)
        other = self.here if guest is self.far else self.far
        guest.ping(other, 3)
        self.wait_for_member(agent, guest, number)

    def assert_member(self, number: int, carried: list[int]) -> None:
        """Assert that one member carried all frames, and no other any."""
        others = carried[:number] + carried[number + 1 :]
        self.assertEqual([0] * len(others), others, carried)
        self.assertGreaterEqual(carried[number], self.answers)
        self.assertLessEqual(carried[number], PINGS + NOISE)

    def assert_path(self, here: int, far: int) -> None:
        carried = self.frames(self.here, self.far, PINGS)
        for way in ('in', 'out'):
            self.assert_member(here, carried[f'h1 {way}'])
            self.assert_member(far, carried[f'h2 {way}'])

    def test_frames_take_the_claimed_members_in_both_directions(self) -> None:
        for here, far in ((0, 0), (1, 0), (1, 1), (0, 1)):
            self.claim(self.here, here)
            self.claim(self.far, far)
            self.assert_path(here, far)

    def test_frames_to_a_peer_stay_on_the_host(self) -> None:
        self.claim(self.here, 0)
        self.claim(self.peer, 1)
        carried = self.frames(self.here, self.peer, PINGS)
        for counts in carried.values():
            self.assertEqual([0, 0], counts)

    def test_frames_return_after_the_link_was_down(self) -> None:
        agent = self.agents['h1']
        self.claim(self.far, 0)
        self.claim(self.here, 1)
        with self.link_down('h1', 1):
            lab.wait_for(lambda: agent.problem(self.here), 'the problem')
            self.assertIn('passes no packets', agent.problem(self.here))
            self.assertEqual('', agent.in_force(self.here))
            self.assertEqual([], agent.binder.status()['bound'])
            self.assert_path(0, 0)
        self.wait_for_member(agent, self.here, 1)
        self.assertEqual('', agent.problem(self.here))
        self.assert_path(1, 0)

    def test_frames_return_after_vswitchd_is_killed(self) -> None:
        agent = self.agents['h1']
        self.claim(self.far, 0)
        for number in (1, 0, 1, 0):
            # Whatever member Open vSwitch would take, one of them is wrong.
            self.claim(self.here, number)
            host = self.hosts['h1']
            host.place.kill('ovs-vswitchd')
            lab.wait_for(lambda: agent.problem(self.here), 'the problem')
            host.start_vswitchd()
            self.wait_for_member(agent, self.here, number)
            self.lab.nbctl('--wait=hv', 'sync')
            self.assert_path(number, 0)

    def test_frames_take_the_claimed_member_after_a_migration(self) -> None:
        self.claim(self.here, 1)
        moved = self.here.incoming(self.hosts['h2'])
        moved.make_namespace()
        self.here.unplug()
        del self.agents['h1'].guests[self.here.uuid]
        moved.plug()
        self.addCleanup(moved.unplug)
        self.lab.nbctl('--wait=hv', 'sync')
        # For five minutes, an SLB bond drops the frames of an address that
        # was on its own host before, unless it is announced again.
        left = self.hosts['h1']
        vswitchd.Vswitchd(left.place.path).call(
            'fdb/flush', left.bridge('prov')
        )
        agent = self.agents['h2']
        for number in (1, 0):
            agent.manage(moved, number)
            self.wait_for_answer(moved, self.peer)
            self.wait_for_member(agent, moved, number)
            self.wait_for_answer(self.peer, moved)
            carried = self.frames(self.peer, moved, PINGS)
            for way in ('in', 'out'):
                self.assert_member(number, carried[f'h2 {way}'])
        entries = self.agents['h1'].entries
        lab.wait_for(lambda: not entries.uuids(), 'the end on the old host')

    def test_frames_return_after_a_hard_reboot(self) -> None:
        self.claim(self.here, 1)
        self.claim(self.far, 1)
        self.here.unplug()
        self.here.plug()
        self.lab.nbctl('--wait=hv', 'sync')
        self.assert_path(1, 1)

    def test_each_of_two_nics_uses_one_of_two_claimed_members(self) -> None:
        # Both are NICs of one server, as with multiple-shared.
        other = self.peer
        other.unplug()
        other.uuid = self.here.uuid
        other.plug()
        self.lab.nbctl('--wait=hv', 'sync')
        self.here.domain = domain.Domain(
            self.here.uuid, (self.here.mac, other.mac)
        )
        self.claim(self.far, 0)
        agent = self.agents['h1']
        agent.manage(self.here, 0, 1)
        for number, nic in enumerate((self.here, other)):
            nic.ping(self.far, 3)
            self.wait_for_member(agent, nic, number)
        for number, nic in enumerate((self.here, other)):
            carried = self.frames(nic, self.far, PINGS)
            for way in ('in', 'out'):
                self.assert_member(number, carried[f'h1 {way}'])
