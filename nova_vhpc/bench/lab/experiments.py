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
differ. See :mod:`nova_vhpc.bench.lab.claims` for the page.
"""

import dataclasses
import datetime
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import libvirt

from nova_vhpc.bench.lab import clock, guest, host, mixes, runner

SLICES_MS = (100, 50, 20, 8, 4, 2)
"""libvirt takes nothing below 1 ms."""

TALK_SLICES_MS = (100, 20, 4)

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

_THREE = dataclasses.replace(mixes.MIXES['clusters'], name='slices')


def _cpi(name: str, vcpus: int) -> mixes.Guest:
    return mixes.Guest(
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
            mixes.Guest(name, 'stream', 'stream', vcpus=1, parallel=False)
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
    image: guest.GuestImage,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
    cpus: tuple[int, ...] = (0, 1),
) -> dict[str, Any]:
    """All experiments; the ``claims`` of the lab's JSON.

    :param rounds: repeats of each setting, in random order; medians count.
    """
    found: dict[str, Any] = {}
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    with host.Lab(_THREE, image, cpus) as lab:
        found['slices'] = _slices(
            lab, SLICES_MS, 1 / 3, timing, rounds, {'a': 'abc'}, say
        )
    with host.Lab(_TALK, image, cpus) as lab:
        found['talk'] = _slices(
            lab,
            TALK_SLICES_MS,
            1 / 2,
            timing,
            rounds,
            {'cg': ('p0', 'p1'), 'ep': 'ef'},
            say,
        )
        found['pool'] = _pool(lab, timing, rounds, say)
    with host.Lab(_MEMORY, image, cpus) as lab:
        found['memory'] = _slices(
            lab,
            TALK_SLICES_MS,
            1 / 2,
            timing,
            rounds,
            {'stream': 'st', 'cpi': 'ef'},
            say,
        )
    with host.Lab(_PACKETS, image, cpus) as lab:
        found['spare'] = _spare(lab, timing, rounds, say)
    with host.Lab(_SCALING, image, cpus) as lab:
        found['scaling'] = _scaling(lab, timing, rounds)
        say(f'scaling {found["scaling"]}')
    found['clock'] = clock.measure(timing.measure_s, rounds, say, cpus)
    found['when'] = dict.fromkeys(found, when)
    return found


def _slices(
    lab: host.Lab,
    slices_ms: tuple[int, ...],
    share: float,
    timing: runner.Timing,
    rounds: int,
    groups: Mapping[str, Any],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Work and latency by slice, each group relative to no quota."""
    work: dict[str, dict[str, list[float]]] = {}
    waits: dict[str, list[float]] = {}
    for _ in range(rounds):
        settings: list[int | None] = [None, *slices_ms]
        random.shuffle(settings)
        for slice_ms in settings:
            key = 'none' if slice_ms is None else str(slice_ms)
            _set_slice(lab, slice_ms, share)
            time.sleep(0.5)
            before = _schedstat(lab)
            rates = lab.measure(timing.measure_s)
            after = _schedstat(lab)
            runs = max(1, after[1] - before[1])
            wait_ms = (after[0] - before[0]) / runs / 1e6
            waits.setdefault(key, []).append(wait_ms)
            for group, names in groups.items():
                total = sum(rates[name] for name in names)
                work.setdefault(group, {}).setdefault(key, []).append(total)
            say(f'{lab.mix.name:9s} slice {key:>4s} ms wait {wait_ms:6.2f} ms')
    _set_slice(lab, None, share)
    result: dict[str, Any] = {
        'wait_ms': {
            key: round(statistics.median(values), 3)
            for key, values in waits.items()
        }
    }
    for group, by_slice in work.items():
        result[group] = {
            key: _ratio(values, by_slice['none'])
            for key, values in by_slice.items()
        }
    return result


def _pool(
    lab: host.Lab,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, float | None]:
    """Work with an I/O and a computing pool, relative to none.

    As the I/O-perception paper had them in section V: of equal size, and
    who communicates is in the one, who computes in the other.
    """
    talkers, others = ('p0', 'p1'), ('e', 'f')
    io, computing = lab.cpus[-1], lab.cpus[0]
    work: dict[tuple[str, bool], list[float]] = {}
    for _ in range(rounds):
        for pools in random.sample((False, True), 2):
            with (
                lab.threads_on(talkers, io if pools else None),
                lab.threads_on(others, computing if pools else None),
            ):
                time.sleep(0.5)
                rates = lab.measure(timing.measure_s)
            for group, names in (('cg', talkers), ('ep', others)):
                total = sum(rates[name] for name in names)
                work.setdefault((group, pools), []).append(total)
    found = {
        group: _ratio(work[group, True], work[group, False])
        for group in ('cg', 'ep')
    }
    say(f'pool {found}')
    return found


def _spare(
    lab: host.Lab,
    timing: runner.Timing,
    rounds: int,
    say: Callable[[str], None],
) -> float | None:
    """Work of a cluster with a CPU for its packets, over that without.

    In both cases its vCPUs are on one CPU and QEMU's own threads, which
    carry the packets, on the other; another guest has that to itself, or
    is suspended.
    """
    talkers = ('p0', 'p1')
    guests_on, packets_on = lab.cpus[0], lab.cpus[-1]
    work: dict[bool, list[float]] = {}
    with (
        lab.threads_on(talkers, guests_on),
        lab.threads_on(talkers, packets_on, vcpus=False),
        lab.threads_on(('e',), packets_on),
    ):
        for _ in range(rounds):
            for spare in random.sample((False, True), 2):
                with lab.only(talkers if spare else (*talkers, 'e')):
                    time.sleep(0.5)
                    rates = lab.measure(timing.measure_s)
                total = sum(rates[name] for name in talkers)
                work.setdefault(spare, []).append(total)
    found = _ratio(work[True], work[False])
    say(f'spare CPU {found}')
    return found


def _ratio(values: list[float], base: list[float]) -> float | None:
    """Of medians; None where there is nothing to compare with."""
    below = statistics.median(base)
    return round(statistics.median(values) / below, 3) if below else None


def _set_slice(lab: host.Lab, slice_ms: int | None, share: float) -> None:
    for running in lab.guests.values():
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


def _schedstat(lab: host.Lab) -> tuple[int, int]:
    """Wait (ns) and switches of all vCPU threads together."""
    each = [running.schedstat() for running in lab.guests.values()]
    return sum(one[1] for one in each), sum(one[2] for one in each)


def _scaling(
    lab: host.Lab, timing: runner.Timing, rounds: int
) -> dict[str, float]:
    """Speed of each guest alone, relative to the one with one vCPU."""
    rates: dict[str, list[float]] = {name: [] for name in lab.guests}
    for _ in range(rounds * 2):
        for name in lab.guests:
            with lab.only((name,)):
                time.sleep(0.1)
                rates[name].append(lab.measure(timing.alone_s)[name])
    base = statistics.median(rates['c1'])
    return {
        name.removeprefix('c'): round(statistics.median(values) / base, 3)
        for name, values in rates.items()
    }
