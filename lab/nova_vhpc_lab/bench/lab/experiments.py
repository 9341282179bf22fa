# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Measure what the papers claim of slices, pools, packets and scaling.

No agent runs: periods, quotas and CPUs are set directly, so that nothing else
differs. :mod:`nova_vhpc_lab.bench.lab.paper_claims` writes the page.
"""

import dataclasses
import datetime
import functools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import libvirt

from nova_vhpc_lab.bench.lab import (
    clock_error,
    cluster_sets,
    confidence,
    mixes,
    runner,
)
from nova_vhpc_lab.bench.lab.guest_set import GuestSet
from nova_vhpc_lab.bench.lab.rounds import (
    DisturbedError,
    Rounds,
    keep,
    undisturbed,
)
from nova_vhpc_lab.testbed import guest
from nova_vhpc_lab.testbed.image import GuestImage

Experiment = Callable[
    [GuestSet, runner.Timing, int, Callable[[str], None]], tuple[Any, Rounds]
]
"""Takes guests, timing, rounds and what reports progress; returns the medians
and the results by round."""

SLICES_MS = (100, 50, 20, 8, 4, 2)
"""Time slices to measure, in ms; libvirt accepts none below 1 ms."""

TALK_SLICES_MS = (100, 20, 4)


_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

_THREE = dataclasses.replace(mixes.MIXES['clusters'], name='slices')


def _cpi(name: str, vcpus: int) -> guest.GuestSpec:
    return guest.GuestSpec(
        name=name, workload='cpi', kind=f'cpi{vcpus}', vcpus=vcpus
    )


_TALK = mixes.Mix(
    'talk',
    'a cluster that communicates beside programs that do not',
    (
        *(one for one in mixes.MIXES['network'].guests if one.cluster == 'p'),
        _cpi('e', 1),
        _cpi('f', 1),
    ),
)

_MEMORY = mixes.Mix(
    'memory',
    'memory-bound programs beside programs that compute',
    (
        *(
            guest.GuestSpec(name, 'stream', 'stream', vcpus=1, parallel=False)
            for name in 'st'
        ),
        _cpi('e', 1),
        _cpi('f', 1),
    ),
)

_SCALING = mixes.Mix(
    'scaling',
    'the same program on more and more vCPUs',
    tuple(_cpi(f'c{vcpus}', vcpus) for vcpus in (1, 2, 4)),
)


_PACKETS = mixes.Mix(
    'packets',
    'a cluster that communicates beside a program on the other CPU',
    (*_TALK.guests[:2], _cpi('e', 1)),
)


def measure(
    image: GuestImage,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
    cpus: tuple[int, ...] = (0, 1),
) -> dict[str, Any]:
    """Carry out all experiments.

    :param image: kernel and initramfs of the guests.
    :param timing: lengths of the measurements.
    :param rounds: measurements of each setting, in random order.
    :param say: called with lines that report progress.
    :param cpus: the two host CPUs to use.
    :returns: ``claims`` of the lab's JSON: medians by experiment, ``when``
        each was measured, and ``rounds``, the results by experiment, see
        :data:`.Rounds`. Experiments without an undisturbed round are missing.
    """
    claims: dict[str, Any] = {}
    rounds_by_experiment: dict[str, Rounds] = {}
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    slices = functools.partial(
        _slices, slices_ms=SLICES_MS, share=1 / 3, groups={'a': 'abc'}
    )
    talk_slices = functools.partial(
        _slices, slices_ms=TALK_SLICES_MS, share=1 / 2
    )
    talk = functools.partial(
        talk_slices, groups={'cg': ('p0', 'p1'), 'ep': 'ef'}
    )
    memory = functools.partial(
        talk_slices, groups={'stream': 'st', 'cpi': 'ef'}
    )
    experiments: tuple[tuple[mixes.Mix, dict[str, Experiment]], ...] = (
        (_THREE, {'slices': slices}),
        (_TALK, {'talk': talk, 'pool': _pool}),
        (_MEMORY, {'memory': memory}),
        (_PACKETS, {'spare': _spare}),
        (_SCALING, {'scaling': _scaling}),
    )
    for mix, by_name in experiments:
        with GuestSet(mix, image, cpus) as guest_set:
            for name, experiment in by_name.items():
                try:
                    claims[name], rounds_by_experiment[name] = experiment(
                        guest_set, timing, rounds, say
                    )
                except DisturbedError as error:
                    say(f'{name}: no figures: {error}')
    for name, on_cpu_hosts in (
        ('clock', clock_error.measure),
        ('sets', cluster_sets.measure),
    ):
        try:
            claims[name] = on_cpu_hosts(
                timing.measure_s, rounds, say, cpus, timing.max_other_load
            )
        except DisturbedError as error:
            say(f'{name}: no figures: {error}')
    claims['when'] = dict.fromkeys(claims, when)
    claims['rounds'] = rounds_by_experiment
    return claims


def _slices(
    guest_set: GuestSet,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
    slices_ms: tuple[int, ...],
    share: float,
    groups: Mapping[str, Any],
) -> tuple[dict[str, Any], Rounds]:
    """Measure work and wait by time slice.

    :param slices_ms: time slices, in ms, besides the one without a quota.
    :param share: CPUs per vCPU, 0 to 1: slice divided by period.
    :param groups: names of guests by the figure that adds up their work.
    :returns: ``wait_ms`` and the groups' work relative to no quota, each by
        slice; and the results by round.
    """
    results: Rounds = {}
    for current in _rounds(guest_set, timing, rounds, results, say):
        settings: list[int | None] = [None, *slices_ms]
        random.shuffle(settings)
        for slice_ms in settings:
            key = 'none' if slice_ms is None else str(slice_ms)
            _set_slice(guest_set, slice_ms, share)
            time.sleep(0.5)
            before = _schedstat(guest_set)
            rates = guest_set.measure(timing.measure_s)
            after = _schedstat(guest_set)
            runs = max(1, after[1] - before[1])
            wait_ms = (after[0] - before[0]) / runs / 1e6
            keep(current, 'wait_ms', key, wait_ms)
            for group, names in groups.items():
                keep(current, group, key, sum(rates[name] for name in names))
            say(
                f'{guest_set.mix.name:9s} slice {key:>4s} ms '
                f'wait {wait_ms:6.2f} ms'
            )
    _set_slice(guest_set, None, share)
    result: dict[str, Any] = {
        'wait_ms': {
            key: round(statistics.median(values), 3)
            for key, values in results['wait_ms'].items()
        }
    }
    for group in groups:
        result[group] = _ratios(results[group], 'none')
    return result, results


def _pool(
    guest_set: GuestSet,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
) -> tuple[dict[str, float | None], Rounds]:
    """Measure the work with an I/O pool and a computing pool.

    As in section V of the I/O perception paper, both pools are of equal size;
    guests that communicate are in the I/O pool, guests that compute in the
    other.

    :returns: work with pools relative to no pools, by group of guests; and the
        results by round.
    """
    talkers, others = ('p0', 'p1'), ('e', 'f')
    io, computing = guest_set.cpus[-1], guest_set.cpus[0]
    results: Rounds = {}
    for current in _rounds(guest_set, timing, rounds, results, say):
        for pools in random.sample((False, True), 2):
            with (
                guest_set.threads_on(talkers, io if pools else None),
                guest_set.threads_on(others, computing if pools else None),
            ):
                time.sleep(0.5)
                rates = guest_set.measure(timing.measure_s)
            key = 'pools' if pools else 'none'
            for group, names in (('cg', talkers), ('ep', others)):
                keep(current, group, key, sum(rates[name] for name in names))
    ratios = {
        group: _ratio(by_setting['pools'], by_setting['none'])
        for group, by_setting in results.items()
    }
    say(f'pool {ratios}')
    return ratios, results


def _spare(
    guest_set: GuestSet,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
) -> tuple[float | None, Rounds]:
    """Measure the work of a cluster with and without a CPU for its packets.

    In both cases the vCPUs of the cluster are on one CPU, and QEMU's other
    threads, which carry the packets, on the other CPU. Another guest keeps
    that CPU busy, or is suspended.

    :returns: work with the spare CPU relative to work without it; and the
        results by round.
    """
    talkers = ('p0', 'p1')
    guests_on, packets_on = guest_set.cpus[0], guest_set.cpus[-1]
    results: Rounds = {}
    with (
        guest_set.threads_on(talkers, guests_on),
        guest_set.threads_on(talkers, packets_on, vcpus=False),
        guest_set.threads_on(('e',), packets_on),
    ):
        for current in _rounds(guest_set, timing, rounds, results, say):
            for spare in random.sample((False, True), 2):
                with guest_set.only(talkers if spare else (*talkers, 'e')):
                    time.sleep(0.5)
                    rates = guest_set.measure(timing.measure_s)
                key = 'spare' if spare else 'none'
                keep(current, 'cg', key, sum(rates[name] for name in talkers))
    ratio = _ratio(results['cg']['spare'], results['cg']['none'])
    say(f'spare CPU {ratio}')
    return ratio, results


def _rounds(
    guest_set: GuestSet,
    timing: runner.Timing,
    rounds: int,
    results: Rounds,
    say: Callable[[str], None],
) -> Iterator[Rounds]:
    """Yield a dict for each round's values; see :func:`.undisturbed`."""
    return undisturbed(
        guest_set.mix.name,
        guest_set.other_load,
        timing.max_other_load,
        rounds,
        results,
        say,
    )


