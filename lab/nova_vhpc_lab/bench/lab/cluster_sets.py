# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Measure what hosts with different sets of clusters lose.

Two CPUs stand for two hosts (:mod:`nova_vhpc_lab.bench.lab.cpu_hosts`).
Clusters *a* and *b* have a member on both, the others are on one host alone.
With slots that the hosts agreed on (:mod:`nova_vhpc.control.slots`) a cluster
runs at the same time on both; with a rotation of each host's own it does so
by chance.
"""

import itertools
import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nova_vhpc.control import model
from nova_vhpc.control.gang import frame_packing, matrix
from nova_vhpc.control.slots import frame, protocol
from nova_vhpc_lab.bench.lab import confidence, cpu_hosts
from nova_vhpc_lab.bench.lab import rounds as rounds_of
from nova_vhpc_lab.testbed import other_load

WINDOW_MS = 50

SPANNING = 'ab'
"""The clusters whose progress is measured; they have a member on each host."""

EQUAL, DIFFERENT = ('abcd', 'abcd'), ('abc', 'abde')
"""Clusters on the first and on the second host."""

_STEP_US = 100_000
_SETTLE_US = 5_000_000


def measure(
    measure_s: float,
    rounds: int,
    say: Callable[[str], None],
    cpus: tuple[int, ...] = (0, 1),
    max_other_load: float = math.inf,
) -> dict[str, Any]:
    """Measure the progress of clusters that span two hosts.

    :param measure_s: length of one measurement, in seconds.
    :param rounds: measurements of each setting.
    :param say: called with one line per measurement.
    :param cpus: two CPUs, each of which stands for a host.
    :param max_other_load: greatest load of something else, in CPUs, at which
        a round counts.
    :returns: ``window_ms``; ``progress`` of the spanning clusters, as a part
        of running alone, medians by setting; ``ranges``, their confidence
        ranges; ``of_equal``, progress with different sets and slots divided
        by that with equal sets, and ``of_equal_range``. Settings are
        ``equal`` and ``different`` (slots), ``rotation`` (different sets,
        each host's own rotation) and ``stock`` (different sets, no windows).
    :raises DisturbedError: something else disturbed too many rounds.
    :raises LabError: there is no usable CPU controller.
    :raises ImageError: there is no compiler.
    """
    results: rounds_of.Rounds = {}
    watch = other_load.OtherLoadWatch(cpus)
    settings: dict[str, tuple[Sequence[str], list[model.WindowSchedule]]] = {
        'equal': (EQUAL, slot_schedules(EQUAL)),
        'different': (DIFFERENT, slot_schedules(DIFFERENT)),
        'rotation': (DIFFERENT, own_rotations(DIFFERENT)),
        'stock': (DIFFERENT, []),
    }
    with tempfile.TemporaryDirectory(prefix='vl-sets-') as name:
        hosts = cpu_hosts.CpuHosts(Path(name), cpus, measure_s, watch)
        for current in rounds_of.undisturbed(
            'sets', watch, max_other_load, rounds, results, say
        ):
            for key in random.sample(sorted(settings), len(settings)):
                sets, schedules = settings[key]
                alone = hosts.run([SPANNING[:1] for _ in cpus])
                rates = hosts.run(sets, schedules)
                progress = sum(rates[one] for one in SPANNING) / (
                    len(SPANNING) * alone[SPANNING[0]]
                )
                rounds_of.keep(current, 'progress', key, progress)
                say(f'sets {key:>9s} progress {progress:5.3f}')
    progress_by_setting = results['progress']
    ranges = {
        key: confidence.range_of(values)
        for key, values in progress_by_setting.items()
    }
    of_equal = confidence.range_of_ratios(
        progress_by_setting['different'], progress_by_setting['equal']
    )
    return {
        'window_ms': WINDOW_MS,
        'progress': {key: round(one.median, 3) for key, one in ranges.items()},
        'ranges': {
            key: [round(one.low, 3), round(one.high, 3)]
            for key, one in ranges.items()
        },
        'of_equal': round(of_equal.median, 3),
        'of_equal_range': [round(of_equal.low, 3), round(of_equal.high, 3)],
    }


def slot_schedules(sets: Sequence[str]) -> list[model.WindowSchedule]:
    """Return the windows of each host after the hosts have agreed on slots.

    :param sets: names of the clusters on each host, all of equal right.
    """
    hosts = [
        protocol.SlotProtocol(f'host{number}', boot=1)
        for number in range(len(sets))
    ]
    for now_us in range(0, _SETTLE_US, _STEP_US):
        for host, names in zip(hosts, sets, strict=True):
            host.demand(
                [
                    protocol.Gang(
                        one,
                        1,
                        1 / len(names),
                        all(one in each for each in sets),
                    )
                    for one in names
                ],
                names,
                1,
                now_us,
            )
        for message in itertools.chain(*(one.step(now_us) for one in hosts)):
            for host in hosts:
                host.receive(message, now_us)
    return [
        _windows(names, host.agreed)
        for host, names in zip(hosts, sets, strict=True)
    ]


def own_rotations(sets: Sequence[str]) -> list[model.WindowSchedule]:
    """Return the windows of hosts that have agreed on nothing.

    :param sets: names of the clusters on each host, all of equal right.
    """
    return [
        cpu_hosts.schedule([(WINDOW_MS * 1000, one) for one in names], names)
        for names in sets
    ]


def _windows(
    names: str, agreed: Mapping[str, model.ClusterSlot | None]
) -> model.WindowSchedule:
    """Return the windows of one host's frame."""
    demands = [matrix.Demand(one, 1, 1 / len(names)) for one in names]
    packing = frame_packing.pack(
        demands,
        {key: slot for key, slot in agreed.items() if slot is not None},
        1,
        is_shared=False,
    )
    windows = packing.windows({}, 0.0)
    frame_us = frame.SLOTS * WINDOW_MS * 1000
    pieces_us = matrix.pieces_us([one.part for one in windows], frame_us)
    return cpu_hosts.schedule(
        [
            (end_us - begin_us, window.gangs)
            for (begin_us, end_us), window in zip(
                pieces_us, windows, strict=True
            )
        ],
        names,
    )
