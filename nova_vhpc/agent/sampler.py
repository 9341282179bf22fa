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

NOTHING: tuple[Any, ...] = (None, None, None, None, 0)

IO_SCALE_US = 100_000
"""I/O events are given per 100 ms, as in the I/O-perception paper."""


class Sampler:
    """Chooses the probes that this host can serve.

    :param sync: synchronisation probes by name, in order of preference.
    :param io: I/O probes by name.
    """

    def __init__(
        self,
        sync: Sequence[tuple[str, base.SyncProbe]],
        io: Sequence[tuple[str, base.IoProbe]],
    ) -> None:
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
            self._attached,
        )


class VmReader:
    """Reads one VM. Belongs to the tick's thread.

    :param every: read the synchronisation latency in every so many ticks.
        Between, the last one stands: right for VMs whose slices do not
        depend on it.
    """

    __slots__ = (
        '_every',
        '_io',
        '_last_us',
        '_number',
        '_sync',
        '_sync_us',
        '_synced',
        'dead',
    )

    def __init__(
        self,
        sync: list[base.SyncReader],
        io: list[base.IoReader],
        every: int = 1,
        first: int = 0,
    ) -> None:
        self._sync = sync
        self._io = io
        self._every = every
        # VMs take turns, so that all ticks cost the same.
        self._number = first % every
        self._last_us = 0
        self._sync_us = 0
        self._synced: tuple[Any, ...] = NOTHING
        self.dead = False
        """The last read found nothing where there was something before."""

    def read(self, now_us: int, period_us: int) -> model.Sample:
        """Since the last call, scaled to a whole period.

        :param now_us: monotonic time of this tick.
        :param period_us: length of the control period.
        """
        elapsed_us = now_us - self._last_us
        first = self._last_us == 0
        self._last_us = now_us
        self._number += 1
        if self._number >= self._every or first:
            self._number = 0 if not first else self._number
            self._read_sync(now_us, period_us)
        events: float | None = None
        for reader in self._io:
            count = reader.read()
            if count is not None:
                events = (events or 0.0) + count
        if first or elapsed_us <= 0:
            return model.Sample()
        latency, run, wait, runs, window_us = self._synced
        return model.Sample(
            latency,
            None if events is None else events * IO_SCALE_US / elapsed_us,
            run,
            wait,
            runs,
            window_us or elapsed_us,
        )

    def _read_sync(self, now_us: int, period_us: int) -> None:
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
            latency = (latency or 0.0) + reading.latency_us
            if reading.run_us is not None:
                run, runs = reading.run_us, reading.runs
            if reading.wait_us is not None:
                wait = reading.wait_us
        self.dead = missing and latency is None and not first
        if first or latency is None or window_us <= 0:
            self._synced = NOTHING
        else:
            self._synced = (
                latency * period_us / window_us,
                run,
                wait,
                runs,
                window_us,
            )

    def close(self) -> None:
        """Give back all files."""
        for reader in self._sync:
            reader.close()
        for io_reader in self._io:
            io_reader.close()


def make_sampler(conf: Any, host: base.Host) -> Sampler:
    """Load the probes that ``[vhpc_agent]`` names.

    :raises ConfigError: for a name that no one provides.
    """
    return Sampler(
        _load(conf.vhpc_agent.sync_probes, SYNC_NAMESPACE, 'sync', host),
        _load(conf.vhpc_agent.io_probes, IO_NAMESPACE, 'io', host),
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
