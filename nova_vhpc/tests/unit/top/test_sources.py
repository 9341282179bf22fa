# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Status documents of a file, a socket and the message bus."""

import json
import pathlib
import tempfile
from collections.abc import Collection, Mapping
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.clusters import nova
from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.conf import nova_api
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import sources
from nova_vhpc.top.sources import SourceError

WEATHER = documents.WEATHER


class LocalTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, 'a')

    def read(self, content: str) -> sources.Answers:
        self.path.write_text(content)
        return sources.read_file(str(self.path))

    def test_file_of_one_document_is_read_again(self) -> None:
        document = documents.document()
        found = self.read(json.dumps(document))
        self.assertEqual([document], list(found.documents.values()))
        self.assertEqual(document, found.as_json())

    def test_file_of_many_documents_is_read_again(self) -> None:
        answers = sources.Answers(
            {'c1': documents.document()}, {'c2': 'off'}, ['r'], 'c', True
        )
        found = self.read(json.dumps(answers.as_json()))
        self.assertEqual(answers, found)

    def test_file_that_cannot_be_used_is_named(self) -> None:
        for content in ('', '{', '{"hosts": 3}', '{"hosts": {}}', '[' * 9999):
            with self.subTest(content[:9]):
                error = self.assertRaises(
                    sources.SourceError, self.read, content
                )
                self.assertIn(str(self.path), str(error))
        self.path.unlink()
        self.assertRaises(
            sources.SourceError, sources.read_file, str(self.path)
        )

    def test_socket_of_a_running_agent_is_asked(self) -> None:
        document = documents.document()
        server = status_socket.StatusServer(
            str(self.path), 0o600, lambda: document
        )
        server.start()
        self.addCleanup(server.stop)
        found = sources.read_socket(str(self.path))
        self.assertEqual(document, found.as_json())

    def test_silent_socket_says_what_to_check(self) -> None:
        error = self.assertRaises(
            sources.SourceError, sources.read_socket, str(self.path)
        )
        self.assertIn(f'{self.path}: ', str(error))
        self.assertIn('is nova-vhpc-agent running', str(error))


