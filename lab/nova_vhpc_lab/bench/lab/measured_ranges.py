# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ranges of the lab's figures that were measured on real guests.

They are kept in ``measured_ranges.json``, made from the lab's JSON:
``ranges.<mix>.<policy>`` has median, least and greatest value of each figure
of :data:`FIGURES`, ``runs``, and the circumstances of the measurement.
"""

import importlib.resources
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc_lab.bench.lab import figures, mixes

FIGURES = ('efficiency', 'fairness', 'others', 'p99_ms', 'late_ms')

POLICIES = ('stock', 'default')

Range = tuple[float, float, float]
"""Median, least and greatest value."""

FILE = 'measured_ranges.json'


def load() -> dict[str, Any]:
    """Return what was measured, by mix and policy."""
    text = (importlib.resources.files(__package__) / FILE).read_text()
    document: dict[str, Any] = json.loads(text)
    return document


def renewed(
    ranges: Mapping[str, Any], document: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the ranges with those of a newer measurement.

    Policies of mixes that were not measured anew are kept.

    :param document: the JSON of ``nova-vhpc-bench lab``.
    """
    result = {name: dict(of) for name, of in ranges.items()}
    scheme = document['scheme']
    for name, by_policy in document['mixes'].items():
        for policy in POLICIES:
            entry = by_policy.get(policy)
            if name in mixes.MIXES and entry and entry['runs']:
                result.setdefault(name, {})[policy] = {
                    **_of_entry(entry),
                    'runs': entry['runs'],
                    'when': entry['when'],
                    'settle_s': scheme['settle_s'],
                    'measure_s': scheme['measure_s'],
                }
    return result


def _of_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ranges of one policy in one mix of the lab's JSON."""
    found = {
        'efficiency': _range(entry['efficiencies']),
        'fairness': tuple(entry['intervals']['fairness']),
    }
    if 'others' in entry:
        found['others'] = _range(entry['others'])
    if 'latency_ms' in entry:
        # The lab keeps no values of single runs.
        found['p99_ms'] = _range([entry['latency_ms']['p99']])
    if 'window_late_us' in entry:
        found['late_ms'] = _range([entry['window_late_us'] / 1_000])
    return {
        name: [round(value, 3) for value in values]
        for name, values in found.items()
    }


def of_runs(mix: mixes.Mix, runs: Sequence[figures.Run]) -> dict[str, Range]:
    """Return the ranges of simulated runs."""
    found = {
        'efficiency': _range(figures.efficiency(mix, run) for run in runs),
        'fairness': _range(figures.fairness(mix, run) for run in runs),
    }
    if any(not one.parallel for one in mix.guests):
        found['others'] = _range(
            figures.others_progress(mix, run) for run in runs
        )
    answers = [one for run in runs for one in run.latencies_ms]
    if answers:
        found['p99_ms'] = _range([figures.percentile(answers, 0.99)])
    late = [run.window_late_us for run in runs if run.window_late_us]
    if late:
        found['late_ms'] = _range(one / 1_000 for one in late)
    return found


def _range(values: Iterable[float]) -> Range:
    values = list(values)
    return statistics.median(values), min(values), max(values)
