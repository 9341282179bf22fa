# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pages of text over the table: help, and all about the hosts."""

from typing import ClassVar

from rich import text
from textual import app, binding, containers, screen, widgets

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
  [yellow]alone[/yellow]       the agent leaves it alone; the note says why
  [yellow]short[/yellow]       it gets less CPU time than stock Linux gives
  [bold red]FAIL[/bold red]        it cannot be written to; the note says why

[bold]Columns[/bold] (what does not fit is left out, and stands below)
  recv %      CPU time received, of what stock Linux would give; of a
              cluster, that of the server that received least
  CPU %       CPU time of all vCPUs, of one CPU
  phase       io or computing
  lat us      synchronisation latency in a control period; the longest
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
