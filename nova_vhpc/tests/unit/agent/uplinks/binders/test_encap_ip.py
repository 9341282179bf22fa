# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.encap_ip`."""

import pathlib
import tempfile
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import (
    encap_ip,
    encap_ip_writer,
    guest_ports,
)
from nova_vhpc.tests.unit.agent.uplinks.binders import ovsdb
from nova_vhpc.topology import links, open_vswitch
from nova_vhpc_lab.ovn import domain

MACS = ('fa:16:3e:00:00:01', 'fa:16:3e:00:00:02')
FIRST = claims.ClaimedUplink('br-hpc1', 'n1', '10.2.0.1')
SECOND = claims.ClaimedUplink('br-hpc2', 'n2', '10.3.0.1')


class EncapIpCase(base.BaseTestCase):
    """Has a guest with two ports."""

    def setUp(self) -> None:
        super().setUp()
        self.state = self.useFixture(fixtures.TempDir()).path
        self.sysfs = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.ovsdb = ovsdb.MemoryOvsdb()
        self.rows = [self.ovsdb.plug('u', mac) for mac in MACS]
        self.before = self.ovsdb.contents()
        self.domain = domain.Domain('u', MACS)
        self.overrides = False
        self.binder = self.make_binder()

    def make_binder(self) -> encap_ip.EncapIpBinder:
        """Return a binder, such as that of the next agent."""
        self.journal = encap_ip_writer.EncapIpJournal(self.state)
        return encap_ip.EncapIpBinder(
            self.ovsdb,
            self.journal,
            'h1',
            guest_ports.UplinkLinks(links.Links(self.sysfs)),
            lambda: self.overrides,
        )

    def bind(self, *uplinks: claims.ClaimedUplink) -> int:
        return self.binder.bind(
            claims.Claimant(self.domain, uplinks or (FIRST,))
        )

    def assert_refused(self, *words: str) -> None:
        error = self.assertRaises(UnsupportedError, self.bind)
        for word in words:
            self.assertIn(word, str(error))
        planned = self.assertRaises(
            UnsupportedError,
            self.binder.plan,
            claims.Claimant(self.domain, (FIRST,)),
        )
        self.assertEqual(str(error), str(planned))

    def assert_restored(self) -> None:
        self.assertEqual(self.before, self.ovsdb.contents())
        self.assertEqual(frozenset(), self.binder.uuids())


class BindTest(EncapIpCase):
    def test_last_nic_gets_the_encap_ip_of_the_claimed_uplink(self) -> None:
        self.assertEqual(1, self.bind())
        self.assertIsNone(self.ovsdb.encap_ip(self.rows[0]))
        self.assertEqual('10.2.0.1', self.ovsdb.encap_ip(self.rows[1]))
        self.assertEqual({MACS[1]: '10.2.0.1'}, self.binder.in_force('u'))
        self.assertEqual(0, self.bind())
        self.binder.restore(self.domain)
        self.assert_restored()

    def test_nic_of_the_flavor_gets_it(self) -> None:
        self.binder.bind(claims.Claimant(self.domain, (FIRST,), 0))
        self.assertEqual('10.2.0.1', self.ovsdb.encap_ip(self.rows[0]))
        self.assertIsNone(self.ovsdb.encap_ip(self.rows[1]))

    def test_two_claims_give_each_nic_one(self) -> None:
        self.assertEqual(2, self.bind(FIRST, SECOND))
        self.assertEqual(
            ['10.2.0.1', '10.3.0.1'],
            [self.ovsdb.encap_ip(row) for row in self.rows],
        )
        self.binder.restore(self.domain)
        self.assert_restored()

    def test_plan_says_what_bind_writes_and_writes_nothing(self) -> None:
        plan = self.binder.plan(claims.Claimant(self.domain, (FIRST,)))
        self.assertEqual({MACS[1]: '10.2.0.1'}, plan)
        self.assert_restored()
        self.bind()
        self.assertEqual(
            {}, self.binder.plan(claims.Claimant(self.domain, (FIRST,)))
        )

    def test_record_is_on_disk_before_the_write(self) -> None:
        seen = []
        self.ovsdb.before_write = lambda: seen.append(self.journal.load('u'))
        self.bind()
        (port,) = seen[0].ports
        self.assertEqual(self.rows[1], port.row)
        self.assertIsNone(port.before)
        self.assertEqual({'10.2.0.1'}, port.written)

    def test_nothing_is_written_without_a_record(self) -> None:
        with mock.patch.object(
            encap_ip_writer.EncapIpJournal,
            'save',
            side_effect=JournalError('disk full'),
        ):
            self.assertRaises(JournalError, self.bind)
        self.assert_restored()

    def test_encap_ip_of_an_operator_is_restored(self) -> None:
        self.ovsdb.set_by_hand(self.rows[1], 'encap-ip', '10.1.0.1')
        self.before = self.ovsdb.contents()
        self.bind()
        self.bind(SECOND)
        self.assertEqual('10.3.0.1', self.ovsdb.encap_ip(self.rows[1]))
        self.binder.restore(self.domain)
        self.assert_restored()

    def test_port_that_has_it_already_is_not_written(self) -> None:
        self.ovsdb.set_by_hand(self.rows[1], 'encap-ip', '10.2.0.1')
        self.before = self.ovsdb.contents()
        self.assertEqual(0, self.bind())
        self.assert_restored()

    def test_other_guests_are_not_written(self) -> None:
        other = self.ovsdb.plug('v', 'fa:16:3e:00:00:03')
        self.bind()
        self.assertIsNone(self.ovsdb.encap_ip(other))


