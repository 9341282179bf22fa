# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A replay as a picture: what happened, what was foreseen, what was done."""

import importlib
import pathlib
from typing import Any

from nova_vhpc.bench import outputs, replay_run

SECONDS = replay_run.PERIOD_US / 1e6

EVENTS = '#4c78a8'
PREDICTED = '#e45756'
THRESHOLD = '#222222'
IO = '#f58518'
COMPUTING = '#d8dee4'
WRONG = '#8c1c3f'
RIGHT = '#e6f2e6'

MOST_VMS = 8
"""VMs with a panel of their own; more would not be legible."""


class PlotError(Exception):
    """The picture cannot be made; the text says what to do."""


def check(path: pathlib.Path) -> None:
    """Complain of what would be in the way of :func:`plot`.

    :raises PlotError: without Matplotlib, or for another file type.
    """
    if path.suffix.lower() not in ('.svg', '.png'):
        raise PlotError(f'--plot {path}: the name must end in .svg or .png')
    try:
        importlib.import_module('matplotlib.figure')
    except ImportError:
        raise PlotError(
            '--plot needs Matplotlib, which is not installed; install it '
            "with: pip install 'nova-vhpc[plot]'"
        ) from None


def plot(
    trace: replay_run.Trace,
    replays: dict[str, replay_run.Replay],
    shown: str,
    predictor: str,
    path: pathlib.Path,
) -> None:
    """Draw a timeline into an SVG or PNG file.

    :param replays: of the same trace, by leave rule.
    :param shown: the rule whose phases shade the panels.
    :param path: one that :func:`check` has nothing against.
    :raises OutputError: if it cannot be written all the same.
    """
    from matplotlib import figure, layout_engine, lines, patches

    names = trace.vms[:MOST_VMS]
    strips = len(replays)
    ratios = [0.34] * strips + [1.0, 0.13] * len(names)
    height = 1.3 + 0.42 * strips + 1.45 * len(names)
    canvas = figure.Figure(
        figsize=(15, height),
        layout=layout_engine.ConstrainedLayoutEngine(h_pad=0.02, hspace=0.0),
    )
    axes: Any = canvas.subplots(
        len(ratios), 1, sharex=True, gridspec_kw={'height_ratios': ratios}
    )
    ends = len(trace.rows) * SECONDS
    for axis, (rule, replay) in zip(axes, replays.items(), strict=False):
        _phase_strip(axis, rule, replay, rule == shown)
    for index, name in enumerate(names):
        line = replays[shown].vms[name]
        _events_panel(axes[strips + 2 * index], name, line, replays[shown])
        _hits_strip(axes[strips + 2 * index + 1], line)
    axes[-1].set_xlabel('time (s)')
    axes[-1].set_xlim(0, ends)
    axes[-1].tick_params(axis='x', bottom=True, labelbottom=True)
    canvas.suptitle(
        _title(trace, replays, predictor, len(names)),
        x=0.01,
        ha='left',
        fontsize=12,
    )
    canvas.legend(
        handles=[
            patches.Patch(color=IO, label='in the I/O pool'),
            patches.Patch(color=COMPUTING, label='in the computing pool'),
            patches.Patch(color=EVENTS, alpha=0.75, label='measured'),
            lines.Line2D([], [], color=PREDICTED, label='predicted'),
            lines.Line2D([], [], color=THRESHOLD, ls='--', label='threshold'),
            patches.Patch(color=WRONG, label='state predicted wrong'),
        ],
        loc='outside upper right',
        ncols=6,
        frameon=False,
        fontsize=9,
    )
    try:
        canvas.savefig(path, dpi=110)
    except OSError as error:
        raise outputs.OutputError(path, error.strerror or error) from None


def _title(
    trace: replay_run.Trace,
    replays: dict[str, replay_run.Replay],
    predictor: str,
    drawn: int,
) -> str:
    count = len(trace.vms)
    vms = _count(count, 'VM')
    if drawn < count:
        vms = f'{drawn} of {vms}'
    return (
        f'{trace.name}: {vms}, {len(trace.rows) * SECONDS:.0f} s, '
        f'predictor {predictor}'
    )


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'


