# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of runs: what HPCVirt'09 prints of them. Pure."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc_lab.bench.lab import confidence
from nova_vhpc_lab.bench.network import layout as layouts

LONG_BYTES = 262144
"""Message size of the long ping-pong, for table 2."""

MOST_PAIRS = 4
"""Most pairs that are measured at a time, as in tables 1 to 4."""

EXCHANGES = ('alltoall', 'keys', 'halo', 'transpose', 'allreduce')
"""Exchanges of all ranks, by the names that ``exchange.c`` prints."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Figure:
    """What was measured.

    :ivar name: name with unit.
    :ivar where: ``remote`` or ``local``: whether the guests of a pair are on
        different hosts; ``all`` if all guests take part.
    :ivar pairs: number of pairs that communicate at a time; 0 if all guests
        take part.
    """

    name: str
    where: str = 'all'
    pairs: int = 0


Run = Mapping[Figure, float]
"""Figures of one run of the program."""


def main_figures(cluster: layouts.Cluster) -> dict[str, Figure]:
    """Return the figures by which configurations are compared.

    As many pairs as a host has guests, up to four, share the bandwidth; of a
    single host as many as its guests can form.
    """
    where, pairs = 'remote', cluster.guests
    if cluster.hosts == 1:
        where, pairs = 'local', cluster.guests // 2
    return {
        'alltoall_ms': Figure('alltoall_ms'),
        'bandwidth_mbs': Figure(
            'bandwidth_mbs', where, min(pairs, MOST_PAIRS)
        ),
        'latency_us': Figure('latency_us', where, 1),
    }


def run_of(values: Iterable[Mapping[str, Any]]) -> Run:
    """Return the figures of one run.

    Bandwidth is the mean over message sizes from 4 KiB on, as in the paper's
    tables 3 to 5.

    :param values: what ``exchange.c`` has printed.
    """
    found: dict[Figure, float] = {}
    by_size: dict[Figure, list[float]] = {}
    for value in values:
        test, where, pairs = value['test'], value['where'], value['pairs']
        if test in EXCHANGES:
            found[Figure(f'{test}_ms')] = value['value']
        elif test in ('bandwidth', 'bibandwidth'):
            figure = Figure(f'{test}_mbs', where, pairs)
            by_size.setdefault(figure, []).append(value['value'])
        elif test == 'latency' and value['bytes'] == 1:
            found[Figure('latency_us', where, pairs)] = value['value']
        elif test == 'latency':
            # Bytes per microsecond are MB/s.
            found[Figure('ping_pong_mbs', where, pairs)] = (
                pairs * value['bytes'] / value['value']
            )
    for figure, rates in by_size.items():
        found[figure] = statistics.fmean(rates)
    return found


def ranges(runs: Sequence[Run]) -> dict[Figure, confidence.ConfidenceRange]:
    """Return medians and ranges of the figures that all runs have."""
    if not runs:
        return {}
    common = set(runs[0]).intersection(*runs[1:])
    return {
        figure: confidence.range_of([run[figure] for run in runs])
        for figure in sorted(common)
    }


def entry(runs: Sequence[Run], cluster: layouts.Cluster) -> dict[str, Any]:
    """Return the figures of one configuration, as in the JSON."""
    measured = ranges(runs)
    result: dict[str, Any] = {'runs': len(runs)}
    spreads: dict[str, list[float]] = {}
    singles = {
        **main_figures(cluster),
        **{f'{name}_ms': Figure(f'{name}_ms') for name in EXCHANGES},
    }
    for name, figure in singles.items():
        if figure in measured:
            one = measured[figure]
            result[name] = _rounded(one.median)
            spreads[name] = [_rounded(one.low), _rounded(one.high)]
    result['ranges'] = spreads
    pairs: dict[str, dict[str, list[list[float]]]] = {}
    for figure, one in measured.items():
        if figure.pairs:
            of_place = pairs.setdefault(figure.where, {})
            of_place.setdefault(figure.name, []).append(
                [_rounded(value) for value in (one.median, one.low, one.high)]
            )
    result['pairs'] = pairs
    return result


def spare_cpu(
    with_spare: Mapping[str, Sequence[Run]],
    without: Mapping[str, Sequence[Run]],
) -> dict[str, dict[str, list[float]]]:
    """Return how much longer exchanges take without a spare CPU.

    :returns: by configuration and exchange median, low and high of the
        ratios within each round.
    """
    gains: dict[str, dict[str, list[float]]] = {}
    for configuration, runs in with_spare.items():
        of_configuration = gains[configuration] = {}
        for name in EXCHANGES:
            figure = Figure(f'{name}_ms')
            ratio = confidence.range_of_ratios(
                [run[figure] for run in without[configuration]],
                [run[figure] for run in runs],
            )
            of_configuration[name] = [
                _rounded(one) for one in (ratio.median, ratio.low, ratio.high)
            ]
    return gains


def _rounded(value: float) -> float:
    """Return a value with four digits."""
    return float(f'{value:.4g}')
