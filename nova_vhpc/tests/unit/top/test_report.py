# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The lines of nova-vhpc-top --once."""

import itertools

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import order, reader, report
from nova_vhpc.top.sources import Answers


def lines(answers: Answers, width: int) -> list[str]:
    snapshot = reader.snapshot(answers)
    clusters = order.clusters(snapshot.servers)
    return [str(one) for one in report.report(snapshot, clusters, width)]


def table(document: dict, width: int) -> list[str]:
    """Return the lines of the table only."""
    shown = lines(Answers({'': document}), width)
    begin = shown.index('') + 1
    return list(itertools.takewhile(bool, shown[begin:]))


class ReportTest(base.TestCase):
    def test_60_servers_are_readable_at_each_width(self) -> None:
        for width, titles in (
            (80, 'server state recv % CPU % lat us slice ms pins'),
            (
                120,
                'server state recv % CPU % phase lat us slice ms pins note',
            ),
            (
                200,
                'server state recv % CPU % phase lat us slice ms window ms '
                'pins vCPUs I/O writes shares period ms quota ms workload '
                'note',
            ),
        ):
            with self.subTest(width):
                head, *rows = table(documents.many(), width)
                missing = [w for w in titles.split() if w not in head.split()]
                self.assertEqual([], missing)
                self.assertEqual(66, len(rows))
                self.assertLessEqual(max(map(len, [head, *rows])), width)
                self.assertTrue(rows[0].startswith('00000000 (10)  ok'))
                self.assertTrue(rows[1].startswith('  wn-0         ok'))
                self.assertIn(' 0-15', rows[1])
                self.assertNotIn('…', rows[1])

    def test_numbers_stand_below_their_titles(self) -> None:
        head, _, row = table(documents.document(), 200)
        end = head.index('recv %') + len('recv %')
        self.assertEqual('    99', row[end - 6 : end])

    def test_notes_that_do_not_fit_stand_below(self) -> None:
        document = documents.document(
            documents.vm('wn-1', problem='no journal'),
            documents.vm('wn-2', problem='no journal'),
            documents.vm('wn-3'),
        )
        shown = lines(Answers({'': document}), 60)
        self.assertEqual(['', 'wn-1, wn-2: no journal'], shown[-2:])
        self.assertNotIn('no journal', '\n'.join(shown[:-1]))
        (row,) = (
            x for x in lines(Answers({'': document}), 200) if 'wn-2' in x
        )
        self.assertTrue(row.endswith('no journal'))

    def test_head_says_state_of_the_host(self) -> None:
        document = documents.document(paused=True)
        document['publishing'] = {'state': 'published'}
        self.assertEqual(
            [
                'compute-1: CPUs 0-31, tick 1.5 of 100 ms, missed 3, PAUSED',
                'uplinks published; gang windows none; message bus off',
            ],
            lines(Answers({'': document}), 80)[:2],
        )

    def test_several_hosts_are_counted_and_the_missing_named(self) -> None:
        answers = Answers(
            {
                'c1': documents.document(documents.vm('wn-1'), host='c1'),
                'c2': documents.document(
                    documents.vm('wn-2'), host='c2', paused=True
                ),
            },
            {'c3': 'host c3: no agent listens'},
            ['Nova is away.'],
            documents.WEATHER,
            True,
        )
        shown = lines(answers, 120)
        self.assertEqual(
            [
                f'cluster {documents.WEATHER}',
                '2 hosts answer',
                'c3 is missing: no agent listens',
                'c2: PAUSED',
                'Nova is away.',
            ],
            shown[:5],
        )
        (row,) = (line for line in shown if 'wn-2' in line)
        self.assertEqual(['wn-2', 'c2', 'ok'], row.split()[:3])

    def test_host_without_servers_says_so(self) -> None:
        document = documents.document()
        document['vms'] = []
        self.assertEqual('No servers.', lines(Answers({'': document}), 80)[-1])

    def test_wide_characters_keep_columns_in_place(self) -> None:
        document = documents.document(
            documents.vm('天气'), documents.vm('wn-1')
        )
        head, _, *rows = table(document, 80)
        column = head.index('state')
        self.assertEqual('ok', rows[0][column : column + 2])
        self.assertEqual('ok', rows[1][column - 2 : column])
