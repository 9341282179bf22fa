# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Measure which clock error gang windows of several hosts tolerate.

Two CPUs stand for two hosts (:mod:`nova_vhpc_lab.bench.lab.cpu_hosts`); the
clock of the second one is wrong by a given error.
"""

import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nova_vhpc_lab.bench.lab import confidence, cpu_hosts
from nova_vhpc_lab.bench.lab import rounds as rounds_of
from nova_vhpc_lab.testbed import other_load

ERRORS_MS = (0, 1, 2, 5, 10, 20, 50)
"""Clock errors to measure, in milliseconds."""

CLUSTERS = ('a', 'b', 'c')

WINDOW_MS = 50


def measure(
    measure_s: float,
    rounds: int,
    say: Callable[[str], None],
    cpus: tuple[int, ...] = (0, 1),
    max_other_load: float = math.inf,
    errors_ms: tuple[int, ...] = ERRORS_MS,
) -> dict[str, Any]:
    """Measure the efficiency of three clusters on two hosts, by clock error.

    :param measure_s: length of one measurement, in seconds.
    :param rounds: measurements of each clock error.
    :param say: called with one line per measurement.
    :param cpus: two CPUs, each of which stands for a host.
    :param max_other_load: greatest load of something else, in CPUs, at which
        a round counts.
    :param errors_ms: clock errors of the second host, in milliseconds.
    :returns: ``window_ms``, ``stock`` (efficiency without windows) and
        ``by_error_ms``, medians, and ``ranges``, confidence ranges of all of
        them by clock error or ``stock``; 1.0 is the work of a cluster alone.
    :raises DisturbedError: something else disturbed too many rounds.
    :raises LabError: there is no usable CPU controller.
    :raises ImageError: there is no compiler.
    """
    results: rounds_of.Rounds = {}
    watch = other_load.OtherLoadWatch(cpus)
    windows = cpu_hosts.schedule(
        [(WINDOW_MS * 1000, one) for one in CLUSTERS], CLUSTERS
    )
    with tempfile.TemporaryDirectory(prefix='vl-clock-') as name:
        hosts = cpu_hosts.CpuHosts(Path(name), cpus, measure_s, watch)
        for current in rounds_of.undisturbed(
            'clock', watch, max_other_load, rounds, results, say
        ):
            settings: list[int | None] = [None, *errors_ms]
            random.shuffle(settings)
            for error_ms in settings:
                alone = hosts.run([CLUSTERS[:1] for _ in cpus])
                together = hosts.run(
                    [CLUSTERS for _ in cpus],
                    [] if error_ms is None else [windows for _ in cpus],
                    1000 * (error_ms or 0),
                )
                rate = sum(together.values())
                key = 'stock' if error_ms is None else str(error_ms)
                rounds_of.keep(current, 'alone', key, sum(alone.values()))
                rounds_of.keep(current, 'rate', key, rate)
                say(f'clock error {key:>5s} ms {rate:9.0f} barriers/s')
    # Other load on the machine can only slow a cluster down.
    best = max(max(values) for values in results['alone'].values())
    ranges = {
        key: confidence.range_of([value / best for value in values])
        for key, values in results['rate'].items()
    }
    medians = {key: round(one.median, 3) for key, one in ranges.items()}
    return {
        'window_ms': WINDOW_MS,
        'stock': medians.pop('stock'),
        'by_error_ms': dict(
            sorted(medians.items(), key=lambda item: int(item[0]))
        ),
        'ranges': {
            key: [round(one.low, 3), round(one.high, 3)]
            for key, one in ranges.items()
        },
    }
