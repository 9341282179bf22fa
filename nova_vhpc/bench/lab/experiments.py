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


"""Measure what the papers claim of slices, pools, packets and paradigms.

No agent here: periods, quotas and CPUs are set directly, so that only these
differ. See :mod:`nova_vhpc.bench.lab.paper_claims` for the page.
"""

import dataclasses
import datetime
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import libvirt

from nova_vhpc.bench.lab import (
    clock_error,
    confidence,
    mixes,
    runner,
)
from nova_vhpc.bench.lab.guest_set import GuestSet
from nova_vhpc.testbed import guest
from nova_vhpc.testbed.image import GuestImage

Rounds = dict[str, dict[str, list[float]]]
"""Of one experiment: by figure, by setting, one value per round."""

SLICES_MS = (100, 50, 20, 8, 4, 2)
"""libvirt takes nothing below 1 ms."""

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
    'programs that are bound by memory beside such that compute',
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
    """All experiments; the ``claims`` of the lab's JSON.

    :param rounds: repeats of each setting, in random order; medians count.
    :returns: figures by experiment, ``when`` each was measured, and
        ``rounds``: what each round gave, see :data:`Rounds`.
    """
    found: dict[str, Any] = {}
    each: dict[str, Rounds] = {}
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    with GuestSet(_THREE, image, cpus) as guest_set:
        found['slices'], each['slices'] = _slices(
            guest_set, SLICES_MS, 1 / 3, timing, rounds, {'a': 'abc'}, say
        )
    with GuestSet(_TALK, image, cpus) as guest_set:
        found['talk'], each['talk'] = _slices(
            guest_set,
            TALK_SLICES_MS,
            1 / 2,
            timing,
            rounds,
            {'cg': ('p0', 'p1'), 'ep': 'ef'},
            say,
        )
        found['pool'], each['pool'] = _pool(guest_set, timing, rounds, say)
    with GuestSet(_MEMORY, image, cpus) as guest_set:
        found['memory'], each['memory'] = _slices(
            guest_set,
            TALK_SLICES_MS,
            1 / 2,
            timing,
            rounds,
            {'stream': 'st', 'cpi': 'ef'},
            say,
        )
    with GuestSet(_PACKETS, image, cpus) as guest_set:
        found['spare'], each['spare'] = _spare(guest_set, timing, rounds, say)
    with GuestSet(_SCALING, image, cpus) as guest_set:
        found['scaling'], each['scaling'] = _scaling(guest_set, timing, rounds)
        say(f'scaling {found["scaling"]}')
    found['clock'] = clock_error.measure(timing.measure_s, rounds, say, cpus)
    found['when'] = dict.fromkeys(found, when)
    found['rounds'] = each
    return found


def _slices(
    guest_set: GuestSet,
    slices_ms: tuple[int, ...],
    share: float,
    timing: runner.Timing,
    rounds: int,
    groups: Mapping[str, Any],
    say: Callable[[str], None],
) -> tuple[dict[str, Any], Rounds]:
    """Work and latency by slice, each group relative to no quota."""
    found: Rounds = {}
    for _ in range(rounds):
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
            _keep(found, 'wait_ms', key, wait_ms)
            for group, names in groups.items():
                _keep(found, group, key, sum(rates[name] for name in names))
            say(
                f'{guest_set.mix.name:9s} slice {key:>4s} ms '
                f'wait {wait_ms:6.2f} ms'
            )
    _set_slice(guest_set, None, share)
    result: dict[str, Any] = {
        'wait_ms': {
            key: round(statistics.median(values), 3)
            for key, values in found['wait_ms'].items()
        }
    }
    for group in groups:
        by_slice = found[group]
        result[group] = {
            key: _ratio(values, by_slice['none'])
            for key, values in by_slice.items()
        }
    return result, found