class LinkTest(EncapIpCase):
    """The link of an uplink is down."""

    def set_link(self, nic: str, up: bool) -> None:
        """Set the link of a NIC that is not in Open vSwitch."""
        path = self.sysfs / 'class' / 'net' / nic
        path.mkdir(parents=True, exist_ok=True)
        (path / 'carrier').write_text(f'{int(up)}\n')

    def assert_encap_ips(self, *encap_ips: str | None) -> None:
        self.assertEqual(
            list(encap_ips), [self.ovsdb.encap_ip(row) for row in self.rows]
        )

    def test_default_encap_ip_is_used_until_the_link_is_up(self) -> None:
        self.ovsdb.external_ids['ovn-encap-ip-default'] = '10.3.0.1'
        self.bind()
        self.assertTrue(self.binder.intact('u'))
        self.set_link('n1', up=False)
        self.assertFalse(self.binder.intact('u'))
        error = self.assertRaises(UnsupportedError, self.bind)
        self.assertIn('n1 (bridge br-hpc1) of host h1 is down', str(error))
        self.assertIn('10.3.0.1', str(error))
        self.assert_encap_ips(None, '10.3.0.1')

        self.set_link('n1', up=True)
        self.assertEqual(1, self.bind())
        self.assert_encap_ips(None, '10.2.0.1')
        self.binder.restore(self.domain)
        self.assert_restored()

    def test_another_is_used_if_the_default_is_the_dead_uplinks(self) -> None:
        self.ovsdb.external_ids['ovn-encap-ip-default'] = '10.2.0.1'
        self.set_link('n1', up=False)
        self.assertRaises(UnsupportedError, self.bind)
        self.assert_encap_ips(None, '10.1.0.1')

    def test_nic_of_the_other_uplink_stays(self) -> None:
        self.bind(FIRST, SECOND)
        self.set_link('n1', up=False)
        self.assertRaises(UnsupportedError, self.bind, FIRST, SECOND)
        self.assert_encap_ips('10.1.0.1', '10.3.0.1')
        self.set_link('n1', up=True)
        self.bind(FIRST, SECOND)
        self.assert_encap_ips('10.2.0.1', '10.3.0.1')

    def test_encap_ips_stay_if_no_other_is_left(self) -> None:
        self.ovsdb.external_ids['ovn-encap-ip'] = '10.2.0.1,10.3.0.1'
        self.bind(FIRST, SECOND)
        for nic in ('n1', 'n2'):
            self.set_link(nic, up=False)
        self.assertRaises(UnsupportedError, self.bind, FIRST, SECOND)
        self.assert_encap_ips('10.2.0.1', '10.3.0.1')

    def test_restore_takes_the_other_encap_ip_away(self) -> None:
        self.set_link('n1', up=False)
        self.assertRaises(UnsupportedError, self.bind)
        self.assertEqual({'u'}, self.binder.uuids())
        self.binder.restore(self.domain)
        self.assert_restored()
        self.assertTrue(self.binder.intact('u'))

    def test_link_of_a_port_is_read_from_open_vswitch(self) -> None:
        """The kernel's may be that of a VLAN or bond of the same name."""
        self.set_link('n1', up=True)
        row = self.ovsdb.add(open_vswitch.Interface('n1', link_up=False))
        self.assertRaises(UnsupportedError, self.bind)
        self.ovsdb.unplug(row)
        self.ovsdb.add(open_vswitch.Interface('n1', link_up=True))
        self.assertEqual(1, self.bind())


