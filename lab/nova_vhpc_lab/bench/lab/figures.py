# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Compute the lab's figures from its measurements. Pure.

Values are divided by each other only if they are of the same round.
"""

import collections
import dataclasses
import statistics
from collections.abc import Collection, Mapping, Sequence

from nova_vhpc.control import fair_share
from nova_vhpc_lab.bench.lab import kbest, mixes

FIGURES = ('efficiency', 'fairness', 'speedup', 'loss', 'runs')
"""Figures that every policy has in every mix; others may be missing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One measurement under one policy.

    :ivar round: number of the round, from 1.
    :ivar progress: work of each guest as a fraction of its work alone in the
        same round.
    :ivar latencies_ms: latencies of the web guest's answers, in ms.
    :ivar window_late_us: mean delay at which gang windows began, in
        microseconds; None without windows.
    :ivar cpus: CPUs that each guest got. If something outside of the lab takes
        CPU time, they say more than ``progress``.
    """

    round: int
    progress: Mapping[str, float]
    latencies_ms: tuple[float, ...] = ()
    window_late_us: float | None = None
    cpus: Mapping[str, float] = dataclasses.field(default_factory=dict)


def efficiency(mix: mixes.Mix, run: Run) -> float:
    """Return the sum of all clusters' progress; 1 is perfect."""
    return sum(cluster_progress(mix, run).values())


def cluster_progress(mix: mixes.Mix, run: Run) -> dict[str, float]:
    """Return the progress of each cluster, the mean of its members'."""
    return {
        cluster: statistics.fmean(run.progress[one.name] for one in members)
        for cluster, members in mix.clusters.items()
    }


def fairness(mix: mixes.Mix, run: Run) -> float:
    """Return the least by the greatest progress among guests of one kind.

    Of the kinds of parallel guests the one with the least ratio counts.
    """
    worst = 1.0
    kinds: dict[str, list[float]] = {}
    for one in mix.guests:
        if one.parallel:
            kinds.setdefault(one.kind, []).append(run.progress[one.name])
    for values in kinds.values():
        if max(values) > 0:
            worst = min(worst, min(values) / max(values))
    return worst


def others_progress(mix: mixes.Mix, run: Run) -> float:
    """Return the sum of the progress of guests that are not parallel."""
    return sum(
        run.progress[one.name] for one in mix.guests if not one.parallel
    )


def others_fair(mix: mixes.Mix, cpus: int) -> float:
    """Return :func:`others_progress` under fair sharing of the CPUs.

    Valid only if no guest ever sleeps.

    :param cpus: number of host CPUs.
    """
    demands = {
        one.name: fair_share.Demand(1024, min(one.vcpus, cpus))
        for one in mix.guests
    }
    fair = fair_share.fair_cpus(collections.Counter(demands.values()), cpus)
    return sum(
        fair[demands[one.name]] / demands[one.name].cpus
        for one in mix.guests
        if not one.parallel
    )


def summarise(
    mix: mixes.Mix,
    runs: Mapping[str, list[Run]],
    scheme: kbest.KBest,
    cpus: int = 2,
) -> dict[str, dict[str, object]]:
    """Return the figures of one mix by policy.

    They are medians over all runs, besides the mean of the K best
    efficiencies and the values of each run (``efficiencies``, and ``others``,
    see :func:`others_progress`). A policy without any run that counts has 0
    ``runs``, and None for all figures. ``loss`` compares with stock Linux,
    ``loss_fair`` with the fair share. Comparisons with stock are None if stock
    was not measured or did nothing. The speedup is 0 if a cluster stood still.

    :param runs: runs by policy.
    :param scheme: the K-best scheme of the measurement.
    :param cpus: number of host CPUs.
    """
    stock = runs.get('stock', [])
    base = _medians(mix, stock)
    figures: dict[str, dict[str, object]] = {}
    for name, done in runs.items():
        if not done:
            figures[name] = dict.fromkeys(FIGURES) | {'runs': 0}
            continue
        own = _medians(mix, done)
        speedups = {
            cluster: own[cluster] / base[cluster]
            for cluster in mix.clusters
            if base.get(cluster)
        }
        values = [efficiency(mix, run) for run in done]
        entry: dict[str, object] = {
            'efficiency': round(statistics.median(values), 3),
            'efficiency_range': [round(min(values), 3), round(max(values), 3)],
            'efficiencies': [round(value, 4) for value in values],
            'efficiency_kbest': round(scheme.best(values), 3),
            'converged': scheme.converged(values),
            'fairness': round(
                statistics.median(fairness(mix, run) for run in done), 3
            ),
            'speedup': _mean(speedups.values()) if speedups else None,
            'speedups': {c: round(s, 3) for c, s in speedups.items()},
            'loss': 0.0,
            'runs': len(done),
            'progress': _guest_medians(mix, [run.progress for run in done], 4),
        }
        late = [r.window_late_us for r in done if r.window_late_us is not None]
        if any(run.cpus for run in done):
            entry['cpus'] = _guest_medians(mix, [run.cpus for run in done], 3)
        if late:
            entry['window_late_us'] = round(statistics.median(late))
        if any(not one.parallel for one in mix.guests):
            _add_others(entry, mix, done, stock, cpus)
        figures[name] = entry
    return figures


