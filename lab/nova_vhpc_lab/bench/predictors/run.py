# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-bench predictors``: score all predictors on recorded traces."""

import argparse
import pathlib
import sys
from collections.abc import Callable, Mapping

import stevedore

from nova_vhpc.control.predictors import base
from nova_vhpc_lab.bench.common import cli_types, outputs, traces
from nova_vhpc_lab.bench.predictors import score

HELP = 'Measure precision, time and memory of the I/O predictors.'

NAMESPACE = 'nova_vhpc.predictors'
ORDER = ('last_value', 'ewma', 'markov', 'rle', 'gpht', 'adaptive')

OURS = 'adaptive'
PAPERS = 'rle'
"""The predictor that the io-perception paper chose."""

MANY_TRANSITIONS = 50

Scores = Mapping[str, Mapping[str, score.Score]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    parser.add_argument(
        '--traces',
        type=pathlib.Path,
        required=True,
        metavar='DIR',
        help='directory of CSV files: a header of VM names, a row per 100 ms',
    )
    outputs.add_json(parser)
    cli_types.add_integer(
        parser,
        '--rounds',
        3,
        'runs per predictor and trace; the fastest counts',
    )


def run(args: argparse.Namespace) -> int:
    """Score every installed predictor on every trace.

    A trace that cannot be read is reported, and the others are scored.

    :returns: 0; 1 if a trace cannot be read.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    try:
        all_traces, faults = traces.read_all(args.traces)
    except (traces.TraceError, OSError) as error:
        print(f'nova-vhpc-bench predictors: {error}', file=sys.stderr)
        return 1
    for fault in faults:
        print(f'nova-vhpc-bench predictors: ignored: {fault}', file=sys.stderr)
    if not all_traces:
        return 1
    factories = load()
    scores = {
        trace.name: {
            name: score.score(make, trace, args.rounds)
            for name, make in factories.items()
        }
        for trace in all_traces
    }
    report(scores)
    outputs.write_json(args.json, as_json(scores))
    return 1 if faults else 0


def load() -> dict[str, Callable[[], base.Predictor]]:
    """Return all installed predictors by name, this project's own first."""
    manager = stevedore.ExtensionManager(NAMESPACE)
    installed = {name: manager[name].plugin for name in manager.names()}
    names = [name for name in ORDER if name in installed]
    names += sorted(installed.keys() - set(names))
    return {name: installed[name] for name in names}


def as_json(scores: Scores) -> dict[str, object]:
    """Return the content of the JSON file."""
    return {
        'traces': {
            trace: {name: score.as_json() for name, score in by_name.items()}
            for trace, by_name in scores.items()
        }
    }


def report(scores: Scores) -> None:
    """Print tables II and III of the io-perception paper, time and memory."""
    tables: dict[str, Callable[[score.Score], str]] = {
        'Entire predicting precision of state value (table II)': (
            lambda score: _percent(score.overall)
        ),
        'Predicting precision of state transition (table III)': (
            lambda score: _percent(score.transition)
        ),
        'Predicted changes that came true': (
            lambda score: _percent(score.change_precision)
        ),
        'Microseconds per prediction (CPU time)': (
            lambda score: f'{score.us_per_prediction:.1f}'
        ),
        'Bytes of state per VM': lambda score: str(score.state_bytes),
    }
    for title, cell in tables.items():
        _table(title, scores, cell)
    _verdict(scores)


def _percent(value: float | None) -> str:
    return 'N/A' if value is None else f'{100 * value:.1f}%'


def _table(
    title: str,
    scores: Scores,
    cell: Callable[[score.Score], str],
) -> None:
    print(title)
    width = max(8, *(len(trace) + 1 for trace in scores))
    print(f'{"":<12}' + ''.join(f'{trace:>{width}}' for trace in scores))
    names = next(iter(scores.values()))
    for name in names:
        cells = (cell(by_name[name]) for by_name in scores.values())
        print(f'{name:<12}' + ''.join(f'{text:>{width}}' for text in cells))
    print()


def _verdict(scores: Scores) -> None:
    """Compare our predictor to the best other and to the paper's choice."""
    if not all(OURS in names and PAPERS in names for names in scores.values()):
        return
    print(
        f'{OURS}, in points: overall against the best of the others, '
        f'transitions against {PAPERS}'
    )
    transition_gains = []
    for trace, by_name in scores.items():
        ours = by_name[OURS]
        best = max(
            (name for name in by_name if name != OURS),
            key=lambda name: by_name[name].overall,
        )
        gain = 100 * (ours.overall - by_name[best].overall)
        line = f'  {trace:<10}{gain:+6.1f} ({best})'
        paper_transition = by_name[PAPERS].transition
        if ours.transition is not None and paper_transition is not None:
            gain = 100 * (ours.transition - paper_transition)
            line += f', {gain:+.1f} of {ours.transitions:.0f} transitions'
            if ours.transitions > MANY_TRANSITIONS:
                transition_gains.append(gain)
        print(line)
    if transition_gains:
        print(
            f'  traces with more than {MANY_TRANSITIONS} transitions, mean: '
            f'{sum(transition_gains) / len(transition_gains):+.1f}'
        )
