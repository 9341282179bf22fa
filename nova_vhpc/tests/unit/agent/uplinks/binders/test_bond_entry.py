# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.bond_entry`."""

import dataclasses
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import bond_entry, wire_vlans
from nova_vhpc.tests.unit.agent.uplinks.binders import bond, ovsdb
from nova_vhpc.topology.open_vswitch import Bridge, Interface, Port
from nova_vhpc_lab.ovn import domain

MACS = ('fa:16:3e:00:00:01', 'fa:16:3e:00:00:02')
OTHER_MAC = 'fa:16:3e:00:00:09'
PATCH = 7
"""Number of the port that leads to the guests."""

FIRST = claims.ClaimedUplink('br-ex', 'eth1', None, ('prov',))
SECOND = claims.ClaimedUplink('br-ex', 'eth2', None, ('prov',))
SLB = Port(
    'bond0',
    (
        Interface('eth1', link_up=True, ofport=1),
        Interface('eth2', link_up=True, ofport=2),
    ),
    'balance-slb',
    other_config={'bond-rebalance-interval': '0'},
)


class BondEntryCase(base.BaseTestCase):
    """Has a bond, and a guest with two ports that has sent in VLAN 100."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        # A bridge is read as often as asked for.
        self.useFixture(fixtures.MockPatchObject(wire_vlans, '_LOAD', 0))
        self.ovsdb = ovsdb.MemoryOvsdb(encap_ips='')
        self.rows = [self.ovsdb.plug('u', mac) for mac in MACS]
        self.set_bond(SLB)
        self.daemon = bond.MemoryVswitchd('bond0', ('eth1', 'eth2'))
        self.hear(MACS[1])
        self.domain = domain.Domain('u', MACS)
        self.binder = bond_entry.BondEntryBinder(self.ovsdb, self.daemon, 'h1')

    def set_bond(self, port: Port) -> None:
        self.ovsdb.set_bridges(Bridge('br-ex', (port,)))

    def hear(self, mac: str, vlan: int = 100, port: object = PATCH) -> None:
        """Let a NIC send a frame."""
        self.daemon.fdb.append((port, vlan, mac))

    def bind(self, *uplinks: claims.ClaimedUplink) -> int:
        return self.binder.bind(
            claims.Claimant(self.domain, uplinks or (SECOND,))
        )

    def follow(self) -> None:
        """Let the thread have its turn."""
        self.binder._follower.follow()

    def member(self, mac: str = MACS[1], vlan: int = 100) -> str | None:
        """Return the member that the frames of a NIC leave by."""
        return self.daemon.entries.get(bond.entry(mac, vlan))

    def assert_problem(self, *words: str) -> None:
        for word in words:
            self.assertIn(word, self.binder.problem('u'))

    def assert_in_force(self, member: str = 'eth2') -> None:
        self.assertEqual(member, self.member())
        self.assertEqual('', self.binder.problem('u'))
        self.assertEqual(
            {MACS[1]: f'bond0/{member}'}, self.binder.in_force('u')
        )


class BindTest(BondEntryCase):
    def test_last_nic_gets_the_claimed_member(self) -> None:
        self.assertEqual(1, self.bind())
        self.assert_in_force()
        self.assertEqual(0, self.bind())
        self.assertEqual(1, len(self.daemon.entries))

    def test_claim_of_another_member_is_followed(self) -> None:
        self.bind()
        self.assertEqual(1, self.bind(FIRST))
        self.assert_in_force('eth1')

    def test_two_claims_give_each_nic_one(self) -> None:
        self.hear(MACS[0])
        self.assertEqual(2, self.bind(FIRST, SECOND))
        self.assertEqual('eth1', self.member(MACS[0]))
        self.assertEqual('eth2', self.member(MACS[1]))
        # The order in which Placement names the claims does not count.
        self.assertEqual(0, self.bind(SECOND, FIRST))
        self.assertEqual('eth1', self.member(MACS[0]))

    def test_nothing_is_sent_while_nothing_changes(self) -> None:
        self.bind()
        self.follow()
        self.daemon.calls.clear()
        self.follow()
        self.assertEqual([('bond/show', 'bond0')], self.daemon.calls)

    def test_plan_says_what_bind_does_and_does_nothing(self) -> None:
        plan = self.binder.plan(claims.Claimant(self.domain, (SECOND,)))
        self.assertEqual({MACS[1]: 'bond0/eth2'}, plan)
        self.assertEqual([], self.daemon.calls)
        self.bind()
        self.assertEqual(
            {}, self.binder.plan(claims.Claimant(self.domain, (SECOND,)))
        )

    def test_claims_of_other_uplinks_are_for_other_binders(self) -> None:
        for uplinks, expected in (
            ((FIRST,), True),
            ((FIRST, SECOND), True),
            ((claims.ClaimedUplink('br-ex', 'bond0'),), False),
            ((claims.ClaimedUplink('br-hpc1', 'n1', '10.2.0.1'),), False),
            ((FIRST, claims.ClaimedUplink('br-hpc1', 'n1')), False),
        ):
            self.assertIs(
                expected, self.binder.serves('u', (), uplinks), uplinks
            )

    def test_nic_plugged_later_is_bound_if_it_is_the_last(self) -> None:
        self.bind()
        self.assertTrue(self.binder.intact('u'))
        self.ovsdb.plug('u', OTHER_MAC)
        self.hear(OTHER_MAC)
        self.assertFalse(self.binder.intact('u'))
        self.domain = domain.Domain('u', (*MACS, OTHER_MAC))
        self.bind()
        self.assertTrue(self.binder.intact('u'))
        self.assertEqual('eth2', self.member(OTHER_MAC))
        self.assertEqual({OTHER_MAC: 'bond0/eth2'}, self.binder.in_force('u'))

    def test_nic_without_a_port_is_refused(self) -> None:
        self.ovsdb.unplug(self.rows[1])
        error = self.assertRaises(UnsupportedError, self.bind)
        for word in (MACS[1], 'h1', 'vm-uuid=u'):
            self.assertIn(word, str(error))


class FollowTest(BondEntryCase):
    def test_entry_is_set_again_after_vswitchd_restarts(self) -> None:
        self.bind()
        self.daemon.away = True
        self.follow()
        self.assert_problem('h1', 'ovs-vswitchd is not running')
        self.assertEqual({}, self.binder.in_force('u'))
        self.daemon.restart()
        # The guest is silent, but its VLAN is known.
        self.follow()
        self.assert_in_force()

    def test_entry_is_set_again_after_the_link_was_down(self) -> None:
        self.bind()
        self.daemon.disabled.add('eth2')
        self.daemon.entries.clear()
        self.follow()
        self.assert_problem('eth2', 'bond0', 'h1', 'passes no packets')
        self.assertEqual({}, self.binder.in_force('u'))
        self.assertEqual({}, self.daemon.entries)
        self.daemon.disabled.clear()
        self.follow()
        self.assert_in_force()

    def test_port_plugged_again_keeps_the_entry(self) -> None:
        self.bind()
        self.ovsdb.unplug(self.rows[1])
        self.daemon.restart()
        self.follow()
        self.ovsdb.plug('u', MACS[1])
        self.assertTrue(self.binder.intact('u'))
        self.follow()
        self.assert_in_force()

    def test_vswitchd_that_hangs_is_asked_once_a_turn(self) -> None:
        for number in range(5):
            self.ovsdb.plug(f'v{number}', f'fa:16:3e:00:01:0{number}')
            target = domain.Domain(
                f'v{number}', (f'fa:16:3e:00:01:0{number}',)
            )
            self.binder.bind(claims.Claimant(target, (FIRST,)))
        self.daemon.away = True
        self.daemon.calls.clear()
        self.follow()
        self.assertEqual(1, len(self.daemon.calls))
        self.assertIn('not running', self.binder.problem('v4'))

    def test_problem_is_logged_once(self) -> None:
        self.bind()
        self.daemon.away = True
        for _ in range(3):
            self.follow()
        self.assertEqual(1, self.log.output.count('is not running'))


class ReleaseTest(BondEntryCase):
    def test_entry_is_left_to_open_vswitch(self) -> None:
        self.bind()
        self.assertEqual({'u'}, self.binder.uuids())
        self.assertEqual(0, self.binder.restore(self.domain))
        self.daemon.restart()
        self.follow()
        self.assertIsNone(self.member())
        self.assertEqual(frozenset(), self.binder.uuids())
        self.assertEqual({}, self.binder.in_force('u'))

    def test_all_are_left_when_the_agent_stops(self) -> None:
        self.bind()
        self.assertEqual({}, self.binder.restore_all(self.fail))
        self.assertEqual(frozenset(), self.binder.uuids())
        self.daemon.calls.clear()
        self.follow()
        self.assertEqual([], self.daemon.calls)


class SharedEntryTest(BondEntryCase):
    """Two guests whose NICs have the same entry."""

    def setUp(self) -> None:
        super().setUp()
        number = bond.entry(MACS[1], 100)
        macs = (f'fa:16:3e:01:{n >> 8:02x}:{n & 255:02x}' for n in range(9999))
        self.mac = next(m for m in macs if bond.entry(m, 100) == number)
        self.ovsdb.plug('v', self.mac)
        self.hear(self.mac)
        self.bind()

    def bind_other(self, uplink: claims.ClaimedUplink) -> None:
        self.binder.bind(
            claims.Claimant(domain.Domain('v', (self.mac,)), (uplink,))
        )

    def test_different_claims_are_reported(self) -> None:
        self.bind_other(FIRST)
        problem = self.binder.problem('v')
        for word in (
            *('u', MACS[1], 'eth2', 'v', self.mac, 'eth1', 'bond0', 'h1'),
            'other_config:bond-hash-basis',
        ):
            self.assertIn(word, problem)
        self.assert_in_force()
        self.assertEqual({}, self.binder.in_force('v'))
        # It stays so, whatever happens.
        self.daemon.restart()
        self.follow()
        self.assert_in_force()


class SilentTest(BondEntryCase):
    """The guest has sent no frame yet."""

    def setUp(self) -> None:
        super().setUp()
        self.daemon.fdb.clear()

    def test_first_frame_shows_the_vlan(self) -> None:
        self.assertEqual(0, self.bind())
        self.assertEqual('', self.binder.problem('u'))
        self.assertEqual({}, self.binder.in_force('u'))
        self.hear(MACS[1])
        self.follow()
        self.assert_in_force()

    def test_silence_is_reported_after_a_while(self) -> None:
        self.bind()
        with mock.patch.object(wire_vlans, 'SILENCE_S', 0):
            self.follow()
        self.assert_problem('br-ex', 'h1', MACS[1], 'bond0', 'VLAN network')


class RefusedTest(BondEntryCase):
    def test_bond_that_cannot_be_steered_is_refused_by_name(self) -> None:
        for changes, word in (
            ({'bond_mode': ''}, 'active-backup'),
            ({'bond_mode': 'balance-tcp', 'lacp': 'active'}, 'balance-tcp'),
            ({'lacp': 'active'}, 'LACP is active'),
            ({'other_config': {}}, 'balance their load'),
        ):
            self.set_bond(dataclasses.replace(SLB, **changes))
            error = self.assertRaises(UnsupportedError, self.bind)
            for name in ('bond0', 'br-ex', 'h1', word, 'balance-slb'):
                self.assertIn(name, str(error))
        self.assertEqual({}, self.daemon.entries)
