# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What is shown of status documents."""

from typing import Any

from nova_vhpc.agent import errors
from nova_vhpc.agent.health import watch
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import reader
from nova_vhpc.top.model import Host, Server, State
from nova_vhpc.top.sources import Answers

SPINS = {
    'state': 'held-up',
    'finding': 'never sleeps',
    'remedy': 'let it wait',
}


def server(**changes: Any) -> Server:
    document = documents.document(documents.vm('wn-1', **changes))
    (found,) = reader.snapshot(Answers({'': document})).servers
    return found


def host(document: dict) -> Host:
    (found,) = reader.snapshot(Answers({'': document})).hosts
    return found


class ServersTest(base.TestCase):
    def test_server_has_the_name_that_nova_gave(self) -> None:
        self.assertEqual('wn-1', server().name)
        self.assertEqual('instance-wn-1', server().domain)
        self.assertEqual('instance-wn-1', server(server_name='').name)

    def test_cpu_time_is_a_part_of_one_cpu(self) -> None:
        self.assertEqual(2.5, server(run_us=250_000.0).cpu)
        self.assertIsNone(server(run_us=None).cpu)

    def test_state_is_the_worst_that_holds(self) -> None:
        for changes, state in (
            ({}, State.OK),
            ({'phase': None}, State.WAITING),
            ({'hands_off': 'migrating', 'phase': None}, State.ALONE),
            ({'released': ['quota_us']}, State.ALONE),
            ({'received': 0.9499, 'hands_off': 'x'}, State.SHORT),
            ({'received': 0.95}, State.OK),
            ({'received': None}, State.OK),
            ({'problem': 'refused', 'received': 0.5}, State.FAILING),
            ({'quarantined': True}, State.FAILING),
            ({'waiting': SPINS}, State.SPINNING),
            ({'waiting': {**SPINS, 'state': 'waits'}}, State.OK),
            ({'waiting': SPINS, 'hands_off': 'migrating'}, State.ALONE),
        ):
            with self.subTest(changes):
                self.assertIs(state, server(**changes).state)

    def test_note_names_what_is_wrong_first(self) -> None:
        shown = server(
            problem='refused', released=['quota_us', 'shares'], remarks=['r']
        )
        self.assertEqual(
            'external change: quota_us, shares; refused; r', shown.note
        )
        self.assertEqual('gang window', server().note)
        self.assertEqual(
            'gang window; never sleeps: let it wait; r',
            server(waiting=SPINS, remarks=['r']).note,
        )

    def test_names_cannot_steer_the_terminal(self) -> None:
        shown = server(server_name='a\x1b[2J\nb\u202e', reason='[bold]x')
        self.assertEqual('a\ufffd[2J b\ufffd', shown.name)
        self.assertEqual('[bold]x', shown.note)

    def test_gang_window_is_that_of_the_turn_that_favours(self) -> None:
        document = documents.document(
            documents.vm('wn-1'), documents.vm('wn-2')
        )
        document['windows'] = {
            'playing': True,
            'turns': [{'width_us': 3000, 'favoured': ['uuid-of-wn-1']}],
        }
        first, second = reader.snapshot(Answers({'': document})).servers
        self.assertEqual((3000, None), (first.window_us, second.window_us))
        self.assertEqual('3 ms', host(document).windows)
        document['windows']['playing'] = False
        self.assertEqual('none', host(document).windows)


class HostsTest(base.TestCase):
    def test_marks_say_what_is_out_of_the_ordinary(self) -> None:
        document = documents.document(
            dry_run=True, paused=True, libvirt_up=False, tick_us=None
        )
        self.assertEqual(
            ('DRY RUN', 'PAUSED', 'NO LIBVIRT'), host(document).marks
        )
        self.assertEqual((), host(documents.document()).marks)
        for changes, echo_us, marks in (
            ({'ticks': 990, 'overruns': 10}, None, ()),
            ({'ticks': 990, 'overruns': 11}, None, ('MISSES TICKS',)),
            ({}, 100_000, ()),
            ({}, 100_001, ('SLOW MESSAGE BUS',)),
        ):
            with self.subTest(changes, echo_us=echo_us):
                document = documents.document(**changes)
                document['peers'] = {'state': 'up', 'echo_us': echo_us}
                self.assertEqual(marks, host(document).marks)

    def test_health_is_said_with_what_is_off(self) -> None:
        document = documents.document()
        document['health'] = watch.HealthWatch().judge(document)
        shown = host(document)
        self.assertEqual(('NOT HEALTHY',), shown.marks)
        self.assertIn('probes: degraded since', shown.problems[0])

    def test_refused_servers_are_problems_with_the_reason(self) -> None:
        document = documents.document(
            refused={'uuid-1': 'no journal: [disk] full'},
            remarks=['uuid-2: it has vanished'],
        )
        self.assertEqual(
            (
                'uuid-1: left alone: no journal: [disk] full',
                'uuid-2: it has vanished',
            ),
            host(document).problems,
        )

    def test_bus_state_is_said(self) -> None:
        for peers, shown in (
            (None, 'off'),
            ({'state': 'off', 'detail': ''}, 'off'),
            ({'state': 'starting', 'detail': ''}, 'starting'),
            (
                {'state': 'up', 'detail': '', 'echo_us': 2512},
                'up, echo in 2.5 ms',
            ),
            (
                {'state': 'down', 'detail': '[Errno 111]', 'echo_us': 2512},
                'down: [Errno 111]',
            ),
        ):
            document = documents.document()
            document['peers'] = peers
            self.assertEqual(shown, host(document).bus)


class SnapshotTest(base.TestCase):
    def test_only_servers_of_the_asked_cluster_are_shown(self) -> None:
        document = documents.document(
            documents.vm('wn-1'),
            documents.vm('oc-1', documents.OCEAN),
            documents.vm('alone', None),
        )
        for cluster, names in (
            (documents.WEATHER, ['wn-1']),
            (None, ['wn-1', 'oc-1', 'alone']),
        ):
            shown = reader.snapshot(Answers({'': document}, cluster=cluster))
            self.assertEqual(names, [one.name for one in shown.servers])

    def test_unreadable_answer_among_many_is_missing(self) -> None:
        shown = reader.snapshot(
            Answers(
                {'c1': documents.document(), 'c2': {'agent': None}},
                {'c3': 'no answer'},
                many=True,
            )
        )
        self.assertEqual(['c2', 'c3'], sorted(shown.missing))
        self.assertIn('another version', shown.missing['c2'])

    def test_unreadable_only_answer_is_an_error(self) -> None:
        endless = documents.document(documents.vm('wn-1'), period_us=0)
        endless['vms'][0]['run_us'] = 5.0
        for answer in ({}, [], {'agent': None, 'vms': []}, endless):
            with self.subTest(str(answer)[:20]):
                self.assertRaises(
                    errors.UNREADABLE, reader.snapshot, Answers({'': answer})
                )
