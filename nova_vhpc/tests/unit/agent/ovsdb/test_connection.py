# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The connection to ovsdb where no server is."""

import socket

import fixtures
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.conf import topology as topology_conf


class NoServerTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('db.sock')

    def start(self, optional: bool = False) -> connection.Ovsdb:
        ovsdb = connection.Ovsdb(f'unix:{self.path}', optional=optional)
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

    def test_write_is_refused(self) -> None:
        with self.assertRaisesRegex(connection.OvsdbError, 'is away'):
            self.start().set_external_id('0' * 32, 'encap-ip', 'x', None)


class OptionTest(base.BaseTestCase):
    def make(self, remote: str | None = None) -> connection.Ovsdb | None:
        conf = cfg.ConfigOpts()
        topology_conf.register_opts(conf)
        conf([], default_config_files=[])
        if remote is not None:
            conf.set_override('ovsdb_connection', remote, 'vhpc_topology')
        return connection.make_ovsdb(conf)

    def test_local_socket_is_the_default(self) -> None:
        ovsdb = self.make()
        assert ovsdb is not None
        self.assertEqual('unix:/run/openvswitch/db.sock', ovsdb.remote)

    def test_empty_option_switches_it_off(self) -> None:
        self.assertIsNone(self.make(''))

    def test_wrong_value_is_refused(self) -> None:
        for remote in ('/run/db.sock', 'unix:', 'ssl:127.0.0.1:6640'):
            with self.assertRaisesRegex(errors.ConfigError, 'unix:PATH'):
                self.make(remote)
