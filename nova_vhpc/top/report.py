# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Lines of text: those around the table, and all of ``--once``."""

from collections.abc import Iterable, Iterator, Sequence

from rich import text

from nova_vhpc.top import cells, columns
from nova_vhpc.top.cells import Cell
from nova_vhpc.top.model import Cluster, Host, Server, Snapshot, State

CLUSTER_STYLE = 'bold'

MOST_LINES = 9
"""Lines that a note may take in a row."""

MOST_NAMES = 6
"""Names that a line has before it only counts the others."""


def report(
    snapshot: Snapshot, clusters: Sequence[Cluster], width: int
) -> Iterator[text.Text]:
    """Yield all lines of a snapshot.

    :param clusters: its clusters, sorted and filtered.
    :param width: characters in a line of the table; sentences above and
        below are left to the terminal.
    """
    for cell in (*head(snapshot), *problems(snapshot)):
        yield styled(cell)
    yield text.Text()
    rows: list[Server | Cluster] = []
    for cluster in clusters:
        rows += [cluster, *cluster.servers]
    if not rows:
        yield text.Text('No servers.')
        return
    shown = columns.fold(rows, width, len(snapshot.hosts) > 1)
    yield from _row_lines(
        [(Cell(column.title), column, size) for column, size in shown], 'dim'
    )
    for row in rows:
        yield from _row_lines(
            [(column.cell(row), column, size) for column, size in shown],
            CLUSTER_STYLE if isinstance(row, Cluster) else '',
        )
    if columns.NOTE not in [column for column, _ in shown]:
        below = notes(clusters)
        if below:
            yield text.Text()
        yield from map(styled, below)


def padded(
    cell: Cell, column: columns.Column, width: int, height: int = 1
) -> text.Text:
    """Return a cell in exactly ``width`` characters.

    :param height: lines that a note may take.
    """
    if column is columns.NOTE:
        words = '\n'.join(cells.wrap(cell.text, width, height))
    else:
        words = cells.pad(column.fit(cell.text, width), width, column.right)
    return text.Text(words, cell.style)


def styled(cell: Cell) -> text.Text:
    """Return a line; text, because rich takes [...] in a str for markup."""
    return text.Text(cell.text, cell.style)


def _row_lines(
    parts: Sequence[tuple[Cell, columns.Column, int]], style: str
) -> Iterator[text.Text]:
    """Yield a row of the table: several lines if its note is long."""
    line = text.Text(style=style)
    more: list[text.Text] = []
    for number, (cell, column, width) in enumerate(parts):
        if number:
            line.append(' ' * columns.GAP)
        indent = line.cell_len
        first, *rest = padded(cell, column, width, MOST_LINES).split('\n')
        line.append_text(first)
        for part in rest:
            more.append(text.Text(' ' * indent, style).append_text(part))
    line.rstrip()
    yield from (line, *more)


def head(snapshot: Snapshot) -> list[Cell]:
    """Return the state of the hosts, in one or two lines."""
    hosts = snapshot.hosts
    if len(hosts) == 1 and not snapshot.missing:
        return [_title(hosts[0]), _parts(hosts[0])]
    found = [Cell(_count(len(hosts), 'host answers', 'hosts answer'), 'bold')]
    if snapshot.cluster is not None:
        found.insert(0, Cell(f'cluster {snapshot.cluster}', 'bold'))
    return found


def problems(snapshot: Snapshot) -> list[Cell]:
    """Return what is wrong or missing, a line each, the worst first."""
    many = len(snapshot.hosts) + len(snapshot.missing) > 1
    found = [
        Cell(f'{host} is missing: {_without(host, reason)}', 'bold red')
        for host, reason in sorted(snapshot.missing.items())
    ]
    for host in snapshot.hosts:
        if many and host.marks:
            marks = ', '.join(host.marks)
            found.append(Cell(f'{host.name}: {marks}', 'bold yellow'))
        found += [
            Cell(f'{host.name}: {text}' if many else text, 'yellow')
            for text in host.problems
        ]
    return found + [Cell(text, 'yellow') for text in snapshot.remarks]