def _runs(values: tuple[Any, ...]) -> list[tuple[int, int, Any]]:
    """Start, end and value of each run of equal values."""
    runs: list[tuple[int, int, Any]] = []
    start = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[start]:
            runs.append((start, index, values[start]))
            start = index
    return runs


def _bare(axis: Any) -> None:
    """No frame and no ticks: a strip of colour."""
    axis.set_yticks([])
    axis.tick_params(axis='x', bottom=False, labelbottom=False)
    for side in ('top', 'right', 'left', 'bottom'):
        axis.spines[side].set_visible(False)


def _phase_strip(
    axis: Any, rule: str, replay: replay_run.Replay, shown: bool
) -> None:
    """Which pool the cluster was in, and each move between them."""
    _bare(axis)
    axis.set_ylim(0, 1)
    for start, end, phase in _runs(replay.phases):
        axis.axvspan(
            start * SECONDS,
            end * SECONDS,
            0.12,
            0.88,
            color=IO if phase == 'io' else COMPUTING,
            lw=0,
        )
    for move in replay.moves:
        axis.axvline(move.period * SECONDS, color='#333333', lw=0.7)
    fraction = sum(phase == 'io' for phase in replay.phases) / max(
        1, len(replay.phases)
    )
    axis.set_ylabel(
        f'leave rule: {rule}\n{_count(len(replay.moves), "move")}, '
        f'{fraction:.0%} in I/O pool',
        rotation=0,
        ha='right',
        va='center',
        fontsize=9,
        fontweight='bold' if shown else 'normal',
    )


def _events_panel(
    axis: Any,
    name: str,
    line: replay_run.VmLine,
    replay: replay_run.Replay,
) -> None:
    """One VM's I/O: measured, predicted, and the threshold between."""
    times = [index * SECONDS for index in range(len(line.events) + 1)]
    for start, end, phase in _runs(replay.phases):
        if phase == 'io':
            axis.axvspan(
                start * SECONDS,
                end * SECONDS,
                color=IO,
                alpha=0.16,
                lw=0,
            )
    axis.stairs(
        [value or 0.0 for value in line.events],
        times,
        fill=True,
        color=EVENTS,
        alpha=0.75,
    )
    axis.step(
        times[:-1],
        [
            float('nan') if value is None else value
            for value in line.predicted_events
        ],
        where='post',
        color=PREDICTED,
        lw=0.9,
    )
    axis.step(
        times[:-1],
        [
            float('nan') if value is None else value
            for value in line.threshold_events
        ],
        where='post',
        color=THRESHOLD,
        lw=1.4,
        ls='--',
    )
    axis.set_ylim(bottom=0)
    axis.set_ylabel(
        f'{name}\nI/O events\nper 100 ms',
        rotation=0,
        ha='right',
        va='center',
        fontsize=9,
    )
    axis.tick_params(axis='x', bottom=False, labelbottom=False)
    for side in ('top', 'right'):
        axis.spines[side].set_visible(False)


def _hits_strip(axis: Any, line: replay_run.VmLine) -> None:
    """Where the predicted state was the real one."""
    _bare(axis)
    axis.set_ylim(0, 1)
    hits = tuple(
        None if state is None or predicted is None else state == predicted
        for state, predicted in zip(
            line.states, line.predicted_states, strict=True
        )
    )
    for start, end, hit in _runs(hits):
        if hit is not None:
            axis.axvspan(
                start * SECONDS,
                end * SECONDS,
                color=RIGHT if hit else WRONG,
                lw=0,
            )
    precision = line.precision
    axis.set_ylabel(
        'state predicted: '
        + ('never' if precision is None else f'{precision:.0%} right'),
        rotation=0,
        ha='right',
        va='center',
        fontsize=8,
        color='#555555',
    )
