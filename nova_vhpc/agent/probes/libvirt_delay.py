# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run-queue delay as libvirt reports it: ``vcpu.N.delay``.

Measures: the same as schedstat, for an agent that cannot see the host's
``/proc`` (in a container). Units: nanoseconds. Cost: one call for all domains
per period in a thread of its own: 0.7 ms per idle VM, thousands of times
schedstat's cost, and seconds beside busy guests. Blind to: ticks between two
answers, which get no sample, never an old one. Covers WAIT and THROTTLE. Needs
libvirt 7.2.
"""

import threading
import time
from typing import Any

import libvirt

from nova_vhpc.agent.probes import base


class LibvirtDelayProbe:
    """The fallback probe of latency: works wherever libvirt answers."""

    covers = frozenset({base.WAIT, base.THROTTLE})

    def __init__(self, host: base.Host) -> None:
        self._connection = host.connection
        self._period_s = host.period_s
        self._delays: dict[str, tuple[int, ...]] = {}
        self._serial = 0
        self._thread: threading.Thread | None = None

    def check(self) -> str | None:
        """Return why libvirt cannot be queried, or None."""
        if self._connection is None:
            return 'no libvirt connection'
        return None

    def attach(self, target: base.Target) -> 'LibvirtDelayReader':
        """Return a reader; start polling with the first guest."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._poll, name='libvirt-delay', daemon=True
            )
            self._thread.start()
        return LibvirtDelayReader(self, target.uuid)

    def latest(self, uuid: str) -> tuple[int, tuple[int, ...] | None]:
        """Return number and content of libvirt's last answer for a guest.

        :returns: number of the answer, and the delay of each vCPU in
            nanoseconds; None if the answer lacks the guest.
        """
        return self._serial, self._delays.get(uuid)

    def _poll(self) -> None:
        while True:
            began = time.monotonic()
            try:
                assert self._connection is not None
                answers = self._connection().getAllDomainStats(
                    libvirt.VIR_DOMAIN_STATS_VCPU, 0
                )
                self._delays = {
                    domain.UUIDString(): parse(stats)
                    for domain, stats in answers
                }
                self._serial += 1
            except libvirt.libvirtError:
                self._delays = {}
            pause = self._period_s - (time.monotonic() - began)
            time.sleep(max(pause, self._period_s / 4))


def parse(stats: dict[str, Any]) -> tuple[int, ...]:
    """Return the delays of all vCPUs in a domain's statistics, in ns."""
    return tuple(
        int(stats[f'vcpu.{vcpu}.delay'])
        for vcpu in range(int(stats.get('vcpu.maximum', 0)))
        if f'vcpu.{vcpu}.delay' in stats
    )


class LibvirtDelayReader:
    """Reads the increase of delays between libvirt's last two answers."""

    __slots__ = ('_last', '_probe', '_serial', '_uuid')

    def __init__(self, probe: LibvirtDelayProbe, uuid: str) -> None:
        self._probe = probe
        self._uuid = uuid
        self._serial = -1
        self._last: tuple[int, ...] | None = None

    def read(self) -> base.SyncReading | None:
        """Return the increase; None until libvirt has answered again."""
        serial, now = self._probe.latest(self._uuid)
        if serial == self._serial:
            return None
        self._serial = serial
        last, self._last = self._last, now
        if not now or last is None or len(last) != len(now):
            return None
        wait = tuple(
            [(new - old) / 1000 for new, old in zip(now, last, strict=True)]
        )
        return base.SyncReading(sum(wait) / len(wait), None, wait, None)

    def close(self) -> None:
        """Do nothing: no file is open."""
