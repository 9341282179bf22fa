# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Hosts with a real SLB bond and OVN, and the binder of bonds' entries."""

import contextlib
from collections.abc import Iterator

from nova_vhpc.agent.ovsdb import vswitchd
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import bond_entry
from nova_vhpc.tests.functional.agent import encap_ip
from nova_vhpc_lab.ovn import frames, lab

PHYSNET = 'prov'
VLAN = 100
SLB = ('bond_mode=balance-slb', 'other_config:bond-rebalance-interval=0')
MEMBERS = 2


class Agent(encap_ip.BindingAgent):
    """An agent that sets entries of the bond."""

    def make_binder(self) -> bond_entry.BondEntryBinder:
        self.entries = bond_entry.BondEntryBinder(
            self.ovsdb,
            vswitchd.Vswitchd(self.host.place.path),
            self.host.name,
        )
        return self.entries

    def uplink(self, number: int) -> claims.ClaimedUplink:
        return claims.ClaimedUplink(
            self.host.bridge('prov'),
            self.host.nic(f'b{number}'),
            None,
            (PHYSNET,),
            tuple(
                self.host.nic(f'b{other}')
                for other in range(MEMBERS)
                if other != number
            ),
        )

    def in_force(self, guest: encap_ip.Guest) -> str:
        """Return bond and member of a guest; empty if none is in force."""
        return self.entries.in_force(guest.uuid).get(guest.mac, '')


class BondEntryTestCase(encap_ip.EncapIpTestCase):
    """Has hosts with a bond, and guests on a VLAN network of it."""

    HOSTS = {'h1': 1}

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for host in cls.hosts.values():
            host.add_bond('prov', MEMBERS, PHYSNET, *SLB)

    def setUp(self) -> None:
        super().setUp()
        self.counter = self.useFixture(frames.UnicastCounter(self.lab.fabric))

    @classmethod
    def make_network(cls) -> None:
        cls.lab.provider_network(cls.lab.tag, PHYSNET, VLAN)

    def bond_agent(self, name: str, running: bool = True) -> Agent:
        """Return an agent on a host; started, unless said otherwise."""
        agent = Agent(self.hosts[name])
        self.addCleanup(agent.ovsdb.stop)
        if running:
            agent.binder.start()
            self.addCleanup(agent.binder.stop)
        return agent

    def wait_for_member(
        self, agent: Agent, guest: encap_ip.Guest, number: int
    ) -> None:
        """Wait until a guest's entry is set to a member."""
        want = f'{agent.host.bond}/{agent.host.nic(f"b{number}")}'
        lab.wait_for(lambda: agent.in_force(guest) == want, want)

    def frames(
        self, source: encap_ip.Guest, target: encap_ip.Guest, packets: int
    ) -> dict[str, list[int]]:
        """Let two guests talk; return the unicast frames of each member.

        A busy machine loses some; ``answers`` is how many packets came back.
        """
        # OVN does not wait for both hosts to know a port that has just moved.
        self.wait_for_answer(source, target)
        source.ping(target, 5)
        before = self.counter.read()
        self.answers = packets - source.ping(target, packets)
        self.assertGreater(self.answers, packets // 2)
        after = self.counter.read()
        return {
            f'{name} {way}': [
                after.get(f'{name}-b{number} {way}', 0)
                - before.get(f'{name}-b{number} {way}', 0)
                for number in range(MEMBERS)
            ]
            for name in self.hosts
            for way in ('in', 'out')
        }

    def contents(self, name: str) -> str:
        """Return what an agent could have written to Open vSwitch."""
        host = self.hosts[name]
        return ''.join(
            host.vsctl(f'--columns=_uuid,{column}', 'list', table)
            for table in ('Interface', 'Port', 'Bridge', 'Open_vSwitch')
            for column in ('external_ids', 'other_config')
        )

    @contextlib.contextmanager
    def link_down(self, name: str, number: int) -> Iterator[None]:
        """Take the link of a member down for a while."""
        port = f'{name}-b{number}'
        self.lab.fabric.ip('link', 'set', 'dev', port, 'down')
        try:
            yield
        finally:
            self.lab.fabric.ip('link', 'set', 'dev', port, 'up')
