# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Put the measurements of a mix into the lab's JSON. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from nova_vhpc_lab.bench.lab import figures, intervals, kbest, mixes, runner


def add(
    document: dict[str, Any],
    mix: mixes.Mix,
    measured: runner.MixRuns,
    scheme: kbest.KBest,
    cpu_count: int,
) -> None:
    """Add the figures of one mix to the document.

    If no round counts, figures of an earlier run are kept.

    :param document: the JSON of ``nova-vhpc-bench lab``; ``when`` says when
        this run began.
    :param measured: runs of the mix, and the rounds that were left out.
    :param scheme: the K-best scheme of the measurement.
    :param cpu_count: number of host CPUs.
    """
    by_policy = document['mixes'].setdefault(mix.name, {})
    summary = figures.summarise(mix, measured.runs, scheme, cpu_count)
    stock = measured.runs.get('stock', [])
    for name, entry in summary.items():
        entry['when'] = document['when']
        entry['left_out'] = len(measured.left_out)
        entry['intervals'] = intervals.intervals(
            mix, measured.runs.get(name, []), stock
        )
        if entry['runs'] or name not in by_policy:
            by_policy[name] = entry
    rounds: dict[str, Any] = {
        'other_load_cpus': [round(load, 3) for load in measured.other_loads],
        'left_out': measured.left_out,
        'max_other_load': measured.max_other_load,
    }
    rounds['why'] = why_left_out(rounds)
    document.setdefault('rounds', {})[mix.name] = rounds


def why_left_out(rounds: Mapping[str, Any]) -> str:
    """Return how many rounds of a mix were left out, and why, as text.

    :param rounds: ``rounds.<mix>`` of the JSON.
    """
    loads: Sequence[float] = rounds['other_load_cpus']
    left_out = [loads[number - 1] for number in rounds['left_out']]
    kept = [
        load
        for number, load in enumerate(loads, 1)
        if number not in rounds['left_out']
    ]
    text = f'{len(left_out)} of {len(loads)} rounds left out'
    if left_out:
        text += (
            f' because something else took {min(left_out):.2f} to '
            f'{max(left_out):.2f} CPUs, more than '
            f'{rounds["max_other_load"]:g}'
        )
    if kept:
        text += f'; it took at most {max(kept):.2f} in the others'
    return text


def undecided(document: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the names of the mixes of which no round counts."""
    return [
        name
        for name in names
        if not any(entry['runs'] for entry in document['mixes'][name].values())
    ]
