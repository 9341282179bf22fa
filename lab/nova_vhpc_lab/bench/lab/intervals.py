# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Compute the confidence ranges of the lab's figures. Pure.

Comparisons with stock Linux are made round by round, because the machine's
speed differs from one round to the next.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova_vhpc_lab.bench.lab import confidence, figures, mixes

Range = list[float]
"""Median, low and high end of a confidence range, as in the JSON."""


def intervals(
    mix: mixes.Mix, runs: Sequence[figures.Run], stock: Sequence[figures.Run]
) -> dict[str, Any]:
    """Return the confidence ranges of one policy's figures in one mix.

    :param runs: the policy's runs.
    :param stock: runs under stock Linux; rounds that only one of both has are
        not compared.
    :returns: ranges by figure; ``cpus_of_stock`` has one per guest: the CPU
        time that the guest got as part of what it got under stock.
    """
    result: dict[str, Any] = {}
    pairs = _pairs(runs, stock)
    _put(
        result, 'efficiency', [figures.efficiency(mix, run) for run in runs], 3
    )
    _put(result, 'fairness', [figures.fairness(mix, run) for run in runs], 3)
    _put(result, 'speedup', _each(pairs, lambda a, b: _speedup(mix, a, b)), 3)
    if any(not one.parallel for one in mix.guests):
        _put(result, 'loss', _each(pairs, lambda a, b: _loss(mix, a, b)), 3)
    _put(result, 'p99_of_stock', _each(pairs, _p99_ratio), 3)
    by_guest: dict[str, Range] = {}
    for one in mix.guests:
        ratios = _each(pairs, lambda a, b, name=one.name: _cpus(name, a, b))  # type: ignore[misc]
        _put(by_guest, one.name, ratios, 3)
    if by_guest:
        result['cpus_of_stock'] = by_guest
    return result


_Pair = tuple[figures.Run, figures.Run]
"""Runs of one round under a policy and under stock Linux."""


def _pairs(
    runs: Sequence[figures.Run], stock: Sequence[figures.Run]
) -> list[_Pair]:
    by_round = {run.round: run for run in stock}
    return [
        (run, by_round[run.round]) for run in runs if run.round in by_round
    ]


def _each(
    pairs: Sequence[_Pair],
    compare: Callable[[figures.Run, figures.Run], float | None],
) -> list[float]:
    """Return the results of all rounds that can be compared."""
    results = (compare(run, base) for run, base in pairs)
    return [value for value in results if value is not None]


def _put(
    result: dict[str, Any], name: str, values: Sequence[float], digits: int
) -> None:
    """Add the range of the values; nothing if there are none."""
    if values:
        measured = confidence.range_of(values)
        result[name] = [
            round(value, digits)
            for value in (measured.median, measured.low, measured.high)
        ]


def _ratio(value: float, base: float) -> float | None:
    return value / base if base > 0 else None


def _speedup(
    mix: mixes.Mix, run: figures.Run, base: figures.Run
) -> float | None:
    """Return the geometric mean over the clusters; None if one stood still."""
    own, stock = (figures.cluster_progress(mix, one) for one in (run, base))
    if min(*own.values(), *stock.values()) <= 0:
        return None
    return statistics.geometric_mean(own[one] / stock[one] for one in own)


def _loss(mix: mixes.Mix, run: figures.Run, base: figures.Run) -> float | None:
    """Return what guests that are not parallel lost."""
    kept = _ratio(
        figures.others_progress(mix, run), figures.others_progress(mix, base)
    )
    return None if kept is None else 1 - kept


def _p99_ratio(run: figures.Run, base: figures.Run) -> float | None:
    """Return the p99 of the web guest's latencies, relative to stock."""
    if not run.latencies_ms or not base.latencies_ms:
        return None
    return _ratio(
        figures.percentile(run.latencies_ms, 0.99),
        figures.percentile(base.latencies_ms, 0.99),
    )


def _cpus(name: str, run: figures.Run, base: figures.Run) -> float | None:
    """Return the CPUs that a guest got, relative to stock."""
    if name not in run.cpus or name not in base.cpus:
        return None
    return _ratio(run.cpus[name], base.cpus[name])


def text(measured: Mapping[str, Any], name: str, form: str) -> str:
    """Return a range as ``low to high``; empty if it was not measured.

    :param measured: ranges by figure.
    :param form: format specification of each number.
    """
    if name not in measured:
        return ''
    _, low, high = measured[name]
    return f'{low:{form}} to {high:{form}}'
