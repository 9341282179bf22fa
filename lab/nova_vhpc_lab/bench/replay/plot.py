# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Draw a replay: measured and predicted I/O, phases and moves."""

import argparse
import itertools
import math
import pathlib
from typing import Any

from nova_vhpc.control import model
from nova_vhpc_lab.bench.common import outputs, traces
from nova_vhpc_lab.bench.replay import run
from nova_vhpc_lab.bench.replay.result import Replay, VmLine

SECONDS = run.PERIOD_US / 1e6

EVENTS = '#4c78a8'
PREDICTED = '#e45756'
THRESHOLD = '#222222'
IN_IO_POOL = '#f58518'
OUTSIDE = '#d8dee4'
IO_PHASE = '#6b3fa0'
WRONG = '#8c1c3f'
RIGHT = '#e6f2e6'

BESIDE: dict[str, Any] = {
    'rotation': 0,
    'ha': 'right',
    'va': 'center',
    'fontsize': 9,
}
"""Style of a panel's label: beside it, to be read without turning."""

MOST_VMS = 8
"""Greatest number of VMs that are drawn; more would not be legible."""


def picture(name: str) -> pathlib.Path:
    """Return the path of a picture to draw; type of an argument."""
    path = pathlib.Path(name)
    if path.suffix.lower() not in ('.svg', '.png'):
        raise argparse.ArgumentTypeError(f"'{name}' must end in .svg or .png")
    return path


def plot(
    trace: traces.GappedTrace,
    replays: dict[str, Replay],
    shown: str,
    predictor: str,
    path: pathlib.Path,
) -> None:
    """Draw a timeline into an SVG or PNG file.

    :param replays: replays of the trace, by leave rule.
    :param shown: leave rule whose pools shade the panels.
    :param predictor: name of the predictor, for the title.
    :param path: path that :func:`picture` accepted.
    :raises OutputError: if the file cannot be written.
    """
    import matplotlib

    # A dollar sign in a VM's name must not start a formula.
    with matplotlib.rc_context({'text.parse_math': False}):
        _draw(trace, replays, shown, predictor, path)


def _draw(
    trace: traces.GappedTrace,
    replays: dict[str, Replay],
    shown: str,
    predictor: str,
    path: pathlib.Path,
) -> None:
    from matplotlib import figure, layout_engine, lines, patches

    names = trace.vms[:MOST_VMS]
    strips = len(replays)
    ratios = [0.42] * strips + [1.0, 0.13] * len(names)
    height = 1.3 + 0.5 * strips + 1.45 * len(names)
    canvas = figure.Figure(
        figsize=(15, height),
        layout=layout_engine.ConstrainedLayoutEngine(h_pad=0.02, hspace=0.0),
    )
    axes: Any = canvas.subplots(
        len(ratios), 1, sharex=True, gridspec_kw={'height_ratios': ratios}
    )
    ends = len(trace.rows) * SECONDS
    for axis, (rule, replay) in zip(axes, replays.items(), strict=False):
        _pool_strip(axis, rule, replay, rule == shown)
    for index, name in enumerate(names):
        line = replays[shown].vms[name]
        _events_panel(axes[strips + 2 * index], name, line)
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
            patches.Patch(color=IO_PHASE, label='I/O phase'),
            patches.Patch(color=IN_IO_POOL, label='in the I/O pool'),
            patches.Patch(color=OUTSIDE, label='outside of it'),
            patches.Patch(color=EVENTS, alpha=0.75, label='measured'),
            lines.Line2D([], [], color=PREDICTED, label='predicted'),
            lines.Line2D([], [], color=THRESHOLD, ls='--', label='threshold'),
            patches.Patch(color=WRONG, label='state predicted wrong'),
        ],
        loc='outside upper right',
        ncols=7,
        frameon=False,
        fontsize=9,
    )
    try:
        canvas.savefig(path, dpi=110)
    except OSError as error:
        raise outputs.OutputError(path, error.strerror or error) from None


