# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.base`."""

from unittest import mock

import fixtures
import libvirt
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks.binders import base as binder_base
from nova_vhpc.agent.uplinks.binders import encap_ip_writer
from nova_vhpc.tests.unit.agent import fake_libvirt


def binder(name: str, *uuids: str, serves: bool = True) -> mock.Mock:
    made = mock.create_autospec(binder_base.Binder, instance=True)
    made.name = name
    made.networks = binder_base.TUNNEL
    made.uuids.return_value = frozenset(uuids)
    made.serves.return_value = serves
    made.restore_all.return_value = {}
    return made


class BinderSetTest(base.BaseTestCase):
    def test_first_binder_that_serves_is_chosen(self) -> None:
        first, second = binder('a', serves=False), binder('b')
        chosen = binder_base.BinderSet([first, second, binder('c')])
        self.assertIs(second, chosen.serving('u', (), ()))
        self.assertIsNone(binder_base.BinderSet([first]).serving('u', (), ()))

    def test_binder_of_other_networks_is_left_out(self) -> None:
        first, second = binder('a'), binder('b')
        second.networks = binder_base.PROVIDER
        chosen = binder_base.BinderSet([first, second])
        for networks, expected in (
            (None, first),
            (binder_base.TUNNEL, first),
            (binder_base.PROVIDER, second),
        ):
            self.assertIs(expected, chosen.serving('u', (), (), networks))

    def test_only_binders_with_a_record_restore(self) -> None:
        first, second = binder('a', 'u'), binder('b', 'v')
        binders = binder_base.BinderSet([first, second])
        self.assertEqual({'u': 'a', 'v': 'b'}, binders.records())
        binders.restore('u', 'domain')
        binders.forget('v')
        first.restore.assert_called_once_with('domain')
        second.restore.assert_not_called()
        first.forget.assert_not_called()
        second.forget.assert_called_once_with('v')

    def test_libvirt_that_is_away_does_not_stop_other_binders(self) -> None:
        first, second = binder('a', 'u'), binder('b', 'v')
        first.restore_all.side_effect = fake_libvirt.error(
            libvirt.VIR_ERR_NO_CONNECT, 'away'
        )
        second.restore_all.return_value = {'v': 'busy'}
        binders = binder_base.BinderSet([first, second, binder('c')])
        self.assertEqual(
            {'all (a)': 'away', 'v': 'busy'}, binders.restore_all(self.fail)
        )


class LoadTest(base.BaseTestCase):
    def conf(self, *names: str) -> mock.Mock:
        return mock.Mock(
            **{
                'vhpc_agent.binders': list(names),
                'vhpc_agent.state_path': '/nowhere',
                'vhpc_agent.host': 'h',
                'vhpc_agent.proc_root': '/nowhere',
                'vhpc_agent.cgroup_root': '/nowhere',
                'vhpc_topology.sysfs': '/nowhere',
                'vhpc_agent.ovs_run_dir': '/nowhere',
                'vhpc_topology.ovsdb_connection': 'unix:/nowhere/db.sock',
            }
        )

    def names(self, binders: binder_base.BinderSet) -> list[str]:
        return [one.name for one in binders._binders]

    def test_binders_are_loaded_in_the_order_of_the_option(self) -> None:
        ovsdb = mock.Mock(spec=connection.Ovsdb)
        self.assertEqual(
            ['encap_ip'],
            self.names(binder_base.load(self.conf('encap_ip'), ovsdb)),
        )
        binders, problems = binder_base.load_all(self.conf(), ovsdb)
        self.assertEqual(['bond_entry', 'encap_ip'], self.names(binders))
        self.assertEqual([], problems)

    def test_binder_that_fails_to_load_is_a_problem_of_restoring(
        self,
    ) -> None:
        conf = self.conf('encap_ip')
        conf.vhpc_agent.state_path = self.useFixture(fixtures.TempDir()).path
        encap_ip_writer.EncapIpJournal(conf.vhpc_agent.state_path).save(
            encap_ip_writer.GuestRecord('u')
        )
        self.assertRaises(errors.ConfigError, binder_base.load, conf, None)
        binders, problems = binder_base.load_all(conf, None)
        self.assertEqual([], self.names(binders))
        (problem,) = problems
        self.assertIn('ovsdb_connection', problem)

    def test_binder_that_needs_ovsdb_is_left_out_without(self) -> None:
        self.assertEqual(
            [], self.names(binder_base.load(self.conf('encap_ip'), None))
        )

    def test_unknown_binder_is_refused(self) -> None:
        error = self.assertRaises(
            errors.ConfigError, binder_base.load, self.conf('teleport'), None
        )
        self.assertIn("binders = 'teleport'", str(error))
