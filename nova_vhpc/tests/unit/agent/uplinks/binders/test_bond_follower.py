# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.bond_follower`.

Random events, one after the other: whatever came before, entries are as
claimed once all is well again.
"""

import dataclasses
import os
import random

import fixtures
from oslotest import base

from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import (
    bond_follower,
    bond_table,
    guest_ports,
    wire_vlans,
)
from nova_vhpc.tests.unit.agent.uplinks.binders import bond, ovsdb
from nova_vhpc.topology.open_vswitch import Bridge, Interface, Port

RUNS = int(os.environ.get('VHPC_FUZZ_RUNS', '50'))
EVENTS = 40
GUESTS = 24
"""So many that some share entries."""

MEMBERS = ('eth1', 'eth2', 'eth3')
PATCH = 7
SLB = {'bond-rebalance-interval': '0'}


class Host:
    """A host with a bond, and the events that happen to it.

    :param choice: chooses the events.
    """

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice
        self.ovsdb = ovsdb.MemoryOvsdb(encap_ips='')
        self.daemon = bond.MemoryVswitchd('bond0', MEMBERS)
        self.basis = 0
        self.resets = 0
        self.is_slb = True
        self.rows: dict[str, str] = {}
        self.vlans: dict[str, int] = {}
        self.claims: dict[str, str] = {}
        self.order: list[str] = []
        self.configure()
        self.follower = bond_follower.BondFollower(
            self.ovsdb,
            guest_ports.GuestPorts(self.ovsdb.read),
            bond_table.BondTable(self.daemon),
            'h1',
        )
        for number in range(GUESTS):
            mac = f'fa:16:3e:00:00:{number:02x}'
            self.vlans[mac] = choice.choice((0, 100, 200))
            self.plug(mac)

    def configure(self) -> None:
        """Let the database tell how the bond is."""
        members = tuple(
            Interface(
                name,
                link_up=name not in self.daemon.disabled,
                link_resets=self.resets,
                ofport=number,
            )
            for number, name in enumerate(MEMBERS, 1)
        )
        self.ovsdb.set_bridges(
            Bridge(
                'br-ex',
                (
                    Port(
                        'bond0',
                        members,
                        'balance-slb' if self.is_slb else 'active-backup',
                        other_config={
                            **SLB,
                            'bond-hash-basis': str(self.basis),
                        },
                    ),
                ),
            )
        )

    # -- events ------------------------------------------------------------

    def plug(self, mac: str) -> None:
        if mac not in self.rows:
            self.rows[mac] = self.ovsdb.plug(mac, mac)

    def unplug(self, mac: str) -> None:
        if mac in self.rows:
            self.ovsdb.unplug(self.rows.pop(mac))

    def speak(self, mac: str) -> None:
        heard = (PATCH, self.vlans[mac], mac)
        if heard not in self.daemon.fdb and not self.daemon.away:
            self.daemon.fdb.append(heard)

    def claim(self, mac: str) -> None:
        member = self._choice.choice(MEMBERS)
        if mac not in self.claims:
            self.order.append(mac)
        self.claims[mac] = member
        uplink = claims.ClaimedUplink('br-ex', member)
        self.follower.steer(mac, {mac: uplink})

    def release(self, mac: str) -> None:
        if self.claims.pop(mac, None):
            self.order.remove(mac)
        self.follower.release(mac)

    def flap(self, mac: str) -> None:
        """Take a link down and up; its entries go elsewhere meanwhile."""
        member = self._choice.choice(MEMBERS)
        self.resets += 1
        self.configure()
        for entry, present in self.daemon.entries.items():
            if present == member:
                self.daemon.entries[entry] = MEMBERS[0]

    def link_down(self, mac: str) -> None:
        member = self._choice.choice(MEMBERS[1:])
        self.daemon.disabled.add(member)
        for entry, present in self.daemon.entries.items():
            if present == member:
                self.daemon.entries[entry] = MEMBERS[0]

    def links_up(self, mac: str) -> None:
        self.daemon.disabled.clear()

    def crash(self, mac: str) -> None:
        self.daemon.away = True

    def restart(self, mac: str) -> None:
        self.daemon.restart()

    def rehash(self, mac: str) -> None:
        self.basis = self._choice.randrange(4)
        self.configure()

    def switch_mode(self, mac: str) -> None:
        self.is_slb = not self.is_slb
        self.daemon.entries.clear()
        self.configure()

    def follow(self, mac: str) -> None:
        self.follower.follow()

    def happen(self) -> None:
        """Let one event happen."""
        event = self._choice.choice(
            (
                *(self.claim, self.speak) * 3,
                *(self.plug, self.unplug, self.release, self.flap),
                *(self.link_down, self.links_up, self.crash, self.restart),
                *(self.rehash, self.switch_mode, self.follow, self.follow),
            )
        )
        event(self._choice.choice(tuple(self.vlans)))

    def mend(self) -> None:
        """Let all be well again, and all guests send."""
        if self.daemon.away:
            self.daemon.restart()
        self.daemon.disabled.clear()
        self.is_slb = True
        self.configure()
        for mac in self.vlans:
            self.plug(mac)
            self.speak(mac)
        self.follower.follow()

    def entry(self, mac: str) -> int:
        return bond.entry(mac, self.vlans[mac], self.basis)


class BondFollowerFuzzTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.useFixture(fixtures.MockPatchObject(wire_vlans, '_LOAD', 0))

    def test_entries_are_as_claimed_once_all_is_well(self) -> None:
        shared = 0
        for seed in range(RUNS):
            host = Host(random.Random(seed))
            for _ in range(EVENTS):
                host.happen()
                self.assert_honest(host, seed)
            host.mend()
            self.assert_honest(host, seed)
            for mac in host.order:
                (target,) = host.follower.targets(mac)
                first = next(
                    m for m in host.order if host.entry(m) == host.entry(mac)
                )
                self.assertEqual(
                    host.claims[first],
                    host.daemon.entries[host.entry(mac)],
                    (seed, mac),
                )
                agree = host.claims[first] == host.claims[mac]
                self.assertIs(agree, not target.problem, (seed, mac))
                shared += not agree
        # Otherwise that was not tested.
        self.assertGreater(shared, 0)

    def assert_honest(self, host: Host, seed: int) -> None:
        """Assert that a guest is in force, has a problem, or waits."""
        host.follower.follow()
        for mac in host.order:
            (target,) = host.follower.targets(mac)
            if target.setting is None:
                waits = target.sought.vlan is None
                self.assertTrue(target.problem or waits, (seed, mac))
            else:
                self.assertEqual('', target.problem, (seed, mac))
                self.assertEqual(
                    host.claims[mac],
                    host.daemon.entries[target.setting.entry],
                    (seed, mac),
                )

    def test_members_of_former_ports_are_refused(self) -> None:
        host = Host(random.Random(0))
        mac = next(iter(host.vlans))
        host.speak(mac)
        host.claim(mac)
        first = host.ovsdb.bridges[0].ports[0].interfaces[0]
        port = dataclasses.replace(
            host.ovsdb.bridges[0].ports[0], interfaces=(first,)
        )
        host.ovsdb.set_bridges(Bridge('br-ex', (port,)))
        host.follower.follow()
        (target,) = host.follower.targets(mac)
        for word in (host.claims[mac], 'br-ex', 'h1', 'no member of a bond'):
            self.assertIn(word, target.problem)