class Bus:
    """Agents by host; others do not answer.

    :ivar asked: the hosts of each call.
    """

    def __init__(self, **agents: Any) -> None:
        self.agents = agents
        self.asked: list[list[str]] = []

    def __call__(
        self, hosts: Collection[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        self.asked.append(sorted(hosts))
        return (
            {host: self.agents[host] for host in hosts if host in self.agents},
            {
                host: f'host {host}: no agent listens'
                for host in hosts
                if host not in self.agents
            },
        )


def agent(host: str, *hears: str, cluster: str = WEATHER) -> dict:
    """Return the document of a host with a server named after it."""
    document = documents.document(documents.vm(f'on-{host}'), host=host)
    document['peers'] = {
        'state': 'up',
        'clusters': {cluster: {'hosts': {other: {} for other in hears}}},
    }
    return document


class HostsTest(base.TestCase):
    def test_named_hosts_are_asked_once_each(self) -> None:
        bus = Bus(c1=agent('c1'))
        answers = sources.ask_hosts(bus, ['c1', 'c2', 'c1'])
        self.assertEqual([['c1', 'c2']], bus.asked)
        self.assertEqual(['c1'], list(answers.documents))
        self.assertEqual({'c2': 'host c2: no agent listens'}, answers.missing)
        self.assertEqual({'c1'}, set(answers.as_json()['hosts']))

    def test_no_answer_at_all_is_an_error(self) -> None:
        error = self.assertRaises(
            SourceError, sources.ask_hosts, Bus(), ['c1', 'c2']
        )
        self.assertEqual(
            'host c1: no agent listens; host c2: no agent listens', str(error)
        )


class ClusterTest(base.TestCase):
    def ask(
        self,
        bus: Bus,
        placed: Mapping[str, str | None],
        here: Any = None,
        *remarks: str,
    ) -> sources.Answers:
        return sources.ask_cluster(
            bus, WEATHER, lambda: (placed, list(remarks)), lambda: here
        )

    def test_hosts_that_nova_names_are_asked(self) -> None:
        bus = Bus(c1=agent('c1'), c2=agent('c2'))
        members = {'uuid-of-on-c1': 'c1', 'uuid-of-on-c2': 'c2'}
        answers = self.ask(bus, members)
        self.assertEqual([['c1', 'c2']], bus.asked)
        self.assertEqual({'c1', 'c2'}, set(answers.documents))
        self.assertEqual(WEATHER, answers.cluster)
        self.assertEqual([], list(answers.remarks))

    def test_server_that_two_agents_have_is_named(self) -> None:
        bus = Bus(c1=agent('c1'), c2=agent('c2', 'c1'))
        bus.agents['c1']['vms'] += bus.agents['c2']['vms']
        members = {'uuid-of-on-c1': 'c1', 'uuid-of-on-c2': 'c2'}
        (remark,) = self.ask(bus, members).remarks
        self.assertIn('uuid-of-on-c2 is on c2, and the agent of c1', remark)

    def test_host_that_does_not_answer_is_named(self) -> None:
        members = {'u1': 'c1', 'u3': 'c3'}
        answers = self.ask(Bus(c1=agent('c1')), members)
        self.assertEqual(['c3'], list(answers.missing))

    def test_hosts_that_agents_hear_from_are_asked_too(self) -> None:
        bus = Bus(c1=agent('c1', 'c2'), c2=agent('c2', 'c1', 'c3'))
        answers = self.ask(bus, {}, agent('c1', 'c2'), 'no Nova')
        self.assertEqual([['c1', 'c2'], ['c3']], bus.asked)
        self.assertEqual(['c3'], list(answers.missing))
        self.assertEqual(['no Nova'], list(answers.remarks))

    def test_hosts_that_agree_on_slots_are_asked_too(self) -> None:
        here = agent('c1')
        here['peers']['slots'] = {
            'clusters': {WEATHER: {'hosts': {'c2': 'slots'}}}
        }
        bus = Bus(c1=here, c2=agent('c2'))
        answers = self.ask(bus, {}, here)
        self.assertEqual({'c1', 'c2'}, set(answers.documents))

    def test_agents_that_name_ever_new_hosts_are_not_asked_for_ever(self):
        class Chain(Bus):
            def __call__(self, hosts):
                self.asked.append(sorted(hosts))
                return {one: agent(one, f'{one}x') for one in hosts}, {}

        bus = Chain()
        self.ask(bus, {'u': 'c'})
        self.assertEqual(sources.MOST_ROUNDS, len(bus.asked))

    def test_other_clusters_name_no_hosts(self) -> None:
        here = agent('c1', 'c2', cluster='other')
        here['vms'] = []
        error = self.assertRaises(
            SourceError, self.ask, Bus(), {}, here, 'no Nova'
        )
        self.assertIn('no host of cluster', str(error))
        self.assertIn('--host', str(error))
        self.assertIn('no Nova', str(error))

    def test_member_that_its_host_does_not_manage_is_said(self) -> None:
        members = {'uuid-of-on-c1': 'c1', 'u2': 'c1', 'u3': None}
        answers = self.ask(Bus(c1=agent('c1')), members)
        managed, nowhere = answers.remarks
        self.assertIn('u2 is on c1, whose agent does not manage it', managed)
        self.assertEqual('Nova tells no host of u3', nowhere)

    def test_unreadable_answers_name_no_hosts(self) -> None:
        for document in (None, [], {'vms': None}, {'peers': 3, 'vms': []}):
            self.assertEqual(set(), sources.hosts_of(document, WEATHER))
        bus = Bus(c1={'vms': 3}, c2=agent('c2'))
        members = {'uuid-of-on-c2': 'c2', 'u1': 'c1'}
        answers = self.ask(bus, members)
        self.assertEqual({'c1', 'c2'}, set(answers.documents))

    def test_no_host_answers(self) -> None:
        error = self.assertRaises(SourceError, self.ask, Bus(), {'u': 'c1'})
        self.assertEqual('host c1: no agent listens', str(error))


class NovaMembersTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.conf = cfg.ConfigOpts()
        nova_api.register_opts(self.conf)
        self.conf([], default_config_files=[])
        self.conf.set_override('auth_type', 'none', 'vhpc_nova')
        self.now_s = 0.0
        self.asked = 0
        self.cluster = documents.WEATHER
        self.answer: dict[str, str | None] | Exception = {'u1': 'c1'}

    def members(self, cluster: str = documents.WEATHER) -> sources.NovaMembers:
        made = sources.NovaMembers(self.conf, cluster, lambda: self.now_s)
        made._servers.members_of = self.members_of
        return made

    def members_of(self, cluster: str) -> dict[str, str | None]:
        self.assertEqual(self.cluster, cluster)
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def test_nova_is_asked_once_a_minute(self) -> None:
        made = self.members()
        for self.now_s, asked in ((0, 1), (59.9, 1), (60, 2), (61, 2)):
            self.assertEqual(({'u1': 'c1'}, []), made.find())
            self.assertEqual(asked, self.asked)

    def test_last_answer_stays_while_nova_is_away(self) -> None:
        made = self.members()
        made.find()
        self.answer = nova.NovaError('HTTP 503')
        self.now_s = 60
        for _ in range(2):
            placed, (remark,) = made.find()
            self.assertEqual({'u1': 'c1'}, placed)
            self.assertIn('HTTP 503', remark)
        self.answer = {}
        self.now_s = 120
        self.assertEqual(({}, []), made.find())

    def test_without_credentials_nova_is_not_asked(self) -> None:
        self.conf.set_override('auth_type', None, 'vhpc_nova')
        placed, (remark,) = self.members().find()
        self.assertEqual(({}, 0), (placed, self.asked))
        self.assertIn('[vhpc_nova] has no credentials', remark)

    def test_cluster_of_a_groups_file_is_not_asked_for(self) -> None:
        placed, (remark,) = self.members('ocean').find()
        self.assertEqual(({}, 0), (placed, self.asked))
        self.assertIn('Nova knows no cluster ocean', remark)

    def test_cluster_of_a_project_is_asked_for(self) -> None:
        self.cluster = documents.OCEAN
        self.assertEqual(
            ({'u1': 'c1'}, []), self.members(documents.OCEAN).find()
        )
