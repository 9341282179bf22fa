# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.clusters.groups`.

Groups from Nova itself are in the functional tests.
"""

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
        made = groups.Groups(self.conf, 'host')
        made.start()
        self.addCleanup(made.stop)
        return made

    def test_credentials_may_be_in_another_section(self) -> None:
        self.conf.set_override('groups_file', None, 'vhpc_nova')
        self.assertFalse(self.make().uses_nova)
        self.conf.set_override('auth_section', 'placement', 'vhpc_nova')
        self.assertTrue(self.make().uses_nova)

    def test_age_is_independent_of_the_wall_clock(self) -> None:
        """NTP may set the clock after a boot, when Nova may be away."""
        made = groups.Groups(self.conf, 'host')
        with (
            mock.patch.object(made._nova, 'fetch', nova.Answer),
            mock.patch.object(groups.time, 'time', return_value=0.0),
        ):
            made.refresh()
        age_s = made.status()['age_s']
        self.assertGreaterEqual(age_s, 0.0)
        self.assertLess(age_s, 3600.0)

    def test_running_servers_that_nova_does_not_list_are_kept(self) -> None:
        """Nova leaves out the servers of a cell whose database is away."""
        made = groups.Groups(self.conf, 'host')
        both = frozenset({'here', 'gone'})
        answer = nova.Answer(both, dict.fromkeys(both, 'g'), both, both)

        def query(answer: nova.Answer) -> None:
            with mock.patch.object(made._nova, 'fetch', return_value=answer):
                made._query()

        query(answer)
        made.cluster_of('gone')
        now_s = groups.time.monotonic() + groups._TICK_S * 2
        with mock.patch.object(groups.time, 'monotonic', return_value=now_s):
            made.cluster_of('here')
        ages = {made._answered_s}
        for state in ('fresh', 'partial', 'partial'):
            query(nova.Answer())
            self.assertEqual('g', made.cluster_of('here'))
            self.assertNotIn('gone', made._answer.clusters)
            self.assertEqual({'here'}, made.migrating)
            self.assertEqual(state, made.status()['state'])
            ages.add(made._answered_s)
        self.assertEqual(1, self.log.output.count('list 1 of 1 servers'))
        self.assertEqual(1, len(ages), 'kept servers must not renew the age')
        # The last server has gone.
        made._looked_up_s['here'] -= groups._MAX_PERIOD_S + groups._TICK_S * 2
        query(nova.Answer())
        self.assertNotIn('here', made._answer.clusters)
        self.assertEqual('fresh', made.status()['state'])
        self.assertEqual({}, made._looked_up_s)
        query(answer)
        made.cluster_of('here')
        # A server that Nova lists counts as known.
        query(nova.Answer(listed=both))
        self.assertIsNone(made.cluster_of('here'))
        self.assertEqual('fresh', made.status()['state'])

    def test_host_that_nova_knows_by_another_name_is_reported(self) -> None:
        """Nova answers with an empty list for a host that it does not know."""
        made = groups.Groups(self.conf, 'cn1')
        for server in ('s1', 's2'):
            made.cluster_of(server)
        with (
            mock.patch.object(made._nova, 'fetch', nova.Answer),
            mock.patch.object(
                made._nova, 'host_of', return_value='cn1.example.org'
            ),
        ):
            made._query()
            self.assertEqual('fresh', made.status()['state'])
            for _ in range(2):
                made._query()
                self.assertEqual('partial', made.status()['state'])
        detail = made.status()['detail']
        self.assertIn('none of the 2 servers that run here', detail)
        self.assertIn('it has s1 on cn1.example.org', detail)
        self.assertIn('set [vhpc_agent]host', detail)
        self.assertEqual(1, self.log.output.count(detail))
        self.assertEqual(2, made.status()['running'])

    def test_server_that_does_not_run_any_more_is_not_missed(self) -> None:
        made = groups.Groups(self.conf, 'cn1')
        made.cluster_of('s1')
        with mock.patch.object(made._nova, 'fetch', nova.Answer):
            made._query()
            made._looked_up_s['s1'] -= groups._MAX_PERIOD_S + 1
            made._query()
        self.assertEqual('fresh', made.status()['state'])

    def test_servers_of_a_tick_under_way_count_as_running(self) -> None:
        """A server that the tick has not looked up yet runs here, too."""
        made = groups.Groups(self.conf, 'host', period_s=5.0)
        both = frozenset({'early', 'late'})
        made._answer = nova.Answer(both)
        # Also if the file has it: Nova may be migrating it.
        made._file_clusters = {'late': 'filed'}
        last_s = groups.time.monotonic()
        for server in both:
            made.cluster_of(server)
        now_s = last_s + 5.0 + groups._TICK_S / 2
        with mock.patch.object(groups.time, 'monotonic', return_value=now_s):
            made.cluster_of('early')
            self.assertEqual(both, made._running_here())

    def test_file_may_be_yaml_or_json(self) -> None:
        for text in ('cfd: [s1, s2]\n', '{"cfd": ["s1", "s2"]}'):
            self.path.write_text(text)
            made = self.make()
            self.assertEqual('cfd', made.cluster_of('s2'))
            self.assertIsNone(made.cluster_of('s3'))
            self.assertEqual('file', made.status()['state'])
            self.assertEqual({'cfd': 2}, made.status()['clusters'])

    def test_file_takes_precedence_over_the_flavor(self) -> None:
        self.path.write_text('cfd: [s1]\n')
        made = self.make()
        self.assertEqual('cfd', made.cluster_of('s1', 'other', 'p'))
        self.assertEqual('p/other', made.cluster_of('s3', 'other', 'p'))

    def test_changed_file_is_read_again(self) -> None:
        self.path.write_text('cfd: [s1]\n')
        made = self.make()
        made.stop()
        self.path.write_text('weather: [s1]\n')
        made._read_file()
        self.assertEqual('weather', made.cluster_of('s1'))

    def test_status_says_why_the_file_cannot_be_used(self) -> None:
        self.path.write_text('cfd: [s1]\n')
        made = self.make()
        self.assertEqual('', made.status()['file_problem'])
        self.path.unlink()
        made._read_file()
        self.assertIn(str(self.path), made.status()['file_problem'])
        self.path.write_text('cfd: [s1, s2]\n')
        made._read_file()
        self.assertEqual('', made.status()['file_problem'])

    def test_invalid_file_changes_nothing_and_is_logged_once(self) -> None:
        self.path.write_text('cfd: [s1]\n')
        made = self.make()
        # Its thread must not read the file in between.
        made.stop()
        for number in range(3):
            self.path.write_text('cfd: [s1\n' + ' ' * number)
            made._read_file()
        self.assertEqual('cfd', made.cluster_of('s1'))
        self.assertEqual(1, self.log.output.count('cannot be used'))
        self.path.write_text('weather: [s1]\n')
        os.utime(self.path, (time.time() + 5, time.time() + 5))
        made._read_file()
        self.assertEqual('weather', made.cluster_of('s1'))

    def test_endless_files_are_refused(self) -> None:
        bomb = ''.join(
            f'b{n}: &b{n} [{", ".join([f"*b{n - 1}"] * 9)}]\n'
            for n in range(1, 30)
        )
        for content in (f'b0: &b0 [s1]\n{bomb}', 'cfd: ' + '[' * 3000):
            self.path.write_text(content)
            made = self.make()
            self.assertIsNone(made.cluster_of('s1'))
        self.assertEqual(2, self.log.output.count('cannot be used'))

    def test_flavors_cluster_is_used_without_nova_and_file(self) -> None:
        self.conf.set_override('groups_file', None, 'vhpc_nova')
        made = self.make()
        self.assertEqual('off', made.status()['state'])
        self.assertEqual('p/c', made.cluster_of('s1', 'c', 'p'))
        self.assertIsNone(made.cluster_of('s1'))


class ReadFileTest(base.BaseTestCase):
    def test_groups_file_is_read(self) -> None:
        self.assertEqual(
            {'s1': 'a', 's2': 'a', 's3': 'b'},
            groups.read_file({'a': ['s1', 's2'], 'b': ['s3']}),
        )
        self.assertEqual({}, groups.read_file(None))

    def test_error_of_groups_file_names_the_problem(self) -> None:
        for content, what in (
            (['s1'], 'map cluster names'),
            ({'a': 's1'}, "'a' must be a list"),
            ({'a': ['s1'], 'b': ['s1']}, 'is in a and in b'),
            ({'a': [['s1']]}, "'a' has a server that is no text"),
            ({'half a pair \ud800': ['s1']}, "'half a pair \\ud800' is not"),
            ({'a' * 513: ['s1']}, 'is not a name of 1 to 512'),
        ):
            error = self.assertRaises(ValueError, groups.read_file, content)
            self.assertIn(what, str(error))