class UplinkLinksTest(base.BaseTestCase):
    def down(self, *members: bool) -> bool:
        """Return whether a bond is down."""
        interfaces = tuple(
            open_vswitch.Interface(f'eth{number}', link_up=up)
            for number, up in enumerate(members)
        )
        state = open_vswitch.OpenVswitch(
            {},
            (
                open_vswitch.Bridge(
                    'br-hpc1', (open_vswitch.Port('n1', interfaces),)
                ),
            ),
        )
        here = guest_ports.UplinkLinks(links.Links(pathlib.Path('/none')))
        return bool(here.down(state, (FIRST,)))

    def test_bond_is_up_while_a_member_is(self) -> None:
        self.assertFalse(self.down(False, True))
        self.assertTrue(self.down(False, False))


class RepluggedTest(EncapIpCase):
    def test_port_plugged_again_is_bound_again(self) -> None:
        self.bind()
        self.assertTrue(self.binder.intact('u'))
        self.ovsdb.unplug(self.rows[1])
        self.assertTrue(self.binder.intact('u'))
        row = self.ovsdb.plug('u', MACS[1])
        self.assertFalse(self.binder.intact('u'))
        self.assertEqual(1, self.bind())
        self.assertEqual('10.2.0.1', self.ovsdb.encap_ip(row))
        self.assertTrue(self.binder.intact('u'))
        self.before = {
            self.rows[0]: self.before[self.rows[0]],
            row: self.before[self.rows[1]],
        }
        self.assertEqual(1, len(self.journal.load('u').ports))
        self.binder.restore(self.domain)
        self.assert_restored()

    def test_port_that_is_gone_needs_no_restore(self) -> None:
        self.bind()
        self.ovsdb.unplug(self.rows[1])
        self.before = self.ovsdb.contents()
        self.binder.forget('u')
        self.assert_restored()