def _title(
    trace: traces.GappedTrace,
    replays: dict[str, Replay],
    predictor: str,
    drawn_vms: int,
) -> str:
    count = len(trace.vms)
    vms = _count(count, 'VM')
    if drawn_vms < count:
        vms = f'{drawn_vms} of {vms}'
    return (
        f'{trace.name}: {vms}, {len(trace.rows) * SECONDS:.0f} s, '
        f'predictor {predictor}'
    )


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'


def _runs(values: tuple[Any, ...]) -> list[tuple[int, int, Any]]:
    """Return start, end and value of each run of equal values."""
    runs: list[tuple[int, int, Any]] = []
    end = 0
    for value, equal_values in itertools.groupby(values):
        start, end = end, end + len(list(equal_values))
        runs.append((start, end, value))
    return runs


def _bare(axis: Any) -> None:
    """Remove frame and ticks."""
    axis.set_yticks([])
    axis.tick_params(axis='x', bottom=False, labelbottom=False)
    for side in ('top', 'right', 'left', 'bottom'):
        axis.spines[side].set_visible(False)


def _pool_strip(axis: Any, rule: str, replay: Replay, shown: bool) -> None:
    """Draw the phase as a line, below it the share of VMs in the I/O pool."""
    _bare(axis)
    axis.set_ylim(0, 1)
    low, high = 0.06, 0.72
    for start, end, phase in _runs(replay.phases):
        if phase == model.Phase.IO:
            _span(axis, start, end, ymin=0.82, ymax=0.96, color=IO_PHASE)
    members = tuple(
        zip(*(line.in_io_pool for line in replay.vms.values()), strict=True)
    )
    shares = tuple(sum(inside) / len(inside) for inside in members)
    _span(axis, 0, len(shares), ymin=low, ymax=high, color=OUTSIDE)
    for start, end, share in _runs(shares):
        if share:
            edge = low + share * (high - low)
            _span(axis, start, end, ymin=low, ymax=edge, color=IN_IO_POOL)
    for move in replay.moves:
        axis.axvline(move.period * SECONDS, 0.0, 0.78, color='#333333', lw=0.7)
    axis.set_ylabel(
        f'leave rule: {rule}\n'
        f'{replay.io_phase_fraction:.0%} in I/O phase\n'
        f'{_count(len(replay.moves), "move")}, '
        f'{replay.io_fraction:.0%} in I/O pool',
        **BESIDE,
        fontweight='bold' if shown else 'normal',
    )


def _span(axis: Any, start: int, end: int, **style: Any) -> None:
    """Colour periods; see matplotlib's ``axvspan`` for the style."""
    axis.axvspan(start * SECONDS, end * SECONDS, lw=0, **style)


def _events_panel(axis: Any, name: str, line: VmLine) -> None:
    """Draw one VM's measured and predicted I/O events and the threshold.

    Periods in which the VM is in the I/O pool are shaded.
    """
    times = [index * SECONDS for index in range(len(line.events) + 1)]
    for start, end, inside in _runs(line.in_io_pool):
        if inside:
            _span(axis, start, end, color=IN_IO_POOL, alpha=0.16)
    axis.stairs(
        [value or 0.0 for value in line.events],
        times,
        fill=True,
        color=EVENTS,
        alpha=0.75,
    )
    for values, style in (
        (line.predicted_events, {'color': PREDICTED, 'lw': 0.9}),
        (line.threshold_events, {'color': THRESHOLD, 'lw': 1.4, 'ls': '--'}),
    ):
        numbers = [math.nan if value is None else value for value in values]
        axis.step(times[:-1], numbers, where='post', **style)
    axis.set_ylim(bottom=0)
    axis.set_ylabel(f'{name}\nI/O events\nper 100 ms', **BESIDE)
    axis.tick_params(axis='x', bottom=False, labelbottom=False)
    for side in ('top', 'right'):
        axis.spines[side].set_visible(False)


def _hits_strip(axis: Any, line: VmLine) -> None:
    """Draw in which periods the state was predicted right."""
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
            _span(axis, start, end, color=RIGHT if hit else WRONG)
    precision = line.precision
    axis.set_ylabel(
        'state predicted: '
        + ('never' if precision is None else f'{precision:.0%} right'),
        **{**BESIDE, 'fontsize': 8},
        color='#555555',
    )
