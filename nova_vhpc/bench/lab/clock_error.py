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


"""Measure which clock error gang windows of several hosts tolerate.

Two CPUs stand for two hosts, ordinary processes for the members of a virtual
cluster, and control groups for their domains. Schedule and window player are
the agent's own; there is one player per host, and the clock of the second one
is wrong by a given error. No guests run, so that nothing but that error
differs.
"""

import contextlib
import functools
import math
import mmap
import random
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from nova_vhpc.agent.actuators import window_player
from nova_vhpc.bench.lab import confidence
from nova_vhpc.bench.lab import rounds as rounds_of
from nova_vhpc.control import model
from nova_vhpc.testbed import cpu_controller, other_load, toolchain

ERRORS_MS = (0, 1, 2, 5, 10, 20, 50)
"""Clock errors to measure, in milliseconds."""

CLUSTERS = ('a', 'b', 'c')

WINDOW_MS = 50

HIGH, LOW, EQUAL = 102_400, 20, 1024
"""``cpu_shares`` in a cluster's turn, in another's, and without windows."""


class Member:
    """The process that stands for one cluster's member on one host.

    :param program: the compiled ``member.c``.
    :param page: file that the cluster's members map, to wait for each other.
    :param size: number of members.
    :param controller: the CPU controller.
    :param group: control group that stands for the member's domain.
    :param cpu: CPU that stands for the host.
    """

    def __init__(
        self,
        program: Path,
        page: Path,
        size: int,
        controller: cpu_controller.CpuController,
        group: Path,
        cpu: int,
    ) -> None:
        self._controller = controller
        self._group = group
        self._process = subprocess.Popen(
            (
                # The program spins until it is killed, and must not outlive
                # this process.
                *('setpriv', '--pdeathsig', 'KILL', '--'),
                *('taskset', '-c', str(cpu)),
                *(str(program), str(page), str(size)),
            )
        )
        (group / 'cgroup.procs').write_text(str(self._process.pid))

    def set_shares(self, shares: int) -> bool:
        """Set ``cpu_shares``.

        :returns: True: the window player's write was carried out.
        """
        self._controller.set_weight(self._group, shares / EQUAL)
        return True

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()


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
    with tempfile.TemporaryDirectory(prefix='vl-clock-') as name:
        run = functools.partial(
            _run, _build(Path(name)), Path(name), measure_s, cpus, watch
        )
        for current in rounds_of.undisturbed(
            'clock', watch, max_other_load, rounds, results, say
        ):
            settings: list[int | None] = [None, *errors_ms]
            random.shuffle(settings)
            for error_ms in settings:
                alone = run(CLUSTERS[:1], None)
                rate = run(CLUSTERS, error_ms)
                key = 'stock' if error_ms is None else str(error_ms)
                rounds_of.keep(current, 'alone', key, alone)
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


def _build(directory: Path) -> Path:
    """Compile ``member.c``; return the program."""
    source = resources.files('nova_vhpc.testbed') / 'programs' / 'member.c'
    program = directory / 'member'
    toolchain.run_tool('gcc', '-O2', '-o', str(program), str(source))
    return program


def _run(
    program: Path,
    directory: Path,
    measure_s: float,
    cpus: tuple[int, ...],
    watch: other_load.OtherLoadWatch,
    clusters: tuple[str, ...],
    error_ms: int | None,
) -> float:
    """Return the barriers per second of all clusters together.

    :param error_ms: clock error of the second host, in milliseconds; None
        for no windows.
    """
    with contextlib.ExitStack() as stack:
        pages: list[mmap.mmap] = []
        members: dict[tuple[str, int], Member] = {}
        controller = cpu_controller.CpuController.find()
        top = controller.make_group(f'vhpc-clock-{time.monotonic_ns()}')
        stack.callback(controller.remove_group, top)
        for cluster in clusters:
            path = directory / cluster
            path.write_bytes(bytes(mmap.PAGESIZE))
            with open(path, 'r+b') as file:
                pages.append(mmap.mmap(file.fileno(), mmap.PAGESIZE))
            stack.callback(pages[-1].close)
            for cpu in cpus:
                group = controller.make_group(f'{top.name}/{cluster}{cpu}')
                stack.callback(controller.remove_group, group)
                member = Member(
                    program, path, len(cpus), controller, group, cpu
                )
                stack.callback(member.end)
                members[cluster, cpu] = member
        if error_ms is not None:
            stack.enter_context(_windows(members, clusters, error_ms, cpus))
        time.sleep(0.5)
        with watch.watch():
            before = _work(pages)
            began = time.monotonic()
            time.sleep(measure_s)
            return (_work(pages) - before) / (time.monotonic() - began)


def _work(pages: list[mmap.mmap]) -> int:
    """Return the number of barriers that all clusters have passed."""
    return sum(struct.unpack_from('Q', page)[0] for page in pages)


@contextlib.contextmanager
def _windows(
    members: dict[tuple[str, int], Member],
    clusters: tuple[str, ...],
    error_ms: int,
    cpus: tuple[int, ...],
) -> Iterator[None]:
    """Play the same windows on all hosts; the last host's clock is wrong."""
    schedule = model.WindowSchedule(
        tuple(
            model.Turn(
                WINDOW_MS * 1000,
                frozenset({favoured}),
                {one: HIGH if one == favoured else LOW for one in clusters},
            )
            for favoured in clusters
        ),
        dict.fromkeys(clusters, EQUAL),
    )
    players = []
    for cpu in cpus:
        wrong_us = error_ms * 1000 if cpu == cpus[-1] else 0
        player = window_player.WindowPlayer(
            lambda name, shares, cpu=cpu: (  # type: ignore[misc]
                members[name, cpu].set_shares(shares)
            ),
            lambda wrong_us=wrong_us: time.time_ns() // 1000 + wrong_us,  # type: ignore[misc]
        )
        player.play(schedule)
        players.append(player)
    try:
        yield
    finally:
        for player in players:
            player.stop()
