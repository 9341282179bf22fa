# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A dry run writes to no VM, no NIC, no journal and not to Placement."""

import pathlib
import tempfile
from unittest import mock

from oslo_config import cfg

from nova_vhpc.agent.daemon import options, service
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.uplinks import (
    binder,
    claims,
    publish_worker,
)
from nova_vhpc.agent.uplinks.binders import base as binder_base
from nova_vhpc.agent.uplinks.binders import (
    encap_ip,
    encap_ip_writer,
    guest_ports,
)
from nova_vhpc.placement import publisher
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case
from nova_vhpc.tests.unit.agent.uplinks.binders import ovsdb
from nova_vhpc.topology import links


class CrashedAgentTest(manager_case.ManagerTestCase):
    """A dry run after another agent has crashed, which changes nothing."""

    def setUp(self) -> None:
        super().setUp()
        self.write(self.look())
        self.domain.written.clear()
        self.before = dict(self.domain.values)
        self.manager = self.make(dry_run=True)

    def assert_untouched(self) -> None:
        self.assertEqual([], self.domain.written)
        self.assertEqual(self.before, self.domain.values)
        self.assertEqual(('u',), self.journal.uuids())

    def test_changed_server_is_logged_once_and_read_as_usual(self) -> None:
        with self.assertLogs('nova_vhpc.agent.lifecycle.after_crash') as logs:
            target = self.look()
            self.reconcile()
            self.reconcile()
        self.assertEqual(1, len(logs.records))
        self.assertIn('nova-vhpc-agent --restore', logs.output[0])
        self.assertEqual(8_000, target.in_force.quota_us)
        self.assert_untouched()

    def test_operator_cannot_restore_and_is_told_why(self) -> None:
        self.look()
        self.assertIn(
            '--restore',
            self.manager.restore_one('u').result(manager_case.PATIENCE_S),
        )
        self.manager.pause()
        self.manager.restore_before_migration(frozenset({'u'}))
        self.drain()
        self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))
        self.assert_untouched()

    def test_server_that_opts_out_is_not_restored(self) -> None:
        self.look()
        self.domain.specs.clear()
        self.reconcile()
        self.assertEqual({}, self.manager.guests)
        self.assert_untouched()

    def test_server_that_had_opted_out_is_not_restored(self) -> None:
        self.domain.specs.clear()
        with self.assertLogs('nova_vhpc.agent.lifecycle.after_crash') as logs:
            self.reconcile()
            self.reconcile()
        self.assertEqual(1, len(logs.records))
        self.assert_untouched()

    def test_record_of_a_domain_that_is_gone_is_kept(self) -> None:
        self.look()
        self.manager.connection.get().domains.clear()
        self.reconcile()
        self.assertEqual({}, self.manager.guests)
        self.assert_untouched()


class NoCrashedAgentTest(manager_case.ManagerTestCase):
    def test_nothing_is_logged_or_written(self) -> None:
        self.manager = self.make(dry_run=True)
        with self.assertNoLogs('nova_vhpc.agent.lifecycle.after_crash'):
            self.look()
        self.assertEqual(
            '', self.manager.restore_one('u').result(manager_case.PATIENCE_S)
        )
        self.assertEqual([], self.domain.written)


