# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The columns, and which of them fit into a width. Pure."""

import dataclasses
from collections.abc import Callable, Sequence

from nova_vhpc.top import cells, cpu_lists, text_width
from nova_vhpc.top.cells import Cell
from nova_vhpc.top.model import Cluster, Server

GAP = 2
"""Characters between two columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column.

    :ivar title: its name in the header.
    :ivar server: makes the cell of a server.
    :ivar cluster: makes the cell of a cluster.
    :ivar rank: columns of a higher rank are left out first.
    :ivar right: whether cells are aligned to the right.
    :ivar least: width at which it is left out rather than made narrower.
    :ivar most: width that it never exceeds.
    :ivar fit: makes a text as short as a width.
    """

    title: str
    server: Callable[[Server], Cell]
    cluster: Callable[[Cluster], Cell]
    rank: int
    right: bool = False
    least: int = 0
    most: int = 24
    fit: Callable[[str, int], str] = text_width.shorten

    def cell(self, one: Server | Cluster) -> Cell:
        """Return the cell of a server or cluster."""
        if isinstance(one, Cluster):
            return self.cluster(one)
        return self.server(one)


def _total(key: str) -> Callable[[Cluster], Cell]:
    """Return what makes the cell with the sum over a cluster's servers."""

    def cell(cluster: Cluster) -> Cell:
        values = cluster.known(key)
        return cells.number(sum(values) if values else None)

    return cell


def _total_cpu(cluster: Cluster) -> Cell:
    values = cluster.known('cpu')
    return cells.percent(sum(values) if values else None)


def _empty(cluster: Cluster) -> Cell:
    return Cell('')


def _hosts(cluster: Cluster) -> Cell:
    hosts = cluster.hosts
    return Cell(hosts[0] if len(hosts) == 1 else f'{len(hosts)} hosts')


NAME = Column(
    'server',
    lambda server: Cell(f'  {server.name}'),
    lambda cluster: Cell(
        f'{cells.cluster_label(cluster.uuid)} ({len(cluster.servers)})'
    ),
    rank=0,
    least=12,
    most=28,
)
HOST = Column('host', lambda server: Cell(server.host), _hosts, 4, most=16)
NOTE = Column(
    'note',
    lambda server: Cell(server.note),
    lambda cluster: Cell(cells.size(cluster)),
    rank=8,
    least=28,
    most=1000,
)

COLUMNS = (
    NAME,
    HOST,
    Column('state', cells.state, cells.state, rank=1),
    Column('recv %', cells.received, cells.received, rank=2, right=True),
    Column(
        'CPU %',
        lambda server: cells.percent(server.cpu),
        _total_cpu,
        rank=3,
        right=True,
    ),
    Column('phase', cells.phase, cells.phase, rank=7),
    Column(
        'lat us',
        lambda server: cells.number(server.latency_us),
        lambda cluster: cells.number(
            max(cluster.known('latency_us'), default=None)
        ),
        rank=5,
        right=True,
    ),
    Column(
        'slice ms',
        lambda server: cells.milliseconds(server.slice_us),
        _empty,
        rank=6,
        right=True,
    ),
    Column(
        'window ms',
        lambda server: cells.milliseconds(server.window_us),
        _empty,
        rank=10,
        right=True,
    ),
    Column('pins', cells.pins, cells.pins, 5, most=20, fit=cpu_lists.fit),
    Column(
        'vCPUs',
        lambda server: cells.number(server.vcpus),
        _total('vcpus'),
        rank=9,
        right=True,
    ),
    Column(
        'I/O',
        lambda server: cells.number(server.io_events),
        _total('io_events'),
        rank=11,
        right=True,
    ),
    Column(
        'writes',
        lambda server: cells.number(server.writes),
        _total('writes'),
        rank=12,
        right=True,
    ),
    Column(
        'shares',
        lambda server: cells.number(server.shares),
        _empty,
        rank=13,
        right=True,
    ),
    Column(
        'period ms',
        lambda server: cells.milliseconds(server.period_us),
        _empty,
        rank=14,
        right=True,
    ),
    Column(
        'quota ms',
        lambda server: cells.quota(server.quota_us),
        _empty,
        rank=15,
        right=True,
    ),
    Column(
        'workload',
        lambda server: Cell(server.workload),
        _empty,
        rank=16,
    ),
    NOTE,
)


def fold(
    rows: Sequence[Server | Cluster], width: int, hosts: bool
) -> list[tuple[Column, int]]:
    """Return the columns that fit into a width, and their own widths.

    Columns of the highest rank are left out first. What is free then goes to
    the note.

    :param rows: what is shown; its texts decide how wide columns are.
    :param width: characters in a line, from 1.
    :param hosts: whether there is a column for hosts.
    """
    shown = [column for column in COLUMNS if hosts or column is not HOST]
    wanted = {column.title: _wanted(column, rows) for column in shown}
    # What a column needs to be there at all.
    needs = {
        column.title: min(column.least or column.most, wanted[column.title])
        for column in shown
    }
    while len(shown) > 1 and _sum(shown, needs) > width:
        shown.remove(max(shown, key=lambda column: column.rank))
    free = width - _sum(shown, needs)
    widths = {}
    for column in sorted(shown, key=lambda column: column.rank):
        more = min(free, wanted[column.title] - needs[column.title])
        widths[column.title] = needs[column.title] + max(0, more)
        free -= max(0, more)
    if len(shown) == 1:
        widths[NAME.title] = max(1, min(widths[NAME.title], width))
    return [(column, widths[column.title]) for column in shown]


def _wanted(column: Column, rows: Sequence[Server | Cluster]) -> int:
    widths = (text_width.length(column.cell(row).text) for row in rows)
    return min(column.most, max(len(column.title), *widths, 0))


def _sum(shown: Sequence[Column], widths: dict[str, int]) -> int:
    return sum(widths[column.title] + GAP for column in shown) - GAP
