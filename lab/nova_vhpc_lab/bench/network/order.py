# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Compare the planner's order of configurations with the measured one.

Pure.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nova_vhpc.scheduler.planner import cost
from nova_vhpc.scheduler.planner.cost_table import PAPER, CostTable
from nova_vhpc_lab.bench.lab import confidence
from nova_vhpc_lab.bench.network import figures
from nova_vhpc_lab.bench.network import layout as layouts

NOISE = 0.03
"""Part by which two configurations must differ to be told apart."""

LEAST_ROUNDS = 4
"""Rounds that tell two configurations apart. That all four values of one are
below all of the other comes about by chance in one case of 35."""

SPARE_CPU = cost.load_of(0, 1)
"""Load of hosts whose CPUs are not what limits their guests."""


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Two configurations by one figure.

    :ivar figure: name of the figure.
    :ivar measured: time of ``one`` as part of that of ``other``; of a
        bandwidth, the inverse. The range is that of any two rounds.
    :ivar predicted: the same by the planner's cost model.
    """

    figure: str
    one: str
    other: str
    measured: confidence.ConfidenceRange
    predicted: float

    @property
    def is_beyond_noise(self) -> bool:
        """Whether every round of one was faster than all of the other."""
        return self._measured_order() != ''

    @property
    def matches(self) -> bool:
        """Whether the planner has the same order, or noise has none."""
        order = self._measured_order()
        return order in ('', _order(self.predicted, 0.0))

    def _measured_order(self) -> str:
        if self.measured.runs < LEAST_ROUNDS:
            return ''
        return self.measured.decide(lambda ratio: _order(ratio, NOISE), '')


def _order(ratio: float, margin: float) -> str:
    """Return which of two is faster; empty if they are equal."""
    if ratio > 1 + margin:
        return 'other'
    return 'one' if ratio < 1 / (1 + margin) else ''


def predicted(
    cluster: layouts.Cluster,
    configuration: str,
    link_mbps: float,
    table: CostTable = PAPER,
) -> dict[str, float]:
    """Return the planner's prediction of the main figures.

    :param table: the cost table by which the planner compares.
    :returns: by figure a time, in us; of the exchange relative to native
        Linux, and of the bandwidth, the time of a megabyte.
    """
    pairs = figures.main_figures(cluster)['bandwidth_mbs'].pairs
    if cluster.hosts == 1:
        # Each pair of the paper's table 5 keeps two CPUs busy.
        bandwidth = cost.local_mb_s(
            configuration, 2.0 * pairs, link_mbps, table
        )
        latency = cost.local_latency_us
    else:
        bandwidth = cost.remote_mb_s(
            configuration, pairs, SPARE_CPU, link_mbps, table
        )
        latency = cost.remote_latency_us
    return {
        'alltoall_ms': cost.exchange_time(
            configuration,
            cluster.guests,
            cluster.members,
            SPARE_CPU,
            link_mbps,
            table=table,
        ),
        'bandwidth_mbs': 1e6 / (pairs * bandwidth),
        'latency_us': latency(configuration, SPARE_CPU, table),
    }


def compare(
    cluster: layouts.Cluster,
    runs: Mapping[str, Sequence[figures.Run]],
    link_mbps: float,
    table: CostTable = PAPER,
) -> Iterator[Comparison]:
    """Yield all pairs of configurations, by each of the main figures.

    :param runs: runs by configuration, one for each round; what is measured
        without guests is no configuration.
    :param table: the cost table by which the planner compares.
    """
    predictions = {
        name: predicted(cluster, name, link_mbps, table)
        for name in runs
        if name != layouts.NATIVE
    }
    for name, figure in figures.main_figures(cluster).items():
        for one, other in itertools.combinations(predictions, 2):
            times = [_times(runs[each], figure) for each in (one, other)]
            if all(times):
                first, second = map(confidence.range_of, times)
                yield Comparison(
                    figure=name,
                    one=one,
                    other=other,
                    measured=first.ratio_to(second),
                    predicted=predictions[one][name]
                    / predictions[other][name],
                )


def _times(runs: Sequence[figures.Run], figure: figures.Figure) -> list[float]:
    """Return a figure of all rounds, smaller for what is faster."""
    values = [run[figure] for run in runs if figure in run]
    if figure.name.endswith('_mbs'):
        return [1 / value for value in values]
    return values


def document(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the result of the comparison, as in the JSON."""
    told_apart = [one for one in comparisons if one.is_beyond_noise]
    return {
        'compared': len(comparisons),
        'beyond_noise': len(told_apart),
        'matching': sum(one.matches for one in told_apart),
        'differing': [
            {
                'figure': one.figure,
                'faster': _names(one)[0],
                'slower': _names(one)[1],
                'measured': round(_quotient(one, one.measured.median), 3),
                'predicted': round(_quotient(one, one.predicted), 3),
            }
            for one in told_apart
            if not one.matches
        ],
    }


def _names(comparison: Comparison) -> tuple[str, str]:
    """Return the faster configuration by measurement, then the other."""
    names = (comparison.one, comparison.other)
    return names if comparison.measured.median < 1 else names[::-1]


def _quotient(comparison: Comparison, ratio: float) -> float:
    """Return the time of the slower one as a multiple of the faster one's."""
    return 1 / ratio if comparison.measured.median < 1 else ratio
