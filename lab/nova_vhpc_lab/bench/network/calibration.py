# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Make a cost table of measured figures. Pure.

The cost model needs pairs of guests: messages to other hosts by number of
pairs, and messages on one host. How programs fare is then predicted, not
copied from the measured exchanges.
"""

import statistics
from collections.abc import Mapping, Sequence

from nova_vhpc.scheduler.planner import cost_table
from nova_vhpc_lab.bench.network import figures

ROWS = ('exported', 'separate', 'shared')
"""Configurations that have rows of their own in the cost model."""

NEEDED = (*ROWS, 'multiple-shared', 'shared-separate')
"""Configurations that must have been measured."""

Medians = Mapping[figures.Figure, float]


def table(
    runs: Mapping[str, Sequence[figures.Run]],
    link_mbps: float,
    spare_cpu: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
) -> cost_table.CostTable:
    """Return the cost table of one cluster and library.

    :param runs: runs by configuration, of at least two guests on each of
        several hosts. The row ``native`` is that of ``exported`` where it
        was not measured or was slower: native ranks poll shared memory, and
        here there may be fewer CPUs than ranks.
    :param spare_cpu: see :func:`figures.spare_cpu`; None if it was not
        measured, then HPCVirt'09's factor remains.
    :raises ValueError: a configuration was not measured, or there was only
        one host, or one guest on each.
    """
    missing = set(NEEDED) - {name for name, done in runs.items() if done}
    if missing:
        raise ValueError(f'not measured: {", ".join(sorted(missing))}')
    medians = {name: _medians(runs[name]) for name in NEEDED}
    medians[cost_table.NATIVE] = _medians(
        runs.get(cost_table.NATIVE) or runs['exported']
    )
    shared = medians['shared']
    for where in ('local', 'remote'):
        if not _row(shared, where, 'bandwidth_mbs'):
            raise ValueError(
                'a cluster of several hosts with two or more guests on each'
            )
    return cost_table.CostTable(
        link_mbps=link_mbps,
        latency_us={
            # More pairs wait for this machine's CPUs, on which all hosts are.
            row: latencies[:1] * len(latencies)
            for row, latencies in _rows(
                medians, 'remote', 'latency_us'
            ).items()
        },
        remote_mb_s=_rows(medians, 'remote', 'bandwidth_mbs'),
        local_mb_s=_rows(medians, 'local', 'bandwidth_mbs'),
        two_interfaces={
            'shared-separate': _gain(
                medians['shared-separate'], medians['separate'], 1
            ),
            'multiple-shared': _gain(medians['multiple-shared'], shared, 1),
        },
        shared_uplinks={
            'shared': 1.0,
            'multiple-shared': max(
                1.0,
                _gain(medians['multiple-shared'], shared, _most_pairs(shared)),
            ),
        },
        no_spare_cpu=_no_spare_cpu(spare_cpu),
    )


def _no_spare_cpu(
    spare_cpu: Mapping[str, Mapping[str, Sequence[float]]] | None,
) -> float:
    """Return by what factor a missing spare CPU prolongs a run.

    It is the median over exchanges and configurations with a bridge.
    """
    if not spare_cpu:
        return cost_table.NO_SPARE_CPU
    factors = [
        median
        for configuration, by_exchange in spare_cpu.items()
        if configuration not in ('exported', cost_table.NATIVE)
        for median, _, _ in by_exchange.values()
    ]
    return max(1.0, round(statistics.median(factors), 3))


def _medians(runs: Sequence[figures.Run]) -> Medians:
    return {name: one.median for name, one in figures.ranges(runs).items()}


def _rows(
    medians: Mapping[str, Medians], where: str, name: str
) -> dict[str, cost_table.Columns]:
    best = min if name == 'latency_us' else max
    rows = {row: _row(medians[row], where, name) for row in ROWS}
    native = _row(medians[cost_table.NATIVE], where, name)
    return {
        cost_table.NATIVE: tuple(map(best, native, rows['exported'])),
        **rows,
    }


def _row(medians: Medians, where: str, name: str) -> cost_table.Columns:
    """Return a figure for one pair, two pairs and so on."""
    return tuple(
        round(value, 3)
        for figure, value in sorted(medians.items())
        if (figure.where, figure.name) == (where, name)
    )


def _most_pairs(medians: Medians) -> int:
    return len(_row(medians, 'remote', 'bandwidth_mbs'))


def _gain(one: Medians, other: Medians, pairs: int) -> float:
    """Return the bandwidth of one as a multiple of that of another."""
    figure = figures.Figure('bandwidth_mbs', 'remote', pairs)
    return round(one[figure] / other[figure], 3)