def _pool(
    guest_set: GuestSet,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
) -> tuple[dict[str, float | None], Rounds]:
    """Work with an I/O and a computing pool, relative to none.

    As the I/O-perception paper had them in section V: of equal size, and
    who communicates is in the one, who computes in the other.
    """
    talkers, others = ('p0', 'p1'), ('e', 'f')
    io, computing = guest_set.cpus[-1], guest_set.cpus[0]
    found: Rounds = {}
    for _ in range(rounds):
        for pools in random.sample((False, True), 2):
            with (
                guest_set.threads_on(talkers, io if pools else None),
                guest_set.threads_on(others, computing if pools else None),
            ):
                time.sleep(0.5)
                rates = guest_set.measure(timing.measure_s)
            key = 'pools' if pools else 'none'
            for group, names in (('cg', talkers), ('ep', others)):
                _keep(found, group, key, sum(rates[name] for name in names))
    ratios = {
        group: _ratio(by_setting['pools'], by_setting['none'])
        for group, by_setting in found.items()
    }
    say(f'pool {ratios}')
    return ratios, found


def _spare(
    guest_set: GuestSet,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
) -> tuple[float | None, Rounds]:
    """Work of a cluster with a CPU for its packets, over that without.

    In both cases its vCPUs are on one CPU and QEMU's own threads, which
    carry the packets, on the other; another guest has that to itself, or
    is suspended.
    """
    talkers = ('p0', 'p1')
    guests_on, packets_on = guest_set.cpus[0], guest_set.cpus[-1]
    found: Rounds = {}
    with (
        guest_set.threads_on(talkers, guests_on),
        guest_set.threads_on(talkers, packets_on, vcpus=False),
        guest_set.threads_on(('e',), packets_on),
    ):
        for _ in range(rounds):
            for spare in random.sample((False, True), 2):
                with guest_set.only(talkers if spare else (*talkers, 'e')):
                    time.sleep(0.5)
                    rates = guest_set.measure(timing.measure_s)
                key = 'spare' if spare else 'none'
                _keep(found, 'cg', key, sum(rates[name] for name in talkers))
    ratio = _ratio(found['cg']['spare'], found['cg']['none'])
    say(f'spare CPU {ratio}')
    return ratio, found


def _keep(found: Rounds, figure: str, setting: str, value: float) -> None:
    by_setting = found.setdefault(figure, {})
    by_setting.setdefault(setting, []).append(round(value, 3))


def _ratio(values: list[float], base: list[float]) -> float | None:
    """Median over the rounds; None where there is nothing to compare."""
    try:
        return round(confidence.range_of_ratios(values, base).median, 3)
    except statistics.StatisticsError:
        return None


def _set_slice(
    guest_set: GuestSet, slice_ms: int | None, share: float
) -> None:
    for running in guest_set.guests.values():
        parameters = (
            {'vcpu_quota': -1, 'vcpu_period': 100_000}
            if slice_ms is None
            else {
                'vcpu_quota': -1,
                'vcpu_period': round(slice_ms * 1000 / share),
            }
        )
        running.domain.setSchedulerParametersFlags(parameters, _LIVE)
        if slice_ms is not None:
            running.domain.setSchedulerParametersFlags(
                {'vcpu_quota': slice_ms * 1000}, _LIVE
            )


def _schedstat(guest_set: GuestSet) -> tuple[int, int]:
    """Wait (ns) and switches of all vCPU threads together."""
    each = [running.schedstat() for running in guest_set.guests.values()]
    return sum(one[1] for one in each), sum(one[2] for one in each)


def _scaling(
    guest_set: GuestSet, timing: runner.Timing, rounds: int
) -> tuple[dict[str, float | None], Rounds]:
    """Speed of each guest alone, relative to the one with one vCPU."""
    found: Rounds = {}
    for _ in range(rounds * 2):
        for name in guest_set.guests:
            with guest_set.only((name,)):
                time.sleep(0.1)
                rate = guest_set.measure(timing.alone_s)[name]
                _keep(found, 'ep', name.removeprefix('c'), rate)
    by_vcpus = found['ep']
    return {
        vcpus: _ratio(values, by_vcpus['1'])
        for vcpus, values in by_vcpus.items()
    }, found
