# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which columns fit into a width."""

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import columns, model, reader
from nova_vhpc.top.model import Cluster, Server
from nova_vhpc.top.sources import Answers


def rows(document: dict) -> list[Server | Cluster]:
    found: list[Server | Cluster] = []
    servers = reader.snapshot(Answers({'': document})).servers
    for cluster in model.group(servers):
        found += [cluster, *cluster.servers]
    return found


def titles(shown: list[tuple[columns.Column, int]]) -> list[str]:
    return [column.title for column, _ in shown]


class FoldTest(base.TestCase):
    def test_columns_never_exceed_the_width(self) -> None:
        found = rows(documents.many())
        for width in range(20, 260):
            shown = columns.fold(found, width, True)
            total = sum(size for _, size in shown)
            total += columns.GAP * (len(shown) - 1)
            self.assertLessEqual(total, width)
            self.assertEqual('server', shown[0][0].title)

    def test_wider_screens_have_all_columns_of_narrower_ones(self) -> None:
        found = rows(documents.many())
        before: set[str] = set()
        for width in range(20, 260):
            now = set(titles(columns.fold(found, width, True)))
            self.assertEqual(set(), before - now, width)
            before = now
        self.assertEqual({one.title for one in columns.COLUMNS}, before)

    def test_80_columns_say_who_is_slow_and_where_it_runs(self) -> None:
        shown = columns.fold(rows(documents.many()), 80, False)
        for title in (
            'server',
            'state',
            'received %',
            'CPU %',
            'latency ms',
            'pins',
        ):
            self.assertIn(title, titles(shown))

    def test_hosts_have_a_column_only_if_asked_for(self) -> None:
        found = rows(documents.many())
        for hosts in (True, False):
            shown = columns.fold(found, 200, hosts)
            self.assertEqual(hosts, 'host' in titles(shown))

    def test_what_is_free_goes_to_the_note(self) -> None:
        document = documents.document(documents.vm('a', reason='x' * 300))
        (*_, (note, width)) = columns.fold(rows(document), 260, False)
        self.assertIs(columns.NOTE, note)
        self.assertGreater(width, 100)

    def test_width_of_one_keeps_the_name(self) -> None:
        ((column, width),) = columns.fold(rows(documents.document()), 1, True)
        self.assertEqual(('server', 1), (column.title, width))

    def test_no_rows_have_columns_as_wide_as_their_titles(self) -> None:
        for column, width in columns.fold([], 300, True):
            self.assertEqual(len(column.title), width)


class CellsTest(base.TestCase):
    def cell(self, title: str, row: int = 0, **changes: object) -> str:
        other = documents.vm('wn-2', received=0.5, sync_latency_us=8.0)
        document = documents.document(documents.vm('wn-1', **changes), other)
        (column,) = (one for one in columns.COLUMNS if one.title == title)
        return column.cell(rows(document)[row]).text

    def test_cluster_sums_or_takes_the_worst(self) -> None:
        for title, text in (
            ('server', '3f9a6c21 (2)'),
            ('received %', '50'),
            ('latency ms', '9'),
            ('vCPUs', '32'),
            ('CPU %', '300'),
            ('pins', '0-15'),
            ('state', 'short'),
            ('phase', 'mixed'),
            ('host', 'compute-1'),
            ('note', '2 servers, 32 vCPUs on compute-1'),
            ('slice ms', ''),
        ):
            with self.subTest(title):
                changes = {
                    'sync_latency_us': 9_000.0,
                    'phase': 'computing',
                    'run_us': 299_999.5,
                }
                self.assertEqual(text, self.cell(title, **changes))

    def test_unknown_values_are_a_dash(self) -> None:
        for title, key in (
            ('received %', 'received'),
            ('CPU %', 'run_us'),
            ('latency ms', 'sync_latency_us'),
            ('phase', 'phase'),
            ('slice ms', 'slice_us'),
            ('I/O', 'io_events'),
            ('period ms', 'period_us'),
            ('quota ms', 'quota_us'),
            ('shares', 'shares'),
            ('pins', 'vcpu_pins'),
        ):
            with self.subTest(title):
                self.assertEqual('-', self.cell(title, 1, **{key: None}))

    def test_unlimited_quota_is_none(self) -> None:
        self.assertEqual('none', self.cell('quota ms', 1, quota_us=-1))
        self.assertEqual('2.5', self.cell('quota ms', 1, quota_us=2500))

    def test_cluster_of_several_hosts_has_no_pins(self) -> None:
        first, second = rows(documents.document(documents.vm('a')))[1], None
        second = rows(documents.document(documents.vm('b'), host='c2'))[1]
        assert isinstance(first, Server)
        assert isinstance(second, Server)
        cluster = Cluster(documents.WEATHER, (first, second))
        cells = {
            column.title: column.cell(cluster).text
            for column in columns.COLUMNS
        }
        self.assertEqual('', cells['pins'])
        self.assertEqual('2 hosts', cells['host'])
