# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The parts of the screen: table of servers, pages of text over it."""

from collections.abc import Sequence
from typing import ClassVar

from rich import text
from textual import app, binding, containers, coordinate, screen, widgets

from nova_vhpc.top import cells, columns, report
from nova_vhpc.top.model import Cluster, Server

HELP = text.Text.from_markup(
    """\
[bold]Keys[/bold]
  q, Ctrl+C   quit
  up, down    move; also k and j, Page Up and Page Down
  Home, End   first and last row; also g and G
  s           sort by the next of: name, state, received, cpu, latency,
              io, writes
  r           reverse the order
  /           show only what has all the words typed; Enter keeps it so
  Esc         show all again
  Enter       fold the cluster, or unfold it
  c           fold all clusters, or unfold them
  i           all about the hosts, and all that is wrong
  p, space    freeze what is shown, or follow again
  ?           this page; any of q, ? and Esc leaves it

[bold]State[/bold]
  [green]ok[/green]          the agent manages it
  [dim]wait[/dim]        nothing is decided yet
  [yellow]spins[/yellow]       its vCPUs never sleep, and are held up
  [yellow]alone[/yellow]       the agent leaves it alone; the note says why
  [yellow]short[/yellow]       it gets less CPU time than stock Linux gives
  [bold red]FAIL[/bold red]        it cannot be written to; the note says why

[bold]Columns[/bold] (what does not fit is left out, and stands below)
  received %  CPU time received, of what stock Linux would give; measured
              while gang windows are played; of a cluster, that of the
              server that received least
  CPU %       CPU time of all vCPUs, of one CPU
  phase       io or computing
  latency ms  mean time in a control period that a vCPU which wants to run,
              or waits for a sibling, is held up; of a cluster, the longest
  slice ms    time slice that was decided
  window ms   length of its gang window
  pins        host CPUs of its vCPUs
  vCPUs       number of vCPUs
  I/O         I/O events per 100 ms
  writes      writes of the agent to it
  shares, period ms, quota ms
              its cputune in force
  note        why it is so
"""
)


Row = Server | Cluster


