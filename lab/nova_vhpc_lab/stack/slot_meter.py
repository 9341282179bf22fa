# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Measure in which slots of the wall clock guests have the CPU."""

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nova_vhpc.linux import qemu_process

_STEP_S = 0.004


def cpu_of_slots(
    servers: Iterable[str], slot_us: int, slots: int, duration_s: float
) -> dict[str, list[float]]:
    """Measure the CPU time of servers' first vCPUs by slot.

    :param servers: IDs of the servers.
    :param slot_us: length of a slot, in microseconds.
    :param slots: number of slots of a frame.
    :param duration_s: time to measure, in seconds.
    :returns: for each slot, the part of it that a server had a CPU, by ID.
    """
    processes = qemu_process.Processes()
    files = {}
    for server in servers:
        pid = processes.find(server)
        (thread,) = processes.vcpu_threads(pid, range(1))
        files[server] = Path(f'/proc/{pid}/task/{thread}/schedstat')
    readings = [_read(files)]
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        time.sleep(_STEP_S)
        readings.append(_read(files))
    return {
        server: parts(
            [(at_us, run_us[server]) for at_us, run_us in readings],
            slot_us,
            slots,
        )
        for server in files
    }


def _read(files: Mapping[str, Path]) -> tuple[float, dict[str, float]]:
    """Return the time and what each server has run, in microseconds."""
    return time.time() * 1e6, {
        server: int(file.read_text().split()[0]) / 1000
        for server, file in files.items()
    }


def parts(
    readings: Sequence[tuple[float, float]], slot_us: int, slots: int
) -> list[float]:
    """Return the part of each slot that was run.

    What was run between two readings counts for the slot in their middle.

    :param readings: wall-clock time and time run until then, in microseconds.
    :param slot_us: length of a slot, in microseconds.
    :param slots: number of slots of a frame.
    """
    run_us, all_us = [0.0] * slots, [0.0] * slots
    for (begin_us, before_us), (end_us, after_us) in itertools.pairwise(
        readings
    ):
        slot = int((begin_us + end_us) / 2 // slot_us) % slots
        run_us[slot] += after_us - before_us
        all_us[slot] += end_us - begin_us
    return [
        run / whole if whole else 0.0
        for run, whole in zip(run_us, all_us, strict=True)
    ]