def hosts(snapshot: Snapshot) -> list[Cell]:
    """Return two lines for each host."""
    return [
        line
        for host in snapshot.hosts
        for line in (_title(host), Cell(f'  {_parts(host).text}'))
    ]


def detail(one: Server | Cluster) -> list[Cell]:
    """Return all that is known of a server or a cluster."""
    if isinstance(one, Cluster):
        return list(_cluster_detail(one))
    return list(_server_detail(one))


def notes(clusters: Iterable[Cluster]) -> list[Cell]:
    """Return the notes of servers that are not well, equal ones together."""
    names: dict[tuple[State, str], list[str]] = {}
    for cluster in clusters:
        for server in cluster.servers:
            if server.state is not State.OK and server.note:
                key = server.state, server.note
                names.setdefault(key, []).append(server.name)
    return [
        Cell(f'{_names(found)}: {note}', cells.STATE_STYLES[state])
        for (state, note), found in names.items()
    ]


def _title(host: Host) -> Cell:
    tick = '-' if host.tick_us is None else f'{host.tick_us / 1000:.1f}'
    missed = f'missed {host.missed:,}'
    if host.missed:
        missed += f' of {host.ticks + host.missed:,}'
    words = [
        f'{host.name}: CPUs {host.cpus}',
        f'tick {tick} of {host.period_us / 1000:g} ms',
        missed,
        *host.marks,
    ]
    return Cell(', '.join(words), 'bold yellow' if host.marks else 'bold')


def _parts(host: Host) -> Cell:
    return Cell(
        f'uplinks {host.uplinks}; gang windows {host.windows}; message bus '
        f'{host.bus}'
    )


def _without(host: str, reason: str) -> str:
    """Return a reason without the host's name, which stands before it."""
    return reason.removeprefix(f'host {host}: ')


def _cluster_detail(cluster: Cluster) -> Iterator[Cell]:
    label = cells.cluster_label(cluster.uuid)
    uuid = cluster.uuid
    same = uuid is None or uuid == label
    yield Cell(label if same else f'{label}: cluster {uuid}', 'bold')
    where = f': {_names(cluster.hosts)}' if len(cluster.hosts) > 1 else ''
    yield Cell(f'{cells.size(cluster)}{where}')
    slow = [one for one in cluster.servers if one.received is not None]
    if slow:
        least = min(slow, key=lambda one: one.received or 0.0)
        cell = cells.received(least)
        yield Cell(
            f'{least.name} receives least: {cell.text}% of the CPU time that '
            'stock Linux would give',
            cell.style,
        )
    yield from notes([cluster])


def _server_detail(server: Server) -> Iterator[Cell]:
    cluster = server.cluster or 'none'
    yield Cell(
        f'{server.name} ({server.domain}, {server.uuid}) on {server.host}',
        'bold',
    )
    if server.note:
        yield Cell(server.note, cells.STATE_STYLES[server.state])
    yield Cell(
        f'cluster {cluster}, {server.workload}, {server.vcpus} vCPUs on CPUs '
        f'{cells.pins_by_vcpu(server.pins)}'
    )
    yield Cell(
        f'slice {cells.milliseconds(server.slice_us).text} ms, period '
        f'{cells.milliseconds(server.period_us).text} ms, quota '
        f'{cells.quota(server.quota_us).text}, shares '
        f'{cells.number(server.shares).text}, window '
        f'{cells.milliseconds(server.window_us).text} ms'
    )
    yield Cell(
        f'{_received(server)}, CPU {cells.percent(server.cpu).text}%, latency '
        f'{cells.milliseconds(server.latency_us).text} ms, I/O '
        f'{cells.number(server.io_events).text}, writes {server.writes}, '
        f'moves {server.moves}'
    )


def _received(server: Server) -> str:
    if server.received is None:
        return 'received unknown (measured while gang windows are played)'
    return f'received {cells.received(server).text}%'


def _names(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    if len(found) <= MOST_NAMES:
        return ', '.join(found)
    rest = len(found) - MOST_NAMES
    return f'{", ".join(found[:MOST_NAMES])} and {rest} more'


def _count(number: int, one: str, more: str) -> str:
    return f'{number} {one if number == 1 else more}'
