# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The connection to ovsdb where no server is."""

import pathlib
import socket
import time
from unittest import mock

import fixtures
from oslo_config import cfg
from oslotest import base
from ovsdbapp import exceptions
from ovsdbapp.backend.ovs_idl import transaction

from nova_vhpc.agent import errors
from nova_vhpc.agent.ovsdb import connection, replica
from nova_vhpc.conf import agent as agent_conf
from nova_vhpc.conf import topology as topology_conf
from nova_vhpc.tests.unit import waiting


class NoServerTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('db.sock')

    def start(
        self, optional: bool = False, marker: pathlib.Path | None = None
    ) -> connection.Ovsdb:
        ovsdb = connection.Ovsdb(
            f'unix:{self.path}', optional=optional, marker=marker
        )
        ovsdb.start()
        self.addCleanup(ovsdb.stop)
        return ovsdb

    def test_nothing_is_known(self) -> None:
        ovsdb = self.start()
        self.assertFalse(ovsdb.wait(60))
        self.assertIsNone(ovsdb.read())
        self.assertFalse(ovsdb.connected)
        self.assertFalse(ovsdb.status()['read'])

    def test_missing_socket_is_a_problem_only_if_expected(self) -> None:
        self.assertIsNone(self.start(optional=True).problem())
        problem = self.start().problem() or ''
        self.assertIn('No such file', problem)
        self.assertIn('ovsdb_connection', problem)

    def test_reason_is_reported_if_nobody_listens(self) -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.path)
        problem = self.start(optional=True).problem() or ''
        self.assertIn('Connection refused', problem)

    def test_missing_socket_is_awaited_if_expected_or_once_read(self) -> None:
        marker = pathlib.Path(self.path + '-read')
        self.assertTrue(self.start().awaited)
        self.assertFalse(self.start(True, marker).awaited)
        marker.touch()
        ovsdb = self.start(True, marker)
        self.assertTrue(ovsdb.awaited)
        problem = ovsdb.problem() or ''
        for part in ('No such file', 'ovsdb_connection', 'leave that empty'):
            self.assertIn(part, problem)

    def test_server_that_is_down_is_awaited(self) -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.path)
        self.assertTrue(self.start(optional=True).awaited)

    def test_closed_socket_is_awaited_only_if_expected_or_once_read(
        self,
    ) -> None:
        """An upgraded agent goes on where it was never let in."""
        marker = pathlib.Path(self.path + '-read')
        closed = connection.errno.EACCES
        with mock.patch.object(
            connection.Ovsdb, '_error', return_value=closed
        ):
            ovsdb = self.start(True, marker)
            self.assertFalse(ovsdb.awaited)
            for told in ('Permission denied', 'CAP_DAC_OVERRIDE'):
                self.assertIn(told, ovsdb.problem() or '')
            self.assertTrue(self.start(False, marker).awaited)
            marker.touch()
            self.assertTrue(ovsdb.awaited)

    def test_write_is_refused(self) -> None:
        with self.assertRaisesRegex(connection.OvsdbError, 'is away'):
            self.start().set_external_id('0' * 32, 'encap-ip', 'x', None)


class FailureTest(base.BaseTestCase):
    def test_failure_of_the_library_is_said_once_and_has_a_pause(self) -> None:
        """As of an ssl: connection without certificates."""
        calls = 0

        def fail(self: object) -> None:
            nonlocal calls
            calls += 1
            raise ValueError('cafile cannot be omitted')

        ovsdb = connection.Ovsdb('unix:/nowhere/db.sock')
        pause = fixtures.MockPatchObject(replica, 'FAILURE_PAUSE_S', 0.1)
        self.useFixture(pause)
        with (
            mock.patch.object(replica.idl.Idl, 'run', fail),
            self.assertLogs(level='ERROR') as logs,
        ):
            began_s = time.monotonic()
            ovsdb.start()
            self.addCleanup(ovsdb.stop)
            waiting.wait_for(lambda: calls >= 3)
            self.assertIn('cafile', ovsdb.problem() or '')
            ovsdb.stop()
        self.assertEqual('cafile cannot be omitted', ovsdb.status()['error'])
        self.assertEqual(1, len(logs.output))
        self.assertLessEqual(calls, 1 + (time.monotonic() - began_s) / 0.1)


class WriteTest(base.BaseTestCase):
    def test_timeout_without_a_text_is_a_refusal(self) -> None:
        """The library raises one while the server restarts."""
        error = exceptions.TimeoutException()
        self.assertRaises(AttributeError, str, error)
        ovsdb = connection.Ovsdb('unix:/nowhere')
        with (
            mock.patch.object(
                connection.Ovsdb, 'connected', mock.PropertyMock()
            ),
            mock.patch.object(
                transaction.Transaction, 'commit', side_effect=error
            ),
            self.assertRaisesRegex(connection.OvsdbError, 'does not answer'),
        ):
            ovsdb.set_external_id('0' * 32, 'encap-ip', 'x', None)


class OptionTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.state = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def make(
        self, remote: str | None = None, dry_run: bool = False
    ) -> connection.Ovsdb | None:
        conf = cfg.ConfigOpts()
        topology_conf.register_opts(conf)
        agent_conf.register_opts(conf)
        file = self.state / 'conf'
        file.write_text('[vhpc_topology]\n')
        if remote is not None:
            with file.open('a') as lines:
                lines.write(f'ovsdb_connection = {remote}\n')
        conf([], default_config_files=[str(file)])
        conf.set_override('state_path', str(self.state), 'vhpc_agent')
        conf.set_override('dry_run', dry_run, 'vhpc_agent')
        return connection.make_ovsdb(conf)

    def test_local_socket_is_the_default(self) -> None:
        ovsdb = self.make()
        assert ovsdb is not None
        self.assertEqual('unix:/run/openvswitch/db.sock', ovsdb.remote)

    def test_empty_option_switches_it_off(self) -> None:
        self.assertIsNone(self.make(''))

    def test_empty_option_says_that_there_is_no_server_any_more(self) -> None:
        marker = self.state / connection.MARKER
        marker.touch()
        self.make('', dry_run=True)
        self.assertTrue(marker.exists())
        self.make('')
        self.assertFalse(marker.exists())

    def test_wrong_value_is_refused(self) -> None:
        for remote in (
            *('/run/db.sock', 'unix:', 'unix:run/db.sock', 'punix:/run/x'),
            *('127.0.0.1:6640', 'ssl:127.0.0.1:6640', 'tcp:', 'tcp:::1:6640'),
            *('tcp:127.0.0.1', 'tcp:127.0.0.1:', 'tcp:127.0.0.1:66400'),
            'tcp:localhost:6640',
        ):
            with self.subTest(remote):
                error = self.assertRaises(
                    errors.ConfigError, self.make, remote
                )
                for word in ('ovsdb_connection', 'unix:PATH', 'tcp:ADDRESS'):
                    self.assertIn(word, str(error))

    def test_address_of_either_family_is_taken(self) -> None:
        for remote in ('tcp:127.0.0.1:6640', 'tcp:[::1]:6640'):
            ovsdb = self.make(remote)
            assert ovsdb is not None
            self.assertEqual(remote, ovsdb.remote)