class ServerTable(widgets.DataTable[text.Text]):
    """Shows clusters, each with its servers below it.

    Cursor and scrolling stay at the same row when values change.
    """

    BINDINGS: ClassVar[list[binding.BindingType]] = [
        binding.Binding('j', 'cursor_down', show=False),
        binding.Binding('k', 'cursor_up', show=False),
        binding.Binding('g,home', 'scroll_top', show=False),
        binding.Binding('G,end', 'scroll_bottom', show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id, cursor_type='row', cell_padding=1)
        self._clusters: Sequence[Cluster] = ()
        self._hosts = False
        self._folded: set[str | None] = set()
        self._rows: dict[str, Row] = {}
        self._heights: list[int] = []
        self._columns: list[tuple[columns.Column, int]] = []

    @property
    def chosen(self) -> Row | None:
        """The row of the cursor; None without rows."""
        rows = list(self._rows.values())
        return rows[self.cursor_row] if self.cursor_row < len(rows) else None

    @property
    def is_empty(self) -> bool:
        """Whether there is no cluster to show."""
        return not self._clusters

    def show(self, clusters: Sequence[Cluster], hosts: bool) -> None:
        """Show clusters, sorted and filtered.

        :param hosts: whether there is a column for hosts.
        """
        self._clusters, self._hosts = clusters, hosts
        if not self.size.width:
            # Without a size, no column would fit; on_resize shows them.
            return
        rows: dict[str, Row] = {}
        for cluster in clusters:
            rows[f'cluster {cluster.uuid}'] = cluster
            if cluster.uuid not in self._folded:
                for server in cluster.servers:
                    rows[f'{server.host} {server.uuid}'] = server
        shown = self._fold()
        heights = self._fit_notes(list(rows.values()), dict(shown))
        same = (list(rows), heights, shown) == (
            *(list(self._rows), self._heights, self._columns),
        )
        cursor = list(self._rows)[self.cursor_row :][:1]
        self._rows, self._heights, self._columns = rows, heights, shown
        if same:
            self._update_cells()
        else:
            self._rebuild(cursor[0] if cursor else '')

    def on_resize(self) -> None:
        """Choose other columns for another width."""
        self.show(self._clusters, self._hosts)

    def fold_cluster(self) -> None:
        """Fold the cluster of the cursor's row, or unfold it."""
        row = self.chosen
        if row is None:
            return
        uuid = row.uuid if isinstance(row, Cluster) else row.cluster
        self._folded ^= {uuid}
        if isinstance(row, Server):
            self.move_cursor(row=list(self._rows).index(f'cluster {uuid}'))
        self.show(self._clusters, self._hosts)

    def fold_all(self) -> None:
        """Fold all clusters; unfold them if all are folded."""
        uuids = {cluster.uuid for cluster in self._clusters}
        self._folded = set() if uuids <= self._folded else uuids
        self.show(self._clusters, self._hosts)

    def _fold(self) -> list[tuple[columns.Column, int]]:
        # As if all clusters were unfolded, so that columns stay in place.
        every: list[Row] = []
        for cluster in self._clusters:
            every += [cluster, *cluster.servers]
        width = self.scrollable_content_region.width - columns.GAP
        return columns.fold(every, max(1, width), self._hosts)

    def _fit_notes(
        self, rows: Sequence[Row], widths: dict[columns.Column, int]
    ) -> list[int]:
        """Return the height of each row: long notes take what lines are free,
        below the table's header, from the first row on."""
        free = self.size.height - 1 - len(rows)
        heights = []
        for row in rows:
            more = 0
            if columns.NOTE in widths and free > 0:
                note, width = columns.NOTE.cell(row), widths[columns.NOTE]
                more = len(cells.wrap(note.text, width, free + 1)) - 1
            heights.append(1 + more)
            free -= more
        return heights

    def _cells(self, row: Row, height: int) -> list[text.Text]:
        found = []
        for column, width in self._columns:
            cell = report.padded(column.cell(row), column, width, height)
            if isinstance(row, Cluster):
                cell.stylize(report.CLUSTER_STYLE)
            found.append(cell)
        return found

    def _update_cells(self) -> None:
        rows = zip(self._rows.values(), self._heights, strict=True)
        for number, (row, height) in enumerate(rows):
            for place, cell in enumerate(self._cells(row, height)):
                where = coordinate.Coordinate(number, place)
                if self.get_cell_at(where) != cell:
                    self.update_cell_at(where, cell)

    def _rebuild(self, cursor: str) -> None:
        top = self.scroll_y
        self.clear(columns=True)
        for column, width in self._columns:
            title = report.padded(cells.Cell(column.title), column, width)
            self.add_column(title, width=width)
        for (key, row), height in zip(
            self._rows.items(), self._heights, strict=True
        ):
            self.add_row(*self._cells(row, height), key=key, height=height)
        if cursor in self._rows:
            self.move_cursor(row=list(self._rows).index(cursor), scroll=False)
        self.scroll_to(y=top, animate=False)


class TextScreen(screen.ModalScreen[None]):
    """A page of text that scrolls.

    :param page: the text.
    """

    CSS = """
    TextScreen { align: center middle; }
    #page {
        width: 100%; max-width: 84; height: auto; max-height: 100%;
        padding: 0 1; background: $panel; border: round $primary;
    }
    #page > Static { width: 100%; height: auto; }
    """
    BINDINGS: ClassVar[list[binding.BindingType]] = [
        binding.Binding('q,escape,question_mark,h,i,enter', 'leave', 'Back'),
        binding.Binding('j', 'scroll(1)', show=False),
        binding.Binding('k', 'scroll(-1)', show=False),
    ]

    def __init__(self, page: text.Text) -> None:
        super().__init__()
        self._page = page

    def compose(self) -> app.ComposeResult:
        """Make the widgets."""
        with containers.VerticalScroll(id='page'):
            yield widgets.Static(self._page)

    def action_leave(self) -> None:
        """Go back to the table."""
        self.dismiss(None)

    def action_scroll(self, rows: int) -> None:
        """Scroll by some rows."""
        self.query_one('#page').scroll_relative(y=rows, animate=False)
