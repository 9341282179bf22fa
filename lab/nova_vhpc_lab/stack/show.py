# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Output of the demo: headings, progress lines and tables."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import rich.box
import rich.console
import rich.table

_WIDTH = 132
_PROGRESS_EVERY_S = 15.0
"""Seconds between two progress lines if the output is not a terminal."""


class Show:
    """Prints text and tables, on a terminal with a live progress line."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self.console = rich.console.Console(
            width=None if terminal else _WIDTH, highlight=False
        )
        self.started = time.monotonic()
        self.step_name = ''

    def heading(self, text: str) -> None:
        """Begin a step."""
        self.step_name = text
        self.console.print()
        self.console.rule(f'[bold]{text}', align='left')

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(f'  {text}', markup=False)

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a progress line during a ``with`` block."""
        begun = time.monotonic()
        with self._live(what, begun):
            yield
        self.say(f'{what}: done in {time.monotonic() - begun:.0f} s')

    @contextlib.contextmanager
    def _live(self, what: str, begun: float) -> Iterator[None]:
        stop = threading.Event()

        def elapsed() -> str:
            return f'{what}... {time.monotonic() - begun:.0f} s'

        def update() -> None:
            if not self.console.is_terminal:
                while not stop.wait(_PROGRESS_EVERY_S):
                    self.say(elapsed())
                return
            with self.console.status(elapsed()) as status:
                while not stop.wait(0.5):
                    status.update(elapsed())

        thread = threading.Thread(target=update, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
    ) -> None:
        """Print a table; columns of numbers are aligned to the right."""
        rows = [[_text(cell) for cell in row] for row in rows]
        table = rich.table.Table(
            title=title,
            title_justify='left',
            title_style='bold',
            box=rich.box.SIMPLE_HEAD,
            pad_edge=False,
        )
        for index, name in enumerate(columns):
            numeric = rows and all(
                row[index].replace('.', '').lstrip('-').isdigit()
                or row[index] in ('', '-')
                for row in rows
            )
            table.add_column(
                name, justify='right' if numeric else 'left', overflow='fold'
            )
        for row in rows:
            table.add_row(*row)
        self.console.print(table)


def _text(cell: Any) -> str:
    if cell is None:
        return '-'
    if isinstance(cell, float):
        return f'{cell:.1f}'
    return str(cell).replace('[', r'\[')


def find_leftovers(tag: str, root: str) -> list[str]:
    """Return the processes, links, control groups and namespaces of a stack.

    :param tag: tag of the stack.
    :param root: directory of the stack.
    """
    leftovers = []
    for entry in os.listdir('/proc'):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            with open(f'/proc/{entry}/cmdline', 'rb') as source:
                command = source.read().replace(b'\0', b' ').decode()
            if f'{root}/' in command:
                leftovers.append(f'process {entry}: {command[:80]}')
    leftovers += [
        f'link {name}' for name in os.listdir('/sys/class/net') if tag in name
    ]
    for folder, names, _ in os.walk('/sys/fs/cgroup'):
        leftovers += [
            f'control group {folder}/{name}'
            for name in names
            if f'-{tag}-' in name
        ]
    with contextlib.suppress(FileNotFoundError):
        leftovers += [
            f'network namespace {name}'
            for name in os.listdir('/run/netns')
            if tag in name
        ]
    return leftovers
