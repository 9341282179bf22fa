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

"""What the lab's measurements come to: the figures of DESIGN.md, section 7.

Pure. Only figures of one round are ever divided by each other.
"""

import collections
import dataclasses
import statistics
from collections.abc import Collection, Mapping

from nova_vhpc.bench.lab import kbest, mixes
from nova_vhpc.control import fair_share


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One measurement under one policy.

    :ivar progress: of each guest, as part of what it does alone in the
        same round.
    :ivar latencies_ms: of the web guest's answers.
    :ivar window_late_us: how late the gang windows began, on average.
    :ivar cpus: CPUs that each guest got; says more than progress where
        something outside of the lab takes CPU time.
    """

    round: int
    progress: Mapping[str, float]
    latencies_ms: tuple[float, ...] = ()
    window_late_us: float | None = None
    cpus: Mapping[str, float] = dataclasses.field(default_factory=dict)


def efficiency(mix: mixes.Mix, run: Run) -> float:
    """Sum over the clusters of progress / progress alone; 1 is perfect.

    A cluster's progress is the mean of its members'.
    """
    return sum(cluster_progress(mix, run).values())


def cluster_progress(mix: mixes.Mix, run: Run) -> dict[str, float]:
    """Progress of each cluster as part of what it does alone."""
    return {
        cluster: statistics.fmean(run.progress[one.name] for one in members)
        for cluster, members in mix.clusters.items()
    }


def fairness(mix: mixes.Mix, run: Run) -> float:
    """Least / greatest progress among equal guests; the worst kind."""
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
    """Sum of the progress of guests that run nothing parallel."""
    return sum(
        run.progress[one.name] for one in mix.guests if not one.parallel
    )


def others_fair(mix: mixes.Mix, cpus: int) -> float:
    """What :func:`others_progress` would be if the CPUs were shared fairly.

    Only for guests that never sleep.
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
    """The stable figures of DESIGN.md section 7, by policy.

    Medians over all runs; the K best efficiencies stand beside them, and
    what each run gave (``efficiencies``; ``others``, see
    :func:`others_progress`).
    ``loss`` is against stock, ``loss_fair`` against the fair share. What is
    against stock is None where that was not measured, or did nothing. A
    policy under which a cluster stood still has a speedup of 0.
    """
    stock = runs.get('stock', [])
    base = _medians(mix, stock)
    figures: dict[str, dict[str, object]] = {}
    for name, done in runs.items():
        if not done:
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
            'progress': {
                one.name: round(
                    statistics.median(run.progress[one.name] for run in done),
                    4,
                )
                for one in mix.guests
            },
        }
        late = [r.window_late_us for r in done if r.window_late_us is not None]
        if any(run.cpus for run in done):
            entry['cpus'] = {
                one.name: round(
                    statistics.median(run.cpus[one.name] for run in done), 3
                )
                for one in mix.guests
            }
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
    each = [others_progress(mix, run) for run in done]
    entry['others'] = [round(value, 4) for value in each]
    now = statistics.median(each)
    before = [others_progress(mix, run) for run in stock]
    base = statistics.median(before) if before else 0.0
    entry['loss'] = round(1 - now / base, 3) if base else None
    if any(one.workload == 'web' for one in mix.guests):
        answers = sorted(
            latency for run in done for latency in run.latencies_ms
        )
        if answers:
            entry['latency_ms'] = {
                'median': round(answers[len(answers) // 2], 2),
                'mean': round(statistics.fmean(answers), 2),
                'p99': round(answers[int(len(answers) * 0.99)], 2),
                'answers_per_run': round(len(answers) / len(done), 1),
            }
    else:
        entry['loss_fair'] = round(1 - now / others_fair(mix, cpus), 3)


def _medians(mix: mixes.Mix, runs: list[Run]) -> dict[str, float]:
    """Median progress of each cluster."""
    if not runs:
        return {}
    progress = [cluster_progress(mix, run) for run in runs]
    return {
        cluster: statistics.median(one[cluster] for one in progress)
        for cluster in mix.clusters
    }


def _mean(speedups: Collection[float]) -> float:
    """Geometric mean; 0 if one cluster stood still, which Python refuses."""
    if min(speedups) <= 0:
        return 0.0
    return round(statistics.geometric_mean(speedups), 3)


def overall(
    figures: Mapping[str, Mapping[str, Mapping[str, object]]],
) -> dict[str, dict[str, object]]:
    """Over all over-committed mixes: geometric mean and worst speedup."""
    result: dict[str, dict[str, object]] = {}
    names = {name for by_policy in figures.values() for name in by_policy}
    for name in sorted(names):
        speedups: list[float] = []
        for mix_name, by_policy in figures.items():
            found = by_policy.get(name, {}).get('speedups')
            mix = mixes.MIXES.get(mix_name)
            if isinstance(found, dict) and mix and mix.overcommitted:
                speedups.extend(found.values())
        if speedups:
            result[name] = {
                'speedup': _mean(speedups),
                'worst_speedup': round(min(speedups), 3),
            }
    return result
