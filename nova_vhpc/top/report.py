# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-top --once``: the table as plain lines."""

from collections.abc import Iterator, Sequence

from rich import text

from nova_vhpc.top import columns, lines, text_width
from nova_vhpc.top.cells import Cell
from nova_vhpc.top.model import Cluster, Server, Snapshot

CLUSTER_STYLE = 'bold'


def report(
    snapshot: Snapshot, clusters: Sequence[Cluster], width: int
) -> Iterator[text.Text]:
    """Yield the lines of a snapshot.

    :param clusters: its clusters, sorted and filtered.
    :param width: characters in a line of the table; sentences above and
        below are left to the terminal.
    """
    for cell in (*lines.head(snapshot), *lines.problems(snapshot)):
        yield styled(cell)
    yield text.Text()
    rows: list[Server | Cluster] = []
    for cluster in clusters:
        rows += [cluster, *cluster.servers]
    if not rows:
        yield text.Text('No servers.')
        return
    shown = columns.fold(rows, width, len(snapshot.hosts) > 1)
    yield _joined(
        [(title(column), column, size) for column, size in shown], 'dim'
    )
    for row in rows:
        yield _joined(
            [(column.cell(row), column, size) for column, size in shown],
            CLUSTER_STYLE if isinstance(row, Cluster) else '',
        )
    if columns.NOTE not in [column for column, _ in shown]:
        notes = lines.notes(clusters)
        if notes:
            yield text.Text()
        yield from map(styled, notes)


def title(column: columns.Column) -> Cell:
    """Return the head of a column."""
    return Cell(column.title)


def padded(cell: Cell, column: columns.Column, width: int) -> text.Text:
    """Return a cell in exactly ``width`` characters."""
    words = column.fit(cell.text, width)
    return text.Text(text_width.pad(words, width, column.right), cell.style)


def styled(cell: Cell) -> text.Text:
    """Return a line; text, because rich takes [...] in a str for markup."""
    return text.Text(cell.text, cell.style)


def _joined(
    parts: Sequence[tuple[Cell, columns.Column, int]], style: str
) -> text.Text:
    line = text.Text(style=style)
    for number, (cell, column, width) in enumerate(parts):
        if number:
            line.append(' ' * columns.GAP)
        line.append_text(padded(cell, column, width))
    line.rstrip()
    return line