def _add_others(
    entry: dict[str, object],
    mix: mixes.Mix,
    done: list[Run],
    stock: list[Run],
    cpus: int,
) -> None:
    """Add the figures of guests that are not parallel."""
    by_run = [others_progress(mix, run) for run in done]
    entry['others'] = [round(value, 4) for value in by_run]
    progress = statistics.median(by_run)
    stock_by_run = [others_progress(mix, run) for run in stock]
    stock_progress = statistics.median(stock_by_run) if stock_by_run else 0.0
    entry['loss'] = (
        round(1 - progress / stock_progress, 3) if stock_progress else None
    )
    if any(one.workload == 'web' for one in mix.guests):
        answers = sorted(
            latency for run in done for latency in run.latencies_ms
        )
        if answers:
            entry['latency_ms'] = {
                'median': round(answers[len(answers) // 2], 2),
                'mean': round(statistics.fmean(answers), 2),
                'p99': round(percentile(answers, 0.99), 2),
                'answers_per_run': round(len(answers) / len(done), 1),
            }
    elif not mix.host_load:
        entry['loss_fair'] = round(1 - progress / others_fair(mix, cpus), 3)


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which a part of the values lies.

    :param values: at least one value.
    :param part: the part, from 0 to below 1.
    """
    return sorted(values)[int(len(values) * part)]


def _medians(mix: mixes.Mix, runs: list[Run]) -> dict[str, float]:
    """Return the median progress of each cluster."""
    if not runs:
        return {}
    progress = [cluster_progress(mix, run) for run in runs]
    return {
        cluster: statistics.median(one[cluster] for one in progress)
        for cluster in mix.clusters
    }


def _guest_medians(
    mix: mixes.Mix, by_run: list[Mapping[str, float]], digits: int
) -> dict[str, float]:
    """Return the rounded median of each guest's values of all runs."""
    return {
        one.name: round(
            statistics.median(values[one.name] for values in by_run), digits
        )
        for one in mix.guests
    }


def _mean(speedups: Collection[float]) -> float:
    """Return the geometric mean; 0 if a cluster stood still.

    ``statistics`` raises an error for a zero.
    """
    if min(speedups) <= 0:
        return 0.0
    return round(statistics.geometric_mean(speedups), 3)


def overall(
    figures: Mapping[str, Mapping[str, Mapping[str, object]]],
) -> dict[str, dict[str, object]]:
    """Return the mean and the worst speedup of each policy.

    Over all clusters of the over-committed mixes; the mean is geometric.

    :param figures: figures by mix and policy.
    """
    result: dict[str, dict[str, object]] = {}
    names = {name for by_policy in figures.values() for name in by_policy}
    for name in sorted(names):
        speedups: list[float] = []
        for mix_name, by_policy in figures.items():
            by_cluster = by_policy.get(name, {}).get('speedups')
            mix = mixes.MIXES.get(mix_name)
            if isinstance(by_cluster, dict) and mix and mix.overcommitted:
                speedups.extend(by_cluster.values())
        if speedups:
            result[name] = {
                'speedup': _mean(speedups),
                'worst_speedup': round(min(speedups), 3),
            }
    return result