def _ratios(
    by_setting: Mapping[str, list[float]], base: str
) -> dict[str, float | None]:
    """Return the median ratio of each setting to the base setting."""
    return {
        setting: _ratio(values, by_setting[base])
        for setting, values in by_setting.items()
    }


def _ratio(values: list[float], base: list[float]) -> float | None:
    """Return the median ratio; None if there is no round to compare."""
    try:
        return round(confidence.range_of_ratios(values, base).median, 3)
    except statistics.StatisticsError:
        return None


def _set_slice(
    guest_set: GuestSet, slice_ms: int | None, share: float
) -> None:
    """Set the time slice of all guests; None removes the quota."""
    period_us = 100_000 if slice_ms is None else round(slice_ms * 1000 / share)
    for running in guest_set.guests.values():
        write = running.domain.setSchedulerParametersFlags
        write({'vcpu_quota': -1, 'vcpu_period': period_us}, _LIVE)
        if slice_ms is not None:
            write({'vcpu_quota': slice_ms * 1000}, _LIVE)


def _schedstat(guest_set: GuestSet) -> tuple[int, int]:
    """Return wait (ns) and time slices of all vCPU threads together."""
    counters = [running.schedstat() for running in guest_set.guests.values()]
    return (
        sum(waited for _, waited, _ in counters),
        sum(switches for _, _, switches in counters),
    )


def _scaling(
    guest_set: GuestSet,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
) -> tuple[dict[str, float | None], Rounds]:
    """Measure each guest alone, relative to the guest with one vCPU."""
    results: Rounds = {}
    for current in _rounds(guest_set, timing, rounds * 2, results, say):
        for name in guest_set.guests:
            with guest_set.only((name,)):
                time.sleep(0.1)
                rate = guest_set.measure(timing.alone_s)[name]
                keep(current, 'ep', name.removeprefix('c'), rate)
    ratios = _ratios(results['ep'], '1')
    say(f'scaling {ratios}')
    return ratios, results
