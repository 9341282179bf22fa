# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The screen of ``nova-vhpc-top``, in a terminal or as a picture."""

import asyncio
import functools
import os
import re
import signal
import threading
import time
from typing import ClassVar

from rich import text
from textual import app, binding, events, message, widgets

from nova_vhpc.agent import errors
from nova_vhpc.top import model, reader, report, sources, table
from nova_vhpc.top.cells import Cell

LINES_PER_PROBLEM = 8
"""Lines of the screen for each problem that is shown above the table."""

CELL_WIDTH = 12.2
"""Width of a character in the SVG of the library rich."""

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

END_S = 10.0
"""Time to leave in after a signal, in seconds."""

_FONT_FACE = re.compile(r'@font-face \{.*?\}\s*', re.DOTALL)
_TEXT = re.compile(
    r'x="(?P<x>[\d.]+)" (?P<y>y="[\d.]+") textLength="(?P<length>[\d.]+)"'
    r'(?P<rest>[^>]*>)(?P<blanks>(?:&#160;)+)'
)


class Polled(message.Message):
    """Agents were asked.

    :param answers: what they said; None if they did not.
    :param failure: why they did not.
    """

    def __init__(
        self, answers: sources.Answers | None, failure: str = ''
    ) -> None:
        super().__init__()
        self.answers = answers
        self.failure = failure


class TopApp(app.App[None]):
    """Shows what agents do, again and again.

    :param fetch: asks them; called in a thread, so that the screen never
        waits for it.
    :param answers: the first ones.
    :param interval_s: time between an answer and the next question, in
        seconds.
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
        fetch: sources.Fetch,
        answers: sources.Answers,
        interval_s: float = 1.0,
        chosen: model.Order = model.Order.NAME,
        words: str = '',
    ) -> None:
        super().__init__()
        self._snapshot = reader.snapshot(answers)
        self._fetch = fetch
        self._interval_s = interval_s
        self._stopped = threading.Event()
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
        yield table.ServerTable(id='servers')
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
        # A daemon: leaving must not wait for an agent that is silent.
        threading.Thread(target=self._poll, name='poller', daemon=True).start()

    def end(self, status: int) -> None:
        """Leave with an exit status. May be called by any thread."""
        if self._event_loop is not None:
            self._event_loop.call_soon_threadsafe(
                functools.partial(self.exit, return_code=status)
            )

    def on_unmount(self) -> None:
        """Stop asking."""
        self._stopped.set()

    def on_resize(self, event: events.Resize) -> None:
        """Show as many problems as the height allows."""
        self.call_after_refresh(self._draw)

    def on_polled(self, polled: Polled) -> None:
        """Show new answers, or say that what is shown is old, and why."""
        self._failure = polled.failure
        if polled.answers is not None:
            try:
                snapshot = reader.snapshot(polled.answers)
            except errors.UNREADABLE as error:
                self._failure = errors.unreadable(error)
            else:
                self._answered_s = time.monotonic()
                if self._frozen:
                    return
                self._snapshot = snapshot
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
        self.push_screen(table.TextScreen(table.HELP))

    def action_info(self) -> None:
        """Show every host, and all that is wrong."""
        shown = [*report.hosts(self._snapshot), *self._problems()]
        self.push_screen(table.TextScreen(_text(shown)))

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

    def _poll(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                found = Polled(self._fetch())
            except sources.SourceError as error:
                found = Polled(None, str(error))
            except Exception as error:
                # Of a library; without an answer the thread must go on.
                found = Polled(None, errors.one_line(error))
            if not self._stopped.is_set():
                self.post_message(found)

    @property
    def _table(self) -> table.ServerTable:
        return self.screen_stack[0].query_one(table.ServerTable)

    @property
    def _input(self) -> widgets.Input:
        return self.screen_stack[0].query_one(widgets.Input)

    def _close_filter(self) -> None:
        self._input.remove_class('shown')
        self._table.focus()

    def _problems(self) -> list[Cell]:
        found = report.problems(self._snapshot)
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
        head = report.head(self._snapshot)
        head.append(self._mode())
        self._set('head', head)
        self._set('problems', self._few(self._problems()))
        clusters = model.group(
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
            self._set('detail', report.detail(chosen))
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


def run(top: TopApp) -> int:
    """Run the screen until it is left, by a key or a signal.

    A signal leaves the terminal as it was before. Textual waits for ever if
    the terminal is gone, in its event loop, too; the process then ends all
    the same.

    :returns: exit status.
    """

    def end(number: int, frame: object) -> None:
        status = 128 + number
        watchdog = threading.Timer(END_S, os._exit, [status])
        watchdog.daemon = True
        watchdog.start()
        top.end(status)

    before = {number: signal.signal(number, end) for number in END_SIGNALS}
    try:
        top.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return top.return_code or 0


def picture(top: TopApp, size: tuple[int, int]) -> str:
    """Return a picture of the screen as SVG, without a terminal.

    :param size: columns and lines.
    """

    async def run() -> str:
        async with top.run_test(size=size) as pilot:
            await pilot.pause()
            return mend(top.export_screenshot(simplify=True))

    return asyncio.run(run())


def mend(svg: str) -> str:
    """Return the SVG so that every viewer shows it alike.

    Fonts from other sites are left out: documentation must not fetch them.
    Some viewers drop blanks at the start of a text, so the text starts after
    them instead.
    """
    svg = _FONT_FACE.sub('', svg).replace('Fira Code, monospace', 'monospace')
    lines = (_TEXT.sub(_start_later, line) for line in svg.splitlines())
    return '\n'.join(line.rstrip() for line in lines) + '\n'


def _start_later(match: re.Match[str]) -> str:
    width = match['blanks'].count(';') * CELL_WIDTH
    x = float(match['x']) + width
    length = float(match['length']) - width
    return (
        f'x="{x:g}" {match["y"]} textLength="{max(length, 0):g}"'
        f'{match["rest"]}'
    )


def _text(cells: list[Cell]) -> text.Text:
    return text.Text('\n').join(map(report.styled, cells))
