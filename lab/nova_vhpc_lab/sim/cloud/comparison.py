# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Compares policies on one simulated cloud, and sums up several seeds."""

import dataclasses
import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc_lab.sim.cloud import bound, placing, running
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Job

STOCK = 'stock'
BOUND = 'bound'

LEAST_PROGRESS = 0.001
"""What counts as this at least in a geometric mean."""

_ALONE = running.Conditions(seconds=3.0, warm_up_s=0.5)


@dataclasses.dataclass(frozen=True, slots=True)
class JobFigures:
    """One job under one policy.

    :ivar part: progress, as a part of running alone.
    :ivar bound: what perfect co-scheduling would give.
    :ivar of_fair: CPU time received, as a part of the fair share.
    :ivar of_stock: progress, as a part of that under stock Linux.
    :ivar response_ratio: median response time, as a multiple of stock Linux;
        None without requests.
    """

    job: Job
    part: float
    bound: float
    of_fair: float
    of_stock: float
    response_ratio: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SeedFigures:
    """One cloud under several policies.

    :ivar policies: the jobs' figures by policy.
    :ivar windows_part: part of the hosts with gang windows, by policy.
    :ivar refused: jobs that found no room, and why.
    :ivar hosts_of: number of hosts of each cluster.
    """

    seed: int
    policies: Mapping[str, tuple[JobFigures, ...]]
    windows_part: Mapping[str, float]
    refused: Mapping[str, str]
    hosts_of: Mapping[str, int]


def compare(
    spec: CloudSpec,
    seed: int,
    policies: Sequence[running.Policy],
    conditions: running.Conditions,
) -> SeedFigures:
    """Place a cloud once, and run it under each policy and the kernel alone.

    :param policies: the one named ``bound`` is computed, not run.
    """
    placed = placing.place(spec, seed)
    jobs = [job for job in spec.jobs if job.name not in placed.refused]
    alone = {
        job.name: _alone(_nameless(job), spec, conditions) for job in jobs
    }
    wanted_cpus = {
        name: alone[job.name].cpus for job in jobs for name in job.vm_names()
    }
    bounds = bound.parts(spec, placed.hosts, wanted_cpus)
    fair = bound.fair_cpus(spec, placed.hosts, wanted_cpus)
    stock = running.run(
        spec, placed.hosts, running.Policy(STOCK), seed, conditions
    )
    figures: dict[str, tuple[JobFigures, ...]] = {}
    windows_part = {}
    for policy in policies:
        if policy.name == BOUND:
            figures[BOUND] = tuple(
                JobFigures(
                    job,
                    bounds[job.name],
                    bounds[job.name],
                    1.0,
                    bounds[job.name]
                    / max(1e-9, _part(job, stock, alone[job.name])),
                )
                for job in jobs
            )
            continue
        if policy.name == STOCK:
            result = stock
        else:
            result = running.run(spec, placed.hosts, policy, seed, conditions)
        windows_part[policy.name] = result.windows_part
        figures[policy.name] = tuple(
            JobFigures(
                job,
                _part(job, result, alone[job.name]),
                bounds[job.name],
                sum(result.vms[name].cpus for name in job.vm_names())
                / sum(fair[name] for name in job.vm_names()),
                _part(job, result, alone[job.name])
                / max(1e-9, _part(job, stock, alone[job.name])),
                _response_ratio(job, result, stock),
            )
            for job in jobs
        )
    return SeedFigures(
        seed,
        figures,
        windows_part,
        placed.refused,
        {
            job.name: len({placed.hosts[name] for name in job.vm_names()})
            for job in jobs
            if job.is_cluster
        },
    )


def _nameless(job: Job) -> Job:
    return dataclasses.replace(job, name='alone', policy=None)


def _alone(
    job: Job, spec: CloudSpec, conditions: running.Conditions
) -> running.VmResult:
    """Return what one member of a job does with nobody beside it."""
    bare = dataclasses.replace(
        spec, name='alone', jobs=(), group_policy=None, hosts=spec.hosts[:1]
    )
    widest = max(spec.hosts, key=lambda host: host.cpus)
    bare = dataclasses.replace(bare, hosts=(widest,))
    return _run_alone(
        job, bare, dataclasses.replace(_ALONE, network=conditions.network)
    )


@functools.lru_cache(maxsize=256)
def _run_alone(
    job: Job, spec: CloudSpec, conditions: running.Conditions
) -> running.VmResult:
    cloud, placement = placing.alone(job, spec)
    result = running.run(
        cloud, placement, running.Policy('alone'), 1, conditions
    )
    return result.vms[job.vm_names()[0]]


def _part(
    job: Job, result: running.CloudResult, alone: running.VmResult
) -> float:
    return result.vms[job.vm_names()[0]].progress / max(1e-9, alone.progress)


def _response_ratio(
    job: Job, result: running.CloudResult, stock: running.CloudResult
) -> float | None:
    name = job.vm_names()[0]
    before = stock.vms[name].response_us[0]
    return result.vms[name].response_us[0] / before if before else None


def summary(seeds: Sequence[SeedFigures], policy: str) -> dict[str, Any]:
    """Return the figures of one policy over all seeds, by their JSON keys."""
    jobs = [one for seed in seeds for one in seed.policies[policy]]
    clusters = [one for one in jobs if one.job.is_cluster]
    singles = [one for one in jobs if not one.job.is_cluster]
    others = [one for one in jobs if not one.job.is_parallel]
    by_name: dict[str, list[float]] = defaultdict(list)
    for one in clusters:
        by_name[one.job.name].append(one.part)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for one in singles:
        by_kind[one.job.kind].append(one.part)
    responses = [one.response_ratio for one in others if one.response_ratio]
    return {
        'geomean': _geomean(one.part for one in clusters),
        'worst': min((one.part for one in clusters), default=None),
        'clusters': {
            name: _geomean(parts) for name, parts in sorted(by_name.items())
        },
        'independents': {
            kind: statistics.fmean(parts)
            for kind, parts in sorted(by_kind.items())
        },
        'loss': 1.0 - statistics.fmean(one.of_stock for one in others)
        if others
        else None,
        'seeds': len(seeds),
        'refused': statistics.fmean(len(seed.refused) for seed in seeds),
        'of_bound': _geomean(one.part / one.bound for one in clusters),
        'of_bound_worst': min(
            (one.part / one.bound for one in clusters), default=None
        ),
        'of_bound_by_seed': [
            _geomean(
                one.part / one.bound
                for one in seed.policies[policy]
                if one.job.is_cluster
            )
            for seed in seeds
        ],
        'of_stock': _geomean(one.of_stock for one in clusters),
        'independents_of_fair': statistics.fmean(
            one.of_fair for one in singles
        )
        if singles
        else None,
        'independents_of_fair_worst': min(
            (one.of_fair for one in singles), default=None
        ),
        'response_ratio': _geomean(responses) if responses else None,
        'windows_part': statistics.fmean(
            seed.windows_part.get(policy, 0.0) for seed in seeds
        ),
    }


def _geomean(parts: Iterable[float]) -> float | None:
    logarithms = [math.log(max(LEAST_PROGRESS, part)) for part in parts]
    return math.exp(statistics.fmean(logarithms)) if logarithms else None
