# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The lines of nova-vhpc-top --once."""

import itertools

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import model, reader, report
from nova_vhpc.top.model import Cluster
from nova_vhpc.top.sources import Answers


def lines(answers: Answers, width: int) -> list[str]:
    snapshot = reader.snapshot(answers)
    clusters = model.group(snapshot.servers)
    return [str(one) for one in report.report(snapshot, clusters, width)]


def table(document: dict, width: int) -> list[str]:
    """Return the lines of the table only."""
    shown = lines(Answers({'': document}), width)
    begin = shown.index('') + 1
    return list(itertools.takewhile(bool, shown[begin:]))


def clusters(*vms: dict) -> list[Cluster]:
    document = documents.document(*vms)
    return model.group(reader.snapshot(Answers({'': document})).servers)


class ReportTest(base.TestCase):
    def test_60_servers_are_readable_at_each_width(self) -> None:
        for width, titles in (
            (80, 'server state received % CPU % latency ms slice ms pins'),
            (
                120,
                'server state received % CPU % phase latency ms slice ms '
                'pins note',
            ),
            (
                200,
                'server state received % CPU % phase latency ms slice ms '
                'window ms pins vCPUs I/O writes shares period ms quota ms '
                'workload note',
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
        end = head.index('received %') + len('received %')
        self.assertEqual('        99', row[end - 10 : end])

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

    def test_long_notes_go_on_below_themselves(self) -> None:
        reason = 'windows cost its neighbours too much, ' * 5 + 'so none'
        document = documents.document(documents.vm('wn-1', reason=reason))
        head, _, row, *more = table(document, 120)
        column = head.index('note')
        self.assertEqual({''}, {line[:column].strip() for line in more})
        note = ' '.join(line[column:].strip() for line in (row, *more))
        self.assertEqual(reason, note)

    def test_head_says_state_of_the_host(self) -> None:
        document = documents.document(paused=True)
        document['publishing'] = {'state': 'published'}
        self.assertEqual(
            [
                'compute-1: CPUs 0-31, tick 1.5 of 100 ms, missed 3 of '
                '9,003, PAUSED',
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


class DetailTest(base.TestCase):
    def test_cluster_names_the_server_that_receives_least(self) -> None:
        (cluster,) = clusters(
            documents.vm('wn-1', received=0.9),
            documents.vm('wn-2', received=0.7, reason='no gang window'),
            documents.vm('wn-3', received=None),
        )
        self.assertEqual(
            [
                f'3f9a6c21: cluster {documents.WEATHER}',
                '3 servers, 48 vCPUs on compute-1',
                'wn-2 receives least: 70% of the CPU time that stock Linux '
                'would give',
                'wn-1: gang window',
                'wn-2: no gang window',
            ],
            [cell.text for cell in report.detail(cluster)],
        )

    def test_cluster_that_is_named_keeps_its_name(self) -> None:
        (cluster,) = clusters(documents.vm('oc-1', documents.OCEAN))
        self.assertEqual(
            f'ocean: cluster {documents.OCEAN}', report.detail(cluster)[0].text
        )
        (cluster,) = clusters(documents.vm('alone', None))
        self.assertEqual('no cluster', report.detail(cluster)[0].text)

    def test_server_has_all_that_columns_may_lack(self) -> None:
        ((server,),) = (c.servers for c in clusters(documents.vm('wn-1')))
        text = '\n'.join(cell.text for cell in report.detail(server))
        for words in (
            'wn-1 (instance-wn-1, uuid-of-wn-1) on compute-1',
            'gang window',
            f'cluster {documents.WEATHER}',
            '16 vCPUs on CPUs 0-15',
            'slice 5 ms, period 100 ms, quota none, shares 1024',
            'received 99%',
            'latency 0.005 ms',
        ):
            self.assertIn(words, text)

    def test_many_names_are_counted(self) -> None:
        found = clusters(
            *(documents.vm(f'wn-{n}', problem='full') for n in range(1, 10))
        )
        self.assertEqual(
            ['wn-1, wn-2, wn-3, wn-4, wn-5, wn-6 and 3 more: full'],
            [cell.text for cell in report.notes(found)],
        )
