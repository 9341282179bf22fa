# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The columns, and which of them fit into a width."""

import dataclasses
from collections.abc import Callable, Sequence

from nova_vhpc.top import cells
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
    fit: Callable[[str, int], str] = cells.shorten

    def cell(self, one: Server | Cluster) -> Cell:
        """Return the cell of a server or cluster."""
        if isinstance(one, Cluster):
            return self.cluster(one)
        return self.server(one)


def _number(
    title: str,
    key: str,
    rank: int,
    show: Callable[[float | None], Cell] = cells.number,
    total: Callable[[list[float]], float] | None = None,
) -> Column:
    """Return the column of a numeric attribute of servers.

    :param show: makes the cell of a value.
    :param total: makes the value of a cluster of those of its servers;
        without it the cell of a cluster is empty.
    """

    def cluster(one: Cluster) -> Cell:
        if total is None:
            return Cell('')
        values = one.known(key)
        return show(total(values) if values else None)

    return Column(
        title, lambda one: show(getattr(one, key)), cluster, rank, right=True
    )


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
    Column('received %', cells.received, cells.received, 2, right=True),
    _number('CPU %', 'cpu', 3, cells.percent, sum),
    Column('phase', cells.phase, cells.phase, rank=7),
    _number('latency ms', 'latency_us', 5, cells.milliseconds, max),
    _number('slice ms', 'slice_us', 6, cells.milliseconds),
    _number('window ms', 'window_us', 10, cells.milliseconds),
    Column('pins', cells.pins, cells.pins, 5, most=20, fit=cells.fit_cpu_set),
    _number('vCPUs', 'vcpus', 9, total=sum),
    _number('I/O', 'io_events', 11, total=sum),
    _number('writes', 'writes', 12, total=sum),
    _number('shares', 'shares', 13),
    _number('period ms', 'period_us', 14, cells.milliseconds),
    _number('quota ms', 'quota_us', 15, cells.quota),
    Column(
        'workload',
        lambda server: Cell(server.workload),
        lambda cluster: Cell(''),
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
    widths = (cells.length(column.cell(row).text) for row in rows)
    return min(column.most, max(len(column.title), *widths, 0))


def _sum(shown: Sequence[Column], widths: dict[str, int]) -> int:
    return sum(widths[column.title] + GAP for column in shown) - GAP
