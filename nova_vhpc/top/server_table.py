# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The table of clusters and servers on the screen."""

from collections.abc import Sequence
from typing import ClassVar

from rich import text
from textual import binding, coordinate, widgets

from nova_vhpc.top import columns, report
from nova_vhpc.top.model import Cluster, Server

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
        shown = self._fold(rows)
        same = list(rows) == list(self._rows) and shown == self._columns
        cursor = list(self._rows)[self.cursor_row :][:1]
        self._rows, self._columns = rows, shown
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

    def _fold(self, rows: dict[str, Row]) -> list[tuple[columns.Column, int]]:
        # As if all clusters were unfolded, so that columns stay in place.
        every: list[Row] = []
        for cluster in self._clusters:
            every += [cluster, *cluster.servers]
        width = self.scrollable_content_region.width - columns.GAP
        return columns.fold(every, max(1, width), self._hosts)

    def _cells(self, row: Row) -> list[text.Text]:
        found = []
        for column, width in self._columns:
            cell = report.padded(column.cell(row), column, width)
            if isinstance(row, Cluster):
                cell.stylize(report.CLUSTER_STYLE)
            found.append(cell)
        return found

    def _update_cells(self) -> None:
        for number, row in enumerate(self._rows.values()):
            for place, cell in enumerate(self._cells(row)):
                where = coordinate.Coordinate(number, place)
                if self.get_cell_at(where) != cell:
                    self.update_cell_at(where, cell)

    def _rebuild(self, cursor: str) -> None:
        top = self.scroll_y
        self.clear(columns=True)
        for column, width in self._columns:
            title = report.padded(report.title(column), column, width)
            self.add_column(title, width=width)
        for key, row in self._rows.items():
            self.add_row(*self._cells(row), key=key)
        if cursor in self._rows:
            self.move_cursor(row=list(self._rows).index(cursor), scroll=False)
        self.scroll_to(y=top, animate=False)
