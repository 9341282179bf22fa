# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Answers of several hosts."""

from collections.abc import Collection, Mapping
from typing import Any

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import bus_source
from nova_vhpc.top.sources import SourceError

WEATHER = documents.WEATHER


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


class Members:
    def __init__(
        self, placed: Mapping[str, str | None], *remarks: str
    ) -> None:
        self.answer = placed, list(remarks)

    def find(self) -> tuple[Mapping[str, str | None], list[str]]:
        placed, remarks = self.answer
        return placed, list(remarks)


def agent(host: str, *hears: str, cluster: str = WEATHER) -> dict:
    """Return the document of a host with a server named after it."""
    document = documents.document(documents.vm(f'on-{host}'), host=host)
    document['peers'] = {
        'state': 'up',
        'clusters': {cluster: {'hosts': {other: {} for other in hears}}},
    }
    return document


class BusSourceTest(base.TestCase):
    def test_named_hosts_are_asked_once_each(self) -> None:
        bus = Bus(c1=agent('c1'))
        answers = bus_source.BusSource(bus, ['c1', 'c2', 'c1']).fetch()
        self.assertEqual([['c1', 'c2']], bus.asked)
        self.assertEqual(['c1'], list(answers.documents))
        self.assertEqual({'c2': 'host c2: no agent listens'}, answers.missing)
        self.assertEqual({'c1'}, set(answers.as_json()['hosts']))

    def test_no_answer_at_all_is_an_error(self) -> None:
        error = self.assertRaises(
            SourceError, bus_source.BusSource(Bus(), ['c1', 'c2']).fetch
        )
        self.assertEqual(
            'host c1: no agent listens; host c2: no agent listens', str(error)
        )


class ClusterSourceTest(base.TestCase):
    def source(
        self, bus: Bus, members: Members, here: Any = None
    ) -> bus_source.ClusterSource:
        return bus_source.ClusterSource(bus, WEATHER, members, lambda: here)

    def test_hosts_that_nova_names_are_asked(self) -> None:
        bus = Bus(c1=agent('c1'), c2=agent('c2'))
        members = Members({'uuid-of-on-c1': 'c1', 'uuid-of-on-c2': 'c2'})
        answers = self.source(bus, members).fetch()
        self.assertEqual([['c1', 'c2']], bus.asked)
        self.assertEqual({'c1', 'c2'}, set(answers.documents))
        self.assertEqual(WEATHER, answers.cluster)
        self.assertEqual([], list(answers.remarks))

    def test_server_that_two_agents_have_is_named(self) -> None:
        bus = Bus(c1=agent('c1'), c2=agent('c2', 'c1'))
        bus.agents['c1']['vms'] += bus.agents['c2']['vms']
        members = Members({'uuid-of-on-c1': 'c1', 'uuid-of-on-c2': 'c2'})
        (remark,) = self.source(bus, members).fetch().remarks
        self.assertIn('uuid-of-on-c2 is on c2, and the agent of c1', remark)

    def test_host_that_does_not_answer_is_named(self) -> None:
        members = Members({'u1': 'c1', 'u3': 'c3'})
        answers = self.source(Bus(c1=agent('c1')), members).fetch()
        self.assertEqual(['c3'], list(answers.missing))

    def test_hosts_that_agents_hear_from_are_asked_too(self) -> None:
        bus = Bus(c1=agent('c1', 'c2'), c2=agent('c2', 'c1', 'c3'))
        source = self.source(bus, Members({}, 'no Nova'), agent('c1', 'c2'))
        answers = source.fetch()
        self.assertEqual([['c1', 'c2'], ['c3']], bus.asked)
        self.assertEqual(['c3'], list(answers.missing))
        self.assertEqual(['no Nova'], list(answers.remarks))

    def test_hosts_that_agree_on_slots_are_asked_too(self) -> None:
        here = agent('c1')
        here['peers']['slots'] = {
            'clusters': {WEATHER: {'hosts': {'c2': 'slots'}}}
        }
        bus = Bus(c1=here, c2=agent('c2'))
        answers = self.source(bus, Members({}), here).fetch()
        self.assertEqual({'c1', 'c2'}, set(answers.documents))

    def test_agents_that_name_ever_new_hosts_are_not_asked_for_ever(self):
        class Chain(Bus):
            def __call__(self, hosts):
                self.asked.append(sorted(hosts))
                return {one: agent(one, f'{one}x') for one in hosts}, {}

        bus = Chain()
        self.source(bus, Members({'u': 'c'})).fetch()
        self.assertEqual(bus_source.MOST_ROUNDS, len(bus.asked))

    def test_other_clusters_name_no_hosts(self) -> None:
        here = agent('c1', 'c2', cluster='other')
        here['vms'] = []
        error = self.assertRaises(
            SourceError, self.source(Bus(), Members({}, 'no Nova'), here).fetch
        )
        self.assertIn('no host of cluster', str(error))
        self.assertIn('--host', str(error))
        self.assertIn('no Nova', str(error))

    def test_member_that_its_host_does_not_manage_is_said(self) -> None:
        members = Members({'uuid-of-on-c1': 'c1', 'u2': 'c1', 'u3': None})
        answers = self.source(Bus(c1=agent('c1')), members).fetch()
        managed, nowhere = answers.remarks
        self.assertIn('u2 is on c1, whose agent does not manage it', managed)
        self.assertEqual('Nova tells no host of u3', nowhere)

    def test_unreadable_answers_name_no_hosts(self) -> None:
        for document in (None, [], {'vms': None}, {'peers': 3, 'vms': []}):
            self.assertEqual(set(), bus_source.hosts_of(document, WEATHER))
        bus = Bus(c1={'vms': 3}, c2=agent('c2'))
        members = Members({'uuid-of-on-c2': 'c2', 'u1': 'c1'})
        answers = self.source(bus, members).fetch()
        self.assertEqual({'c1', 'c2'}, set(answers.documents))

    def test_no_host_answers(self) -> None:
        error = self.assertRaises(
            SourceError, self.source(Bus(), Members({'u': 'c1'})).fetch
        )
        self.assertEqual('host c1: no agent listens', str(error))
