# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Two CPUs that stand for two hosts.

Ordinary processes stand for the members of virtual clusters, and control
groups for their domains. The window player is the agent's own, one for each
host. No guests run, so that nothing but the schedules and the clocks
differs.
"""

import contextlib
import mmap
import struct
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from importlib import resources
from pathlib import Path

from nova_vhpc.agent.actuators import window_player
from nova_vhpc.control import model
from nova_vhpc_lab.testbed import cpu_controller, other_load, toolchain

HIGH, LOW, EQUAL = 102_400, 20, 1024
"""``cpu_shares`` in a cluster's turn, in another's, and without windows."""

_START_S = 0.5


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


class CpuHosts:
    """Runs clusters on CPUs that stand for hosts.

    :param directory: an empty directory for the program and its files.
    :param cpus: the CPUs, one per host.
    :param measure_s: length of one measurement, in seconds.
    :param watch: measures other load on the machine meanwhile.
    :raises ImageError: there is no compiler.
    """

    def __init__(
        self,
        directory: Path,
        cpus: Sequence[int],
        measure_s: float,
        watch: other_load.OtherLoadWatch,
    ) -> None:
        self._directory = directory
        self._cpus = cpus
        self._measure_s = measure_s
        self._watch = watch
        source = (
            resources.files('nova_vhpc_lab.testbed') / 'programs' / 'member.c'
        )
        self._program = directory / 'member'
        toolchain.run_tool('gcc', '-O2', '-o', str(self._program), str(source))

    def run(
        self,
        sets: Sequence[Collection[str]],
        schedules: Sequence[model.WindowSchedule] = (),
        last_clock_error_us: int = 0,
    ) -> dict[str, float]:
        """Return the barriers per second of each cluster.

        :param sets: names of the clusters with a member on each host.
        :param schedules: windows of each host; none for no windows.
        :param last_clock_error_us: how wrong the last host's clock is.
        :raises LabError: there is no usable CPU controller.
        """
        with contextlib.ExitStack() as stack:
            controller = cpu_controller.CpuController.find()
            top = controller.make_group(f'vhpc-hosts-{time.monotonic_ns()}')
            stack.callback(controller.remove_group, top)
            pages: dict[str, mmap.mmap] = {}
            members: dict[tuple[str, int], Member] = {}
            for cluster in sorted(set().union(*sets)):
                path = self._directory / cluster
                path.write_bytes(bytes(mmap.PAGESIZE))
                with open(path, 'r+b') as file:
                    pages[cluster] = mmap.mmap(file.fileno(), mmap.PAGESIZE)
                stack.callback(pages[cluster].close)
                cpus = [
                    cpu
                    for cpu, names in zip(self._cpus, sets, strict=True)
                    if cluster in names
                ]
                for cpu in cpus:
                    group = controller.make_group(f'{top.name}/{cluster}{cpu}')
                    stack.callback(controller.remove_group, group)
                    member = Member(
                        self._program, path, len(cpus), controller, group, cpu
                    )
                    stack.callback(member.end)
                    members[cluster, cpu] = member
            if schedules:
                stack.enter_context(
                    self._windows(members, schedules, last_clock_error_us)
                )
            time.sleep(_START_S)
            with self._watch.watch():
                before = _work(pages)
                began_s = time.monotonic()
                time.sleep(self._measure_s)
                after = _work(pages)
                took_s = time.monotonic() - began_s
            return {
                name: (after[name] - before[name]) / took_s for name in pages
            }

    @contextlib.contextmanager
    def _windows(
        self,
        members: dict[tuple[str, int], Member],
        schedules: Sequence[model.WindowSchedule],
        last_clock_error_us: int,
    ) -> Iterator[None]:
        """Play windows on all hosts."""
        players = []
        for cpu, schedule in zip(self._cpus, schedules, strict=True):
            wrong_us = last_clock_error_us if cpu == self._cpus[-1] else 0
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


def schedule(
    turns: Sequence[tuple[int, Collection[str]]], clusters: Collection[str]
) -> model.WindowSchedule:
    """Return windows.

    :param turns: length of each window, in microseconds, and who runs in it.
    :param clusters: all clusters of the host.
    """
    return model.WindowSchedule(
        tuple(
            model.Turn(
                width_us,
                frozenset(favoured),
                {one: HIGH if one in favoured else LOW for one in clusters},
            )
            for width_us, favoured in turns
        ),
        dict.fromkeys(clusters, EQUAL),
    )


def _work(pages: dict[str, mmap.mmap]) -> dict[str, int]:
    """Return the number of barriers that each cluster has passed."""
    return {
        name: struct.unpack_from('Q', page)[0] for name, page in pages.items()
    }
