# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import fixtures

from nova_vhpc.scheduler.sources import server_groups
from nova_vhpc.tests import base


class ServerGroupsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.group_of = {}
        self.queries = []
        self.failure = None
        self.groups = server_groups.ServerGroups(self.read)

    def read(self, uuids):
        self.queries.append(list(uuids))
        if self.failure is not None:
            raise self.failure
        return {u: self.group_of[u] for u in uuids if u in self.group_of}

    def of_hosts(self, *hosts, without='own'):
        return self.groups.of_hosts(
            [dict.fromkeys(here) for here in hosts], without
        )

    def test_groups_of_a_hosts_servers_are_its_clusters(self):
        self.group_of = {'a1': 'a', 'a2': 'a', 'b1': 'b', 'own1': 'own'}
        self.assertEqual(
            [{'a', 'b'}, {'a'}, set()],
            self.of_hosts(['a1', 'b1', 'plain'], ['a2', 'own1'], []),
        )

    def test_server_is_looked_up_once_whether_in_a_group_or_not(self):
        self.group_of = {'a1': 'a'}
        self.of_hosts(['a1', 'plain'])
        self.assertEqual([{'a'}], self.of_hosts(['a1', 'plain', 'new']))
        self.assertEqual([['a1', 'plain'], ['new']], map_sorted(self.queries))

    def test_many_servers_are_asked_in_several_queries(self):
        self.useFixture(
            fixtures.MonkeyPatch(f'{server_groups.__name__}.QUERY_SIZE', 2)
        )
        self.of_hosts(['1', '2', '3'], ['4', '5'])
        self.assertEqual([2, 2, 1], [len(uuids) for uuids in self.queries])

    def test_request_looks_up_a_limited_number_the_next_one_the_rest(self):
        self.useFixture(
            fixtures.MonkeyPatch(f'{server_groups.__name__}.MAX_READ', 1)
        )
        self.group_of = {'a1': 'a', 'b1': 'b'}
        self.assertEqual([{'a'}, set()], self.of_hosts(['a1'], ['b1']))
        self.assertEqual([{'a'}, {'b'}], self.of_hosts(['a1'], ['b1']))

    def test_servers_of_other_hosts_are_forgotten_when_there_are_many(self):
        self.useFixture(
            fixtures.MonkeyPatch(f'{server_groups.__name__}.MAX_REMEMBERED', 2)
        )
        self.of_hosts(['gone', 'stays'])
        self.of_hosts(['stays', 'new'])
        self.assertEqual(
            [['gone', 'stays'], ['new']], map_sorted(self.queries)
        )
        self.of_hosts(['gone'])
        self.assertEqual(['gone'], self.queries[-1])

    def test_database_that_does_not_answer_is_logged_and_asked_again(self):
        self.group_of = {'a1': 'a', 'b1': 'b'}
        self.of_hosts(['a1'])
        self.failure = OSError('gone away')
        self.assertEqual([{'a'}], self.of_hosts(['a1', 'b1']))
        self.assertIn('gone away', self.log.output)
        self.failure = None
        self.assertEqual([{'a', 'b'}], self.of_hosts(['a1', 'b1']))


def map_sorted(queries):
    return [sorted(uuids) for uuids in queries]
