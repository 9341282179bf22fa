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


"""Groups from a file; with Nova is a functional test."""

import os
import time
from pathlib import Path
from unittest import mock

import fixtures
from oslo_config import cfg
from oslotest import base

from nova_vhpc.agent.clusters import groups, nova
from nova_vhpc.conf import nova_api


class GroupsFileTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = Path(
            self.useFixture(fixtures.TempDir()).join('groups.yaml')
        )
        self.conf = cfg.ConfigOpts()
        nova_api.register_opts(self.conf)
        self.conf([], project='nova-vhpc', default_config_files=[])
        self.conf.set_override('groups_file', str(self.path), 'vhpc_nova')
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))

    def make(self) -> groups.Groups:
        told = groups.Groups(self.conf, 'host')
        told.start()
        self.addCleanup(told.stop)
        return told

    def test_credentials_of_another_section(self) -> None:
        self.conf.set_override('groups_file', None, 'vhpc_nova')
        self.assertFalse(self.make().uses_nova)
        self.conf.set_override('auth_section', 'placement', 'vhpc_nova')
        self.assertTrue(self.make().uses_nova)

    def test_the_age_follows_no_clock_that_is_set(self) -> None:
        """As by NTP after a boot, just where Nova may be away."""
        told = groups.Groups(self.conf, 'host')
        with (
            mock.patch.object(told._nova, 'ask', nova.Answer),
            mock.patch.object(groups.time, 'time', return_value=0.0),
        ):
            told.refresh()
        age_s = told.status()['age_s']
        self.assertGreaterEqual(age_s, 0.0)
        self.assertLess(age_s, 3600.0)

    def test_servers_that_nova_leaves_out(self) -> None:
        """As those of a cell whose database is away."""
        told = groups.Groups(self.conf, 'host')
        both = frozenset({'here', 'gone'})
        answer = nova.Answer(both, dict.fromkeys(both, 'g'), both, both)

        def ask(said: nova.Answer) -> None:
            with mock.patch.object(told._nova, 'ask', return_value=said):
                self.assertTrue(told._ask())

        ask(answer)
        told.cluster_of('gone')
        now_s = groups.time.monotonic() + groups._TICK_S * 2
        with mock.patch.object(groups.time, 'monotonic', return_value=now_s):
            told.cluster_of('here')
        ages = {told._heard_s}
        for state in ('fresh', 'partial', 'partial'):
            ask(nova.Answer())
            self.assertEqual('g', told.cluster_of('here'))
            self.assertNotIn('gone', told._told.clusters)
            self.assertEqual({'here'}, told.migrating)
            self.assertEqual(state, told.status()['state'])
            ages.add(told._heard_s)
        self.assertEqual(1, self.log.output.count('of 1 servers'))
        self.assertEqual(1, len(ages), 'what is kept counts as news')
        # The last one has gone.
        told._running_s['here'] -= groups._TICKS_S + groups._TICK_S * 2
        ask(nova.Answer())
        self.assertNotIn('here', told._told.clusters)
        self.assertEqual('fresh', told.status()['state'])
        self.assertEqual({}, told._running_s)
        ask(answer)
        told.cluster_of('here')
        # One that is told of counts as told.
        ask(nova.Answer(listed=both))
        self.assertIsNone(told.cluster_of('here'))
        self.assertEqual('fresh', told.status()['state'])

    def test_a_tick_that_is_under_way(self) -> None:
        """What it has not come to yet runs here all the same."""
        told = groups.Groups(self.conf, 'host', period_s=5.0)
        both = frozenset({'early', 'late'})
        told._told = nova.Answer(both)
        # Whatever a file says of it: Nova may be migrating it.
        told._filed = {'late': 'filed'}
        last_s = groups.time.monotonic()
        for server in both:
            told.cluster_of(server)
        now_s = last_s + 5.0 + groups._TICK_S / 2
        with mock.patch.object(groups.time, 'monotonic', return_value=now_s):
            told.cluster_of('early')
            self.assertEqual(both, told._running_here())

    def test_yaml_and_json(self) -> None:
        for text in ('cfd: [s1, s2]\n', '{"cfd": ["s1", "s2"]}'):
            self.path.write_text(text)
            told = self.make()
            self.assertEqual('cfd', told.cluster_of('s2'))
            self.assertIsNone(told.cluster_of('s3'))
            self.assertEqual('file', told.status()['state'])
            self.assertEqual({'cfd': 2}, told.status()['clusters'])

    def test_above_the_flavor(self) -> None:
        self.path.write_text('cfd: [s1]\n')
        told = self.make()
        self.assertEqual('cfd', told.cluster_of('s1', 'other', 'p'))
        self.assertEqual('p/other', told.cluster_of('s3', 'other', 'p'))

    def test_read_again_when_it_changes(self) -> None:
        self.path.write_text('cfd: [s1]\n')
        told = self.make()
        told.stop()
        self.path.write_text('weather: [s1]\n')
        told._read_file()
        self.assertEqual('weather', told.cluster_of('s1'))

    def test_a_broken_file_changes_nothing_and_is_told_once(self) -> None:
        self.path.write_text('cfd: [s1]\n')
        told = self.make()
        # Its thread must not read the file in between.
        told.stop()
        for number in range(3):
            self.path.write_text('cfd: [s1\n' + ' ' * number)
            told._read_file()
        self.assertEqual('cfd', told.cluster_of('s1'))
        self.assertEqual(1, self.log.output.count('cannot be used'))
        self.path.write_text('weather: [s1]\n')
        os.utime(self.path, (time.time() + 5, time.time() + 5))
        told._read_file()
        self.assertEqual('weather', told.cluster_of('s1'))

    def test_files_that_would_never_end(self) -> None:
        bomb = ''.join(
            f'b{n}: &b{n} [{", ".join([f"*b{n - 1}"] * 9)}]\n'
            for n in range(1, 30)
        )
        for content in (f'b0: &b0 [s1]\n{bomb}', 'cfd: ' + '[' * 3000):
            self.path.write_text(content)
            told = self.make()
            self.assertIsNone(told.cluster_of('s1'))
        self.assertEqual(2, self.log.output.count('cannot be used'))

    def test_nobody_to_ask(self) -> None:
        self.conf.set_override('groups_file', None, 'vhpc_nova')
        told = self.make()
        self.assertEqual('off', told.status()['state'])
        self.assertEqual('p/c', told.cluster_of('s1', 'c', 'p'))
        self.assertIsNone(told.cluster_of('s1'))
