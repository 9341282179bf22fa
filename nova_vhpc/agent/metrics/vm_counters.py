# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Counters of one VM that the kernel keeps: CPU time, waits, packets.

They are read when somebody asks for the metrics, never in the tick.
"""

import os
import pathlib
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.probes import cpu_stat


class RunSum:
    """Sum of counters of one run of a VM; it does not fall within the run.

    vCPUs are unplugged: a sum without them would look to Prometheus like a
    restart, and its whole value like an increase. So a counter that is gone
    keeps its last value, also for when it is there again.

    If all counters are new, the VM was started anew, and the sum begins
    again, too. One over several runs could not go on after a restart of the
    agent, to which the kernel shows the present run only.
    """

    __slots__ = ('_values', 'total')

    def __init__(self) -> None:
        self._values: dict[Hashable, float] = {}
        self.total = 0.0

    def update(self, now: Mapping[Hashable, float]) -> None:
        """Take in all counters that there are now."""
        if self._values.keys().isdisjoint(now):
            self._values = {}
            self.total = 0.0
        self._values.update(now)
        self.total = max(self.total, sum(self._values.values()))


class Increase:
    """Sum of what counters increased by from one update to the next.

    What a counter had before it was first seen does not count: a NIC may
    have had another uplink then.
    """

    __slots__ = ('_last', 'total')

    def __init__(self) -> None:
        self._last: Mapping[Hashable, float] = {}
        self.total = 0.0

    def update(self, now: Mapping[Hashable, float]) -> None:
        """Take in all counters that there are now."""
        for key, value in now.items():
            last = self._last.get(key)
            if last is not None:
                # If it is less, the counter began again.
                self.total += value - last if value >= last else value
        self._last = now


class Totals(NamedTuple):
    """What a VM did in its present run; a field is None if it is unknown.

    :ivar run_s: CPU time of its vCPUs, in seconds.
    :ivar delay_s: time in which vCPUs were held up, in seconds.
    :ivar switches: number of times that a vCPU got a CPU.
    :ivar throttled_s: time in which its quota held vCPUs up, in seconds.
    :ivar received: packets to the guest over claimed uplinks, since they were
        first read.
    :ivar sent: packets from the guest over claimed uplinks; likewise.
    """

    run_s: float | None = None
    delay_s: float | None = None
    switches: float | None = None
    throttled_s: float | None = None
    received: float | None = None
    sent: float | None = None


class VmCounters:
    """The counters of one VM, across hotplugs.

    :param net: sysfs directory of the host's network interfaces.
    """

    def __init__(self, net: pathlib.Path) -> None:
        self._net = net
        self._sums: dict[str, RunSum | Increase] = {}

    def read(self, guest: Guest, devices: Sequence[str]) -> Totals:
        """Read the kernel's counters.

        :param devices: host's ends of the NICs whose packets take claimed
            uplinks.
        """
        vcpus = guest.reader.counters()
        if vcpus:
            self._update('run', {tid: one[0] for tid, one in vcpus.items()})
            self._update('delay', {tid: one[1] for tid, one in vcpus.items()})
            self._update(
                'switches', {tid: one[2] for tid, one in vcpus.items()}
            )
        if guest.in_force.share is not None:
            self._update('throttled', _throttled(guest))
        for name, file in (('received', 'tx_packets'), ('sent', 'rx_packets')):
            # What a tap sends is what its guest receives.
            now = self._packets(devices, file)
            if now or name in self._sums:
                self._sums.setdefault(name, Increase()).update(now)
        return Totals(
            self._total('run', 1e9),
            self._total('delay', 1e9),
            self._total('switches'),
            self._total('throttled', 1e6),
            self._total('received'),
            self._total('sent'),
        )

    def _update(self, name: str, now: Mapping[Hashable, float]) -> None:
        if now:
            self._sums.setdefault(name, RunSum()).update(now)

    def _total(self, name: str, divisor: float = 1.0) -> float | None:
        found = self._sums.get(name)
        return None if found is None else found.total / divisor

    def _packets(
        self, devices: Sequence[str], file: str
    ) -> dict[Hashable, float]:
        counters: dict[Hashable, float] = {}
        for device in devices:
            try:
                text = _read(f'{self._net}/{device}/statistics/{file}')
                counters[device] = int(text)
            except (OSError, ValueError):
                continue
        return counters


def _read(path: str) -> bytes:
    """Return the content of a small file of the kernel.

    In a third of the time of pathlib, which matters for thousands of vCPUs.

    :raises OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1024)
    finally:
        os.close(descriptor)


def _throttled(guest: Guest) -> dict[Hashable, float]:
    """Return the throttled time of each vCPU, in microseconds."""
    target = guest.reader.target
    counters: dict[Hashable, float] = {}
    for group in () if target is None else target.vcpu_groups:
        try:
            text = _read(f'{group}/cpu.stat')
            counters[group] = cpu_stat.throttled_us(text)
        except (OSError, ValueError):
            continue
    return counters
