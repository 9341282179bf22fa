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


"""Measure what the papers claim of time slices, pools and paradigms.

No agent here: periods and quotas are written directly, so that only the
slice differs. See :mod:`nova_vhpc.bench.lab.claims` for the page.
"""

import dataclasses
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

_SCALING = mixes.Mix(
    'scaling',
    'the same program on more and more vCPUs',
    tuple(_cpi(f'c{vcpus}', vcpus) for vcpus in (1, 2, 4)),
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
    with host.Lab(_SCALING, image, cpus) as lab:
        found['scaling'] = _scaling(lab, timing, rounds)
        say(f'scaling {found["scaling"]}')
    found['clock'] = clock.measure(timing.measure_s, rounds, say, cpus)
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
        base = statistics.median(by_slice['none'])
        result[group] = {
            key: round(statistics.median(values) / base, 3) if base else None
            for key, values in by_slice.items()
        }
    return result


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