class CrashTest(EncapIpCase):
    """The agent is killed, and another one starts."""

    def test_crash_after_the_write_is_restored(self) -> None:
        self.bind()
        self.binder = self.make_binder()
        self.assertEqual({}, self.binder.restore_all(self.fail))
        self.assert_restored()

    def crash_before_the_write(self) -> None:
        def crash() -> None:
            raise KeyboardInterrupt

        self.ovsdb.before_write = crash
        self.assertRaises(KeyboardInterrupt, self.bind)
        self.ovsdb.before_write = lambda: None
        self.assertEqual({'u'}, self.binder.uuids())
        self.binder = self.make_binder()

    def test_crash_before_the_write_is_bound_again(self) -> None:
        self.crash_before_the_write()
        self.bind()
        self.assertEqual('10.2.0.1', self.ovsdb.encap_ip(self.rows[1]))
        self.binder.restore(self.domain)
        self.assert_restored()

    def test_crash_before_the_write_leaves_nothing_to_restore(self) -> None:
        self.crash_before_the_write()
        self.assertEqual({}, self.binder.restore_all(self.fail))
        self.assert_restored()

    def test_nothing_is_written_while_ovsdb_is_away(self) -> None:
        self.ovsdb.connected = False
        self.assertRaises(connection.OvsdbError, self.bind)
        self.assert_restored()

    def test_crash_between_two_encap_ips_restores_the_first(self) -> None:
        self.ovsdb.set_by_hand(self.rows[1], 'encap-ip', '10.1.0.1')
        self.before = self.ovsdb.contents()
        self.bind()
        self.ovsdb.answers = False
        self.assertRaises(connection.OvsdbError, self.bind, SECOND)
        self.ovsdb.answers = True
        self.binder = self.make_binder()
        self.binder.restore_all(self.fail)
        self.assert_restored()

    def test_lost_answer_is_no_external_change(self) -> None:
        self.ovsdb.answers = False
        self.assertRaises(connection.OvsdbError, self.bind)
        self.ovsdb.answers = True
        self.assertEqual(0, self.bind())
        self.assertTrue(self.binder.intact('u'))

    def test_restore_is_retried_while_ovsdb_is_away(self) -> None:
        self.bind()
        self.ovsdb.connected = False
        failures = self.binder.restore_all(self.fail)
        self.assertIn('the encap IPs of tap02 are left', failures['u'])
        self.assertEqual({'u'}, self.binder.uuids())
        self.ovsdb.connected = True
        self.assertEqual({}, self.binder.restore_all(self.fail))
        self.assert_restored()

    def test_unexpected_error_at_one_guest_keeps_no_other_from_restoring(
        self,
    ) -> None:
        self.bind()
        self.ovsdb.plug('a', 'fa:16:3e:00:00:0a')
        other = domain.Domain('a', ('fa:16:3e:00:00:0a',))
        self.binder.bind(claims.Claimant(other, (FIRST,)))
        refusals = iter([AttributeError('msg')])

        def refuse() -> None:
            for error in refusals:
                raise error

        self.ovsdb.before_write = refuse
        self.assertEqual({'a': 'msg'}, self.binder.restore_all(self.fail))
        self.assertEqual({'a'}, self.binder.uuids())
        self.assertEqual({}, self.binder.restore_all(self.fail))

    def test_damaged_record_is_kept_and_names_the_remedy(self) -> None:
        self.bind()
        (self.journal.path / 'u.json').write_text('{')
        failures = self.binder.restore_all(self.fail)
        self.assertIn('ovs-vsctl find', failures['u'])
        self.assertRaises(JournalError, self.bind)
        self.assertEqual('10.2.0.1', self.ovsdb.encap_ip(self.rows[1]))


class ExternalChangeTest(EncapIpCase):
    """Somebody else sets another encap IP after the agent."""

    def change(self, value: str | None) -> None:
        self.bind(FIRST, SECOND)
        self.ovsdb.set_by_hand(self.rows[1], 'encap-ip', value)
        self.assertFalse(self.binder.intact('u'))

    def assert_left_alone(self, value: str | None) -> None:
        self.assert_refused('tap02', 'h1', value or 'nothing', 'hard reboot')
        self.assertEqual(value, self.ovsdb.encap_ip(self.rows[1]))
        # The whole guest is handed back.
        self.assertIsNone(self.ovsdb.encap_ip(self.rows[0]))

    def test_changed_port_is_left_alone(self) -> None:
        for value in ('10.1.0.1', None):
            self.change(value)
            self.assert_left_alone(value)
            # The next agent knows.
            self.binder = self.make_binder()
            self.assert_left_alone(value)
            self.binder.restore_all(self.fail)
            self.binder = self.make_binder()
            self.assert_left_alone(value)
            self.ovsdb.unplug(self.rows[1])
            self.rows[1] = self.ovsdb.plug('u', MACS[1])
            self.assertEqual(1, self.bind())

    def test_change_is_not_restored(self) -> None:
        self.change('10.1.0.1')
        self.binder = self.make_binder()
        self.binder.restore_all(self.fail)
        self.assertEqual('10.1.0.1', self.ovsdb.encap_ip(self.rows[1]))
        self.assertIsNone(self.ovsdb.encap_ip(self.rows[0]))
        self.assert_left_alone('10.1.0.1')

    def test_port_that_is_left_alone_needs_no_ovsdb_to_restore(self) -> None:
        self.change('10.1.0.1')
        self.assert_left_alone('10.1.0.1')
        self.binder.restore_all(self.fail)
        self.ovsdb.connected = False
        self.assertEqual({}, self.binder.restore_all(self.fail))

    def test_record_ends_with_the_port(self) -> None:
        self.change('10.1.0.1')
        self.assert_left_alone('10.1.0.1')
        self.ovsdb.unplug(self.rows[1])
        self.binder.forget('u')
        self.assertEqual(frozenset(), self.binder.uuids())

    def test_change_is_overridden_if_the_option_says_so(self) -> None:
        self.overrides = True
        self.change('10.1.0.1')
        self.assertEqual(1, self.bind(FIRST, SECOND))
        self.assertEqual('10.3.0.1', self.ovsdb.encap_ip(self.rows[1]))
        self.binder.restore(self.domain)
        self.assert_restored()

    def test_change_during_the_write_is_not_overwritten(self) -> None:
        def change() -> None:
            self.ovsdb.set_by_hand(self.rows[1], 'encap-ip', '10.1.0.1')

        self.ovsdb.before_write = change
        self.assertRaises(connection.OvsdbError, self.bind)
        self.assertEqual('10.1.0.1', self.ovsdb.encap_ip(self.rows[1]))
        self.ovsdb.before_write = lambda: None
        self.assert_left_alone('10.1.0.1')


