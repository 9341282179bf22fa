# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Faults of the disk and of the records on it."""

import pathlib
import random
import shutil
import time
from collections.abc import Callable

from nova_vhpc_lab.soak.chaos.fault import fault
from nova_vhpc_lab.soak.chaos.host import Host


def _damage(host: Host, change: Callable[[bytes], bytes]) -> None:
    host.kill_agent()
    host.remount('rw')
    host.allow_definitions()
    for file in host.records():
        file.write_bytes(change(file.read_bytes()))


@fault(is_last=True)
def records_truncated(host: Host, rng: random.Random) -> None:
    """Cut the records off."""
    _damage(host, lambda data: data[: rng.randrange(len(data) or 1)])


@fault(is_last=True)
def records_flipped(host: Host, rng: random.Random) -> None:
    """Flip some bits of the records."""

    def flip(data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 3, 20)) if data else 0):
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(damaged)

    _damage(host, flip)


@fault(is_last=True)
def records_zeroed(host: Host, rng: random.Random) -> None:
    """Fill the records with zeros, as some file systems do."""
    _damage(host, lambda data: bytes(len(data)))


@fault(is_last=True)
def records_swapped(host: Host, rng: random.Random) -> None:
    """Exchange the records of two guests."""
    host.kill_agent()
    host.remount('rw')
    host.allow_definitions()
    files = host.records()
    if len(files) > 1:
        first, second = files[0].read_bytes(), files[1].read_bytes()
        files[0].write_bytes(second)
        files[1].write_bytes(first)


@fault(is_last=True)
def records_stale(host: Host, rng: random.Random) -> None:
    """Bring the records back as they were earlier."""
    saved: dict[pathlib.Path, bytes] = {}
    for file in host.records():
        try:
            saved[file] = file.read_bytes()
        except FileNotFoundError:
            continue
    time.sleep(rng.uniform(0, 1.5))
    host.kill_agent()
    host.remount('rw')
    host.allow_definitions()
    for file, data in saved.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


@fault(is_last=True)
def records_lost(host: Host, rng: random.Random) -> None:
    """Remove all records after the agent was killed."""
    host.kill_agent()
    host.remount('rw')
    host.allow_definitions()
    shutil.rmtree(host.journal.path, ignore_errors=True)


@fault()
def state_removed(host: Host, rng: random.Random) -> None:
    """Remove the journal while the agent runs."""
    shutil.rmtree(host.journal.path, ignore_errors=True)
    time.sleep(rng.uniform(0, 1))


@fault()
def disk_full(host: Host, rng: random.Random) -> None:
    """Fill the disk, which stays full; perhaps a guest starts then."""
    host.fill()
    if rng.random() < 0.5:
        host.restart(rng.choice(('gang', 'quota')))
    time.sleep(rng.uniform(0, 1))


@fault()
def disk_read_only(host: Host, rng: random.Random) -> None:
    """Make the disk read-only, as the kernel does after errors."""
    host.remount('ro')
    if rng.random() < 0.5:
        host.restart(rng.choice(('gang', 'quota')))
    time.sleep(rng.uniform(0, 1))
