# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The screen of ``nova-vhpc-top``."""

import asyncio
import functools
import time
from typing import ClassVar

from rich import text
from textual import app, binding, events, widgets

from nova_vhpc.agent import errors
from nova_vhpc.top import (
    help_screen,
    lines,
    order,
    reader,
    report,
    server_table,
)
from nova_vhpc.top.cells import Cell
from nova_vhpc.top.model import Snapshot
from nova_vhpc.top.poller import Failed, Fetched, Poller
from nova_vhpc.top.sources import Answers, Source

LINES_PER_PROBLEM = 8
"""Lines of the screen for each problem that is shown above the table."""


class TopApp(app.App[None]):
    """Shows what agents do, again and again.

    :param source: gets the agents' answers.
    :param answers: the first ones.
    :param interval_s: time between two updates, in seconds.
    :param chosen: what clusters and servers are sorted by.
    :param words: only servers with all these words are shown.
    :raises Exception: one of :data:`.errors.UNREADABLE`, if the first answers
        cannot be read.
    """

    TITLE = 'nova-vhpc-top'
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #servers { height: 1fr; }
    #head, #problems, #detail { height: auto; padding: 0 1; }
    #problems { text-wrap: nowrap; text-overflow: ellipsis; }
    #detail { max-height: 30%; border-top: solid $primary; }
    #filter { display: none; }
    #filter.shown { display: block; }
    """
    BINDINGS: ClassVar[list[binding.BindingType]] = [
        binding.Binding('q', 'quit', 'Quit'),
        binding.Binding('ctrl+c', 'quit', show=False, priority=True),
        binding.Binding('question_mark,h', 'help', 'Help', key_display='?'),
        binding.Binding('s', 'sort', 'Sort'),
        binding.Binding('r', 'reverse', 'Reverse'),
        binding.Binding('slash', 'filter', 'Filter', key_display='/'),
        binding.Binding('escape', 'clear_filter', show=False),
        binding.Binding('c', 'fold_all', 'Clusters'),
        binding.Binding('i', 'info', 'Hosts'),
        binding.Binding('p,space', 'freeze', 'Freeze'),
    ]

    def __init__(
        self,
        source: Source,
        answers: Answers,
        interval_s: float = 1.0,
        chosen: order.Order = order.Order.NAME,
        words: str = '',
    ) -> None:
        super().__init__()
        self._snapshot: Snapshot = reader.snapshot(answers)
        self._poller = Poller(self, source, interval_s)
        self._order = chosen
        self._backwards = False
        self._words = words
        self._frozen = False
        self._failure = ''
        self._answered_s = time.monotonic()
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def compose(self) -> app.ComposeResult:
        """Make the widgets."""
        yield widgets.Static(id='head')
        yield widgets.Static(id='problems')
        yield server_table.ServerTable(id='servers')
        yield widgets.Static(id='detail')
        yield widgets.Input(
            self._words,
            placeholder='name, cluster, host, state or note; Esc shows all',
            id='filter',
            compact=True,
        )
        yield widgets.Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Show the first answers, and start asking for more."""
        self._event_loop = asyncio.get_running_loop()
        self._table.focus()
        self._draw()
        self._poller.start()

    def end(self, status: int) -> None:
        """Leave with an exit status. May be called by any thread."""
        if self._event_loop is not None:
            self._event_loop.call_soon_threadsafe(
                functools.partial(self.exit, return_code=status)
            )

    def on_unmount(self) -> None:
        """Stop asking."""
        self._poller.stop()

    def on_resize(self, event: events.Resize) -> None:
        """Show as many problems as the height allows."""
        self.call_after_refresh(self._draw)

    def on_fetched(self, message: Fetched) -> None:
        """Show new answers."""
        try:
            snapshot = reader.snapshot(message.answers)
        except errors.UNREADABLE as error:
            self.on_failed(Failed(errors.unreadable(error)))
            return
        self._failure = ''
        self._answered_s = time.monotonic()
        if not self._frozen:
            self._snapshot = snapshot
            self._draw()

    def on_failed(self, message: Failed) -> None:
        """Say that what is shown is old, and why."""
        self._failure = message.reason
        self._draw()

    def on_data_table_row_highlighted(
        self, event: widgets.DataTable.RowHighlighted
    ) -> None:
        """Show all that is known of the chosen row."""
        self._draw_detail()

    def on_data_table_row_selected(
        self, event: widgets.DataTable.RowSelected
    ) -> None:
        """Fold a cluster, or unfold it."""
        if self._has_screen:
            self._table.fold_cluster()
            self._draw_detail()

    def on_input_changed(self, event: widgets.Input.Changed) -> None:
        """Filter while the words are typed."""
        self._words = event.value
        self._draw()

    def on_input_submitted(self, event: widgets.Input.Submitted) -> None:
        """Go back to the table, with the filter on."""
        self._close_filter()

    def action_help(self) -> None:
        """Show keys and columns."""
        self.push_screen(help_screen.TextScreen(help_screen.HELP))

    def action_info(self) -> None:
        """Show every host, and all that is wrong."""
        shown = [*lines.hosts(self._snapshot), *self._problems()]
        self.push_screen(help_screen.TextScreen(_text(shown)))

    def action_sort(self) -> None:
        """Sort by the next value."""
        self._order = self._order.next()
        self._draw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._backwards = not self._backwards
        self._draw()

    def action_filter(self) -> None:
        """Open the line for the filter."""
        self._input.add_class('shown')
        self._input.focus()

    def action_clear_filter(self) -> None:
        """Show all servers again."""
        self._input.value = ''
        self._close_filter()

    def action_fold_all(self) -> None:
        """Show clusters only, or their servers again."""
        self._table.fold_all()
        self._draw_detail()

    def action_freeze(self) -> None:
        """Keep what is shown, or follow again."""
        self._frozen = not self._frozen
        self._draw()

    @property
    def _table(self) -> server_table.ServerTable:
        return self.screen_stack[0].query_one(server_table.ServerTable)

    @property
    def _input(self) -> widgets.Input:
        return self.screen_stack[0].query_one(widgets.Input)

    def _close_filter(self) -> None:
        self._input.remove_class('shown')
        self._table.focus()

    def _problems(self) -> list[Cell]:
        found = lines.problems(self._snapshot)
        if self._failure:
            age_s = time.monotonic() - self._answered_s
            words = f'No answer for {age_s:.0f} s: {self._failure}'
            found.insert(0, Cell(words, 'bold red'))
        return found

    def _few(self, problems: list[Cell]) -> list[Cell]:
        """Return as many problems as leave room for the table."""
        most = max(1, self.size.height // LINES_PER_PROBLEM)
        if len(problems) <= most:
            return problems
        more = len(problems) - most + 1
        return [*problems[: most - 1], Cell(f'{more} more: press i', 'yellow')]

    @property
    def _has_screen(self) -> bool:
        """Whether there is a screen; messages come after its end, too."""
        return self.is_running and bool(self.screen_stack)

    def _draw(self) -> None:
        """Draw all again."""
        if not self._has_screen:
            return
        head = lines.head(self._snapshot)
        head.append(self._mode())
        self._set('head', head)
        self._set('problems', self._few(self._problems()))
        clusters = order.clusters(
            self._snapshot.servers, self._order, self._backwards, self._words
        )
        self._table.show(clusters, len(self._snapshot.hosts) > 1)
        self._draw_detail()

    def _mode(self) -> Cell:
        """Return what the keys have changed, in words."""
        words = [f'sorted by {self._order.value}']
        if self._backwards:
            words[0] += ', backwards'
        if self._words.strip():
            words.append(f'only what has: {self._words.strip()}')
        if self._frozen:
            words.append('FROZEN, p follows again')
        plain = not self._frozen and not self._words.strip()
        return Cell('; '.join(words), 'dim' if plain else 'bold yellow')

    def _draw_detail(self) -> None:
        if not self._has_screen:
            return
        chosen = self._table.chosen
        if chosen is not None:
            self._set('detail', lines.detail(chosen))
        elif not self._table.is_empty:
            # It has no size yet, and so no rows.
            self._set('detail', [])
        elif self._words.strip():
            self._set('detail', [Cell('No server has these words.')])
        else:
            self._set('detail', [Cell('No servers.')])

    def _set(self, name: str, cells: list[Cell]) -> None:
        widget = self.screen_stack[0].query_one(f'#{name}', widgets.Static)
        widget.update(_text(cells))
        widget.display = bool(cells)


def _text(cells: list[Cell]) -> text.Text:
    return text.Text('\n').join(map(report.styled, cells))