class DryBinderTest(manager_case.ManagerTestCase):
    def make_binder(self) -> binder.UplinkBinder:
        self.records = encap_ip_writer.EncapIpJournal(self.state)
        database = ovsdb.MemoryOvsdb()
        self.row = database.plug('u', '52:54:00:00:00:01')
        self.ovsdb = database
        claim = claims.ClaimedUplink('br-uplink', 'eth1', '10.2.0.1')
        binders = binder_base.BinderSet(
            [
                encap_ip.EncapIpBinder(
                    database,
                    self.records,
                    'h1',
                    guest_ports.UplinkLinks(
                        links.Links(pathlib.Path('/nowhere'))
                    ),
                    lambda: False,
                )
            ]
        )
        return binder.UplinkBinder(
            binders,
            lambda: self.manager.guests,
            lambda: self.manager.connection.get(),
            mock.Mock(**{'uplinks.return_value': (claim,)}),
            ovsdb.steering_of(database, binders),
            dry_run=True,
        )

    def test_nic_that_would_be_moved_is_logged_once(self) -> None:
        self.domain.specs['vhpc:network'] = 'separate'
        self.look()
        made = self.make_binder()
        with self.assertLogs('nova_vhpc.agent.uplinks.binder') as logs:
            made.reconcile()
            made.reconcile()
        self.assertEqual(1, len(logs.records))
        self.assertIn('52:54:00:00:00:01', logs.output[0])
        self.assertIn('br-uplink', logs.output[0])
        self.assertEqual([], made.status()['bound'])
        self.manager.restore_one('u')
        self.drain()
        made.reconcile()
        made.start()
        made.stop(0.0)
        self.assertEqual([], self.domain.written)
        self.assertIsNone(self.ovsdb.encap_ip(self.row))
        self.assertEqual((), self.records.uuids())

    def test_names_what_a_crash_left(self) -> None:
        made = self.make_binder()
        self.records.save(encap_ip_writer.GuestRecord('u', ()))
        with self.assertLogs('nova_vhpc.agent.uplinks.binder') as logs:
            made.start()
        made.stop()
        self.assertIn('--restore', logs.output[0])
        self.assertEqual(('u',), self.records.uuids())


class TestService(manager_case.ManagerTestCase):
    def conf(self, *words: str) -> cfg.ConfigOpts:
        path = pathlib.Path(tempfile.mkdtemp(), 'agent.conf')
        path.write_text(
            '[vhpc_agent]\nlibvirt_uri = test:///default\nmetrics_port = 0\n'
            f'bind_uplinks = true\nstate_path = {path.parent}/state\n'
            f'run_path = {path.parent}/run\n'
        )
        return options.make_conf(['--config-file', str(path), *words])

    def test_service_uses_parts_that_write_nothing(self) -> None:
        conf = self.conf('--dry-run')
        made = service.Service(conf)
        self.addCleanup(made.lock.release)
        self.addCleanup(made.guest_manager.executor.close)
        self.assertIsInstance(
            made.publish_worker, publish_worker.DryPublishWorker
        )
        self.assertTrue(made.binder._dry_run)
        # A phase that is sent moves servers on other hosts.
        self.assertTrue(made.phase_exchange._silent)
        with (
            mock.patch.object(service.Service, 'status'),
            mock.patch.object(store.Journal, 'prepare') as prepare,
            mock.patch.object(made.guest_manager, 'start'),
            mock.patch.object(made.tick_loop, 'start'),
            mock.patch.object(made, 'groups'),
            mock.patch.object(made, 'publish_worker'),
            mock.patch.object(made, 'phase_exchange'),
            mock.patch.object(made, 'binder'),
        ):
            made._start()
        self.addCleanup(made.server.stop)
        prepare.assert_not_called()
        self.assertFalse(pathlib.Path(conf.vhpc_agent.state_path).exists())

    def test_without_dry_run_the_parts_write(self) -> None:
        conf = self.conf()
        self.assertIs(
            publish_worker.PublishWorker,
            type(publish_worker.make_publish_worker(conf, 'host')),
        )
        made = service.Service(conf)
        self.addCleanup(made.lock.release)
        self.addCleanup(made.guest_manager.executor.close)
        self.assertFalse(made.binder._dry_run)

    def test_uplinks_are_discovered_and_not_published(self) -> None:
        worker = publish_worker.make_publish_worker(
            self.conf('--dry-run'), 'host'
        )
        asked = mock.create_autospec(publisher.Publisher, instance=True)
        asked.node.return_value = 'node1'
        worker._make_publisher = lambda: asked
        with self.assertLogs(
            'nova_vhpc.agent.uplinks.publish_worker', 'INFO'
        ) as logs:
            worker._publish_changes()
        self.assertEqual([mock.call.node()], asked.mock_calls)
        self.assertIn('would be published', logs.output[-1])
        status = worker.status()
        self.assertEqual('dry-run', status['state'])
        self.assertEqual('node1', status['node'])
        self.assertIsNone(status['age_s'])