class RefusalTest(EncapIpCase):
    """Each message names host, port or uplink, and a remedy."""

    def test_host_without_ovn(self) -> None:
        self.ovsdb.external_ids.clear()
        self.assert_refused('h1', 'ML2/OVS', 'provider network')

    def test_host_with_one_encap_ip(self) -> None:
        self.ovsdb.external_ids['ovn-encap-ip'] = '10.1.0.1'
        self.assert_refused('h1', '10.1.0.1', 'Give each uplink an IP')

    def test_uplink_without_encap_ip(self) -> None:
        error = self.assertRaises(
            UnsupportedError, self.bind, claims.ClaimedUplink('br-x', 'n9')
        )
        for word in ('h1', 'br-x', 'n9', 'ovn-encap-ip'):
            self.assertIn(word, str(error))

    def test_encap_ip_that_the_host_has_no_more(self) -> None:
        self.ovsdb.external_ids['ovn-encap-ip'] = '10.1.0.1,10.3.0.1'
        self.assert_refused('h1', 'br-hpc1', 'ovn-encap-ip')

    def test_old_ovn(self) -> None:
        self.ovsdb.tunnel()
        self.assert_refused('h1', 'ovn-h2-0', '24.03')

    def test_recent_ovn_is_not_refused(self) -> None:
        self.ovsdb.tunnel(local_ip='10.2.0.1')
        self.assertEqual(1, self.bind())

    def test_nic_without_a_port(self) -> None:
        self.ovsdb.unplug(self.rows[1])
        self.assert_refused('h1', MACS[1], 'vhpc:uplink_nic')

    def test_port_of_another_server(self) -> None:
        self.ovsdb.set_by_hand(self.rows[1], 'vm-uuid', 'v')
        self.assert_refused(MACS[1], 'vm-uuid=u')

    def test_fewer_nics_than_claims(self) -> None:
        self.domain = domain.Domain('u', MACS[:1])
        error = self.assertRaises(UnsupportedError, self.bind, FIRST, SECOND)
        self.assertIn('1 NICs', str(error))

    def test_open_vswitch_that_has_not_answered(self) -> None:
        with mock.patch.object(self.ovsdb, 'read', return_value=None):
            self.binder = self.make_binder()
            self.assert_refused('h1', 'ovsdb_connection')


class MakeBinderTest(base.BaseTestCase):
    def conf(self) -> mock.Mock:
        return mock.Mock(
            **{'vhpc_agent.state_path': self.state, 'vhpc_agent.host': 'h'}
        )

    def setUp(self) -> None:
        super().setUp()
        self.state = tempfile.mkdtemp()

    def test_there_is_none_if_ovsdb_is_switched_off(self) -> None:
        self.assertIsNone(encap_ip.make_binder(self.conf(), None))

    def test_ovsdb_is_needed_for_what_is_to_be_restored(self) -> None:
        encap_ip_writer.EncapIpJournal(self.state).save(
            encap_ip_writer.GuestRecord('u')
        )
        error = self.assertRaises(
            errors.ConfigError, encap_ip.make_binder, self.conf(), None
        )
        self.assertIn('--restore', str(error))
