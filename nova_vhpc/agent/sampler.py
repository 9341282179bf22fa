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

"""The probes together: one sample per VM and tick."""

import logging
from collections.abc import Sequence
from typing import Any

import stevedore

from nova_vhpc.agent import errors
from nova_vhpc.agent.probes import base
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

SYNC_NAMESPACE = 'nova_vhpc.sync_probes'
IO_NAMESPACE = 'nova_vhpc.io_probes'

IO_SCALE_US = 100_000
"""I/O events are given per 100 ms, as in the I/O-perception paper."""


class Sampler:
    """Chooses the probes that this host can serve.

    :param sync: synchronisation probes by name, in order of preference.
    :param io: I/O probes by name.
    :param io_every: read I/O events in every so many ticks.
    """

    def __init__(
        self,
        sync: Sequence[tuple[str, base.SyncProbe]],
        io: Sequence[tuple[str, base.IoProbe]],
        io_every: int = 1,
    ) -> None:
        self._io_every = io_every
        self._attached = 0
        self.sync: list[tuple[str, base.SyncProbe]] = []
        self.io: list[tuple[str, base.IoProbe]] = []
        for name, probe in sync:
            reason = probe.check()
            if reason is not None:
                LOG.info('Probe %s is not used: %s', name, reason)
                continue
            covered = frozenset().union(*(one.covers for _, one in self.sync))
            if probe.covers & covered and not probe.covers > covered:
                LOG.debug('Probe %s adds nothing to those before', name)
                continue
            # One that sees more replaces those that saw a part of it.
            self.sync = [
                (other, one)
                for other, one in self.sync
                if not one.covers & probe.covers
            ]
            self.sync.append((name, probe))
        for name, io_probe in io:
            reason = io_probe.check()
            if reason is not None:
                LOG.info('Probe %s is not used: %s', name, reason)
                continue
            self.io.append((name, io_probe))
        LOG.info('Probes in use: %s', ', '.join(self.names()) or 'none')

    def names(self) -> list[str]:
        """Of the probes in use."""
        return [name for name, _ in self.sync] + [name for name, _ in self.io]

    def attach(self, target: base.Target, every: int = 1) -> 'VmReader':
        """Open all that there is to read of a VM.

        :param every: synchronisation latency in every so many ticks.
        """
        self._attached += 1
        sync = [probe.attach(target) for _, probe in self.sync]
        io = [probe.attach(target) for _, probe in self.io]
        return VmReader(
            [reader for reader in sync if reader is not None],
            [reader for reader in io if reader is not None],
            every,
            self._io_every,
            self._attached,
        )


class VmReader:
    """Reads one VM. Belongs to the tick's thread.

    What nobody follows is read less often than each tick. Between, the
    last latency and I/O rate stand, and there are no run and wait times:
    they must not be counted twice.

    :param every: read the synchronisation latency in every so many ticks.
    :param io_every: read the I/O events in every so many ticks.
    :param number: of this VM; VMs take turns, so that all ticks cost the
        same.
    """

    __slots__ = (
        '_every',
        '_gave',
        '_io',
        '_io_events',
        '_io_every',
        '_io_lost',
        '_io_us',
        '_number',
        '_run_us',
        '_standing',
        '_sync',
        '_sync_us',
        'dead',
    )

    def __init__(
        self,
        sync: list[base.SyncReader],
        io: list[base.IoReader],
        every: int = 1,
        io_every: int = 1,
        number: int = 0,
    ) -> None:
        self._sync = sync
        self._io = io
        self._every = every
        self._io_every = io_every
        self._number = number
        self._io_events: float | None = None
        self._io_us = 0
        self._io_lost = False
        self._gave = [False] * len(io)
        self._run_us: tuple[tuple[float, ...], float] | None = None
        self._standing = model.Sample()
        self._sync_us = 0
        self.dead = False
        """The last read found nothing where there was something before.

        For I/O events any read: a NIC may have been unplugged, and plugged in
        again by the same name.
        """

    def read(self, now_us: int, period_us: int) -> model.Sample:
        """Since the last call, scaled to a whole period.

        :param now_us: monotonic time of this tick.
        :param period_us: length of the control period.
        """
        self._number = number = self._number + 1
        first = self._sync_us == 0
        io_due = number % self._io_every == 0 or self._io_events is None
        if io_due:
            self._read_io(now_us)
        if first or number % self._every == 0:
            return self._read_sync(now_us, period_us)
        standing = self._standing
        if io_due and standing.io_events != self._io_events:
            # No new sample without news: an idle VM then costs less.
            self._standing = standing = model.Sample(
                standing.sync_latency_us, self._io_events
            )
        return standing

    def run_us(self, period_us: int) -> float | None:
        """CPU time of all vCPUs in one period, as measured last."""
        known = self._run_us
        return None if known is None else sum(known[0]) * period_us / known[1]

    def _read_io(self, now_us: int) -> None:
        before_us, self._io_us = self._io_us, now_us
        events: float | None = None
        for number, reader in enumerate(self._io):
            count = reader.read()
            if count is not None:
                self._gave[number] = True
                events = count if events is None else events + count
            elif self._gave[number]:
                self.dead = self._io_lost = True
        if events is not None and 0 < before_us < now_us:
            events *= IO_SCALE_US / (now_us - before_us)
        else:
            events = None
        self._io_events = events

    def _read_sync(self, now_us: int, period_us: int) -> model.Sample:
        window_us = now_us - self._sync_us
        first = self._sync_us == 0
        self._sync_us = now_us
        latency: float | None = None
        run = wait = runs = None
        missing = False
        for reader in self._sync:
            reading = reader.read()
            if reading is None:
                missing = True
                continue
            own_us, run_us, wait_us, own_runs = reading
            latency = own_us if latency is None else latency + own_us
            if run_us is not None:
                run, runs = run_us, own_runs
            if wait_us is not None:
                wait = wait_us
        self.dead = self._io_lost or (
            missing and latency is None and not first
        )
        if first or window_us <= 0:
            return self._standing
        if latency is None:
            run = wait = runs = None
        else:
            latency = latency * period_us / window_us
        self._run_us = None if run is None else (run, window_us)
        if self._every > 1:
            self._standing = model.Sample(latency, self._io_events)
        return model.Sample(
            latency, self._io_events, run, wait, runs, window_us
        )

    def close(self) -> None:
        """Give back all files."""
        for reader in self._sync:
            reader.close()
        for io_reader in self._io:
            io_reader.close()


def make_sampler(conf: Any, host: base.Host, follows_io: bool) -> Sampler:
    """Load the probes that ``[vhpc_agent]`` names.

    :param follows_io: whether each period's I/O events are needed.
    :raises ConfigError: for a name that no one provides.
    """
    return Sampler(
        _load(conf.vhpc_agent.sync_probes, SYNC_NAMESPACE, 'sync', host),
        _load(conf.vhpc_agent.io_probes, IO_NAMESPACE, 'io', host),
        1 if follows_io else conf.vhpc_agent.other_sync_ticks,
    )


def _load(
    names: Sequence[str], namespace: str, kind: str, host: base.Host
) -> list[tuple[str, Any]]:
    manager = stevedore.ExtensionManager(namespace)
    loaded = []
    for name in names:
        if name not in manager:
            raise errors.ConfigError(
                f"[vhpc_agent]{kind}_probes = '{name}': no such probe; "
                f'allowed: {", ".join(sorted(manager.names()))}'
            )
        loaded.append((name, manager[name].plugin(host)))
    return loaded
