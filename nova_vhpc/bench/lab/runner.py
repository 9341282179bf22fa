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


"""Measure all policies on the same running guests, in random order.

The speed of a guest differs by a factor of three between two minutes on a
shared machine. So every round measures every policy once, in an order of
its own, and before and after each what a cluster does alone; only figures
of one round are ever divided by each other.
"""

import collections
import contextlib
import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from nova_vhpc.bench.lab import guest, host, kbest, mixes, policies
from nova_vhpc.control import gang_fairness


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """How long to look.

    :ivar settle_s: after a policy was switched on.
    :ivar measure_s: one measurement.
    :ivar alone_s: one measurement of one cluster alone; there is one
        before and after every policy, and the round's best one counts.
    """

    settle_s: float = 2.0
    measure_s: float = 4.0
    alone_s: float = 0.7


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


def measure_mix(
    mix: mixes.Mix,
    image: guest.GuestImage,
    names: Iterable[str],
    timing: Timing,
    scheme: kbest.KBest,
    say: Callable[[str], None],
    cpus: tuple[int, ...] = (0, 1),
    options: Mapping[str, Mapping[str, str] | None] = policies.POLICIES,
) -> dict[str, list[Run]]:
    """Measure one mix until every policy's K best efficiencies agree.

    :param names: of policies, keys of ``options``.
    :returns: runs by policy, in order of time.
    :raises LabError, AgentError: when something does not work.
    """
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with host.Lab(mix, image, cpus) as lab:
        number = 0
        while True:
            todo = [
                name
                for name, done in runs.items()
                if not scheme.done([efficiency(mix, run) for run in done])
            ]
            if not todo:
                return runs
            number += 1
            # Who was measured first had the machine at another speed.
            random.shuffle(todo)
            speeds = [measure_alone(lab, timing)]
            taken: dict[str, _Rates] = {}
            for name in todo:
                taken[name] = _measure_policy(lab, options[name], timing)
                speeds.append(measure_alone(lab, timing))
            alone = {
                # Whatever disturbs makes it slower: the best one counts.
                one.name: max(s[one.name] for s in speeds)
                for one in mix.guests
            }
            for name, rates in taken.items():
                run = Run(
                    number,
                    host.relative(rates.work, alone),
                    rates.latencies_ms,
                    rates.window_late_us,
                    rates.cpus,
                )
                runs[name].append(run)
                say(_line(mix, name, run))


def measure_alone(lab: host.Lab, timing: Timing) -> dict[str, float]:
    """Work per second of each guest when its cluster has the host.

    The vCPUs are pinned apart: that is the best it can do. Guests of one
    kind take turns from round to round, all get the same figure.
    """
    alone: dict[str, float] = {}
    kinds: dict[str, list[tuple[str, ...]]] = {}
    units = [
        tuple(member.name for member in members)
        for members in lab.mix.clusters.values()
    ]
    units += [(one.name,) for one in lab.mix.guests if one.cluster is None]
    for unit in units:
        kind = lab.guests[unit[0]].spec.kind
        kinds.setdefault(kind, []).append(unit)
    for same in kinds.values():
        unit = random.choice(same)
        with lab.pinned_apart(unit), lab.only(unit):
            time.sleep(0.1)
            rates = lab.measure(max(timing.alone_s, lab.mix.cycle_s))
        for other in same:
            for name, like in zip(other, unit, strict=True):
                alone[name] = rates[like]
    if lab.web is not None:
        lab.web.take()
    return alone


@dataclasses.dataclass(frozen=True, slots=True)
class _Rates:
    work: Mapping[str, float]
    latencies_ms: tuple[float, ...]
    window_late_us: float | None
    cpus: Mapping[str, float]


def _measure_policy(
    lab: host.Lab, options: Mapping[str, str] | None, timing: Timing
) -> _Rates:
    late_us: float | None = None
    with contextlib.ExitStack() as stack:
        agent: policies.Agent | None = None
        if options is not None:
            agent = policies.Agent(
                lab.root / 'agent', lab.uri, options, lab.cpus, lab.aside
            )
            stack.enter_context(agent)
        time.sleep(timing.settle_s)
        if lab.web is not None:
            lab.web.take()
        before = lab.cpu_seconds()
        began = time.monotonic()
        rates = lab.measure(timing.measure_s)
        seconds = time.monotonic() - began
        cpus = {
            name: (now - before[name]) / seconds
            for name, now in lab.cpu_seconds().items()
        }
        latencies = lab.web.take() if lab.web is not None else []
        if agent is not None:
            late_us = _late_us(agent.status())
    return _Rates(rates, tuple(latencies), late_us, cpus)


def _late_us(status: Mapping[str, object] | None) -> float | None:
    windows = status.get('windows') if status else None
    if isinstance(windows, dict) and windows.get('playing'):
        late = windows.get('late_us')
        return float(late) if isinstance(late, int | float) else None
    return None


# -- figures ----------------------------------------------------------------


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
    claims = {
        one.name: gang_fairness.Claim(1024, min(one.vcpus, cpus))
        for one in mix.guests
    }
    fair = gang_fairness.fair_cpus(collections.Counter(claims.values()), cpus)
    return sum(
        fair[claims[one.name]] / claims[one.name].cpus
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

    Medians over all runs; the K best efficiencies stand beside them.
    ``loss`` is against stock, ``loss_fair`` against the fair share. What is
    against stock is None where that was not measured, or did nothing.
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
            'efficiency_kbest': round(scheme.best(values), 3),
            'converged': scheme.converged(values),
            'fairness': round(
                statistics.median(fairness(mix, run) for run in done), 3
            ),
            'speedup': (
                round(statistics.geometric_mean(speedups.values()), 3)
                if speedups and min(speedups.values()) > 0
                else None
            ),
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
    now = statistics.median(others_progress(mix, run) for run in done)
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
        if speedups and min(speedups) > 0:
            result[name] = {
                'speedup': round(statistics.geometric_mean(speedups), 3),
                'worst_speedup': round(min(speedups), 3),
            }
    return result


def _line(mix: mixes.Mix, name: str, run: Run) -> str:
    text = (
        f'{mix.name:9s} {run.round:3d} {name:8s} '
        f'efficiency {efficiency(mix, run):5.2f} '
        f'fairness {fairness(mix, run):4.2f}'
    )
    if any(not one.parallel for one in mix.guests):
        text += f' others {others_progress(mix, run):5.2f}'
    if run.latencies_ms:
        middle = statistics.median(run.latencies_ms)
        text += f' latency {middle:6.2f} ms'
    if run.window_late_us is not None:
        text += f' late {run.window_late_us / 1000:4.1f} ms'
    return text


def log_of(root: Path) -> Path:
    """Where a lab's agents log."""
    return root / 'agent' / 'agent.log'
