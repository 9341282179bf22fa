# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Combine all probes into one sample per guest and tick."""

import logging
from collections.abc import Sequence
from typing import Any

from nova_vhpc.agent import plugins
from nova_vhpc.agent.probes import base
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)

SYNC_NAMESPACE = 'nova_vhpc.sync_probes'
IO_NAMESPACE = 'nova_vhpc.io_probes'

IO_SCALE_US = 100_000
"""I/O events are counted per 100 ms, as in the I/O-perception paper."""


class Sampler:
    """Chooses the probes that work on this host.

    :param sync: synchronisation probes by name, in order of preference.
    :param io: I/O probes by name.
    :param io_every: number of ticks between two reads of I/O events.
    :ivar sync: synchronisation probes in use, by name.
    :ivar io: I/O probes in use, by name.
    :ivar unusable: why probes cannot work on this host, by name.
    """

    def __init__(
        self,
        sync: Sequence[tuple[str, base.SyncProbe]],
        io: Sequence[tuple[str, base.IoProbe]],
        io_every: int = 1,
    ) -> None:
        self._io_every = io_every
        self._attached = 0
        self._faults = Faults()
        self._expected = (bool(sync), bool(io))
        self.unusable: dict[str, str] = {}
        self.sync: list[tuple[str, base.SyncProbe]] = []
        self.io: list[tuple[str, base.IoProbe]] = []
        for name, probe in sync:
            reason = _check(probe)
            if reason is not None:
                self._note_unusable(name, reason)
                continue
            covered = frozenset().union(*(one.covers for _, one in self.sync))
            if probe.covers & covered and not probe.covers > covered:
                LOG.debug(
                    'Probe %s is not used: preferred probes cover it', name
                )
                continue
            # A probe that covers more replaces those that cover a part.
            self.sync = [
                (other, one)
                for other, one in self.sync
                if not one.covers & probe.covers
            ]
            self.sync.append((name, probe))
        for name, io_probe in io:
            reason = _check(io_probe)
            if reason is not None:
                self._note_unusable(name, reason)
                continue
            self.io.append((name, io_probe))
        LOG.info('Probes in use: %s', ', '.join(self.names()) or 'none')

    def _note_unusable(self, name: str, reason: str) -> None:
        LOG.info('Probe %s is not used: %s', name, reason)
        self.unusable[name] = reason

    def names(self) -> list[str]:
        """Return the names of the probes in use."""
        return [name for name, _ in self.sync] + [name for name, _ in self.io]

    def attach(self, target: base.Target, every: int = 1) -> 'VmReader':
        """Return a reader of one guest, with the files of all probes open.

        :param target: uuid, process and devices of the guest, for probes.
        :param every: number of ticks between two reads of the synchronisation
            latency.
        """
        self._attached += 1
        return VmReader(
            self._attach(self.sync, target),
            self._attach(self.io, target),
            every,
            self._io_every,
            self._attached,
            self._faults,
            target,
            self._expected,
        )

    def _attach(
        self, probes: Sequence[tuple[str, Any]], target: base.Target
    ) -> list[Any]:
        """Return the readers of the probes that can read this guest."""
        readers = []
        for _, probe in probes:
            try:
                reader = probe.attach(target)
            except Exception as error:
                self._faults.log_once(probe, error)
                continue
            if reader is not None:
                readers.append(reader)
        return readers


class Faults:
    """Logs unexpected exceptions of probes, each kind once.

    Probes are plugins: a faulty one must neither stop the tick of all guests
    nor fill the log.
    """

    def __init__(self) -> None:
        self._logged: set[tuple[type, type]] = set()

    def log_once(self, part: object, error: Exception) -> None:
        """Log an exception unless this kind was logged before.

        :param part: the probe or reader that raised it.
        """
        kind = type(part), type(error)
        if kind not in self._logged:
            self._logged.add(kind)
            LOG.error(
                'Probe failed, its measurement is missing: %s.%s: %r',
                kind[0].__module__,
                kind[0].__qualname__,
                error,
            )


class VmReader:
    """Reads the probes of one VM, in the thread of the tick.

    Values that no policy follows are read less often than each tick. In
    between, the last latency and I/O rate are returned again, without run and
    wait times, which must not be counted twice.

    :param sync: readers of synchronisation probes.
    :param io: readers of I/O probes.
    :param every: number of ticks between two reads of the synchronisation
        latency.
    :param io_every: number of ticks between two reads of I/O events.
    :param number: number of this VM, by which VMs take turns, so that all
        ticks cost the same.
    :param faults: log of failing probes.
    :param target: the VM as the host sees it; None if unknown.
    :param expected: whether the latency, and whether I/O events should be
        measured; not if the operator configured no such probe.
    """

    __slots__ = (
        '_every',
        '_expected',
        '_faults',
        '_io',
        '_io_delivered',
        '_io_events',
        '_io_every',
        '_io_lost',
        '_io_us',
        '_last_sample',
        '_number',
        '_run_us',
        '_sync',
        '_sync_us',
        '_unmeasured',
        'dead',
        'io_total',
        'target',
    )

    def __init__(
        self,
        sync: list[base.SyncReader],
        io: list[base.IoReader],
        every: int = 1,
        io_every: int = 1,
        number: int = 0,
        faults: Faults | None = None,
        target: base.Target | None = None,
        expected: tuple[bool, bool] = (True, True),
    ) -> None:
        self.target = target
        self._expected = expected
        self._unmeasured = [not sync, not io]
        self._faults = Faults() if faults is None else faults
        self._sync = sync
        self._io = io
        self._every = every
        self._io_every = io_every
        self._number = number
        self._io_events: float | None = None
        self._io_us = 0
        self._io_lost = False
        self._io_delivered = [False] * len(io)
        self._run_us: tuple[tuple[float, ...], float] | None = None
        self._last_sample = model.Sample()
        self._sync_us = 0
        self.io_total = 0.0
        """Number of I/O events since the guest was found."""
        self.dead = False
        """Whether the last read of the latency failed after earlier success.

        For I/O events, any such read counts: a NIC may have been unplugged
        and plugged in again by the same name.
        """

    def read(self, now_us: int, period_us: int) -> model.Sample:
        """Return a sample since the last call, scaled to a whole period.

        :param now_us: monotonic time of this tick, in microseconds.
        :param period_us: control period, in microseconds.
        """
        self._number = number = self._number + 1
        first = self._sync_us == 0
        io_due = number % self._io_every == 0 or self._io_events is None
        if io_due:
            self._read_io(now_us)
        if first or number % self._every == 0:
            return self._read_sync(now_us, period_us)
        last_sample = self._last_sample
        if io_due and last_sample.io_events != self._io_events:
            # Only a change makes a new sample: an idle VM then costs less.
            self._last_sample = last_sample = model.Sample(
                last_sample.sync_latency_us, self._io_events
            )
        return last_sample

    def unmeasured(self) -> list[str]:
        """Return which of ``latency`` and ``io_events`` no probe delivers.

        Nothing is missing before it is read for the second time.
        """
        return [
            name
            for name, expected, missing in zip(
                ('latency', 'io_events'),
                self._expected,
                self._unmeasured,
                strict=True,
            )
            if expected and missing
        ]

    def run_us(self, period_us: int) -> float | None:
        """Return the CPU time of all vCPUs per period, as last measured."""
        if self._run_us is None:
            return None
        run_us, window_us = self._run_us
        return sum(run_us) * period_us / window_us

    def counters(self) -> dict[int, base.VcpuCounters]:
        """Return the counters of each vCPU, by ID of its thread.

        Empty if no probe in use knows them. Other threads may call it.
        """
        if self.target is None:
            return {}
        for reader in self._sync:
            if isinstance(reader, base.CountingReader):
                return dict(
                    zip(self.target.tids, reader.counters(), strict=False)
                )
        return {}

    def _read_io(self, now_us: int) -> None:
        before_us, self._io_us = self._io_us, now_us
        events: float | None = None
        for number, reader in enumerate(self._io):
            try:
                count = reader.read()
                if count is not None:
                    events = (events or 0.0) + count
                    self._io_delivered[number] = True
                elif self._io_delivered[number]:
                    self.dead = self._io_lost = True
            except Exception as error:
                self._faults.log_once(reader, error)
        if 0 < before_us < now_us:
            self._unmeasured[1] = events is None
        if events is not None and 0 < before_us < now_us:
            self.io_total += events
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
            try:
                reading = reader.read()
                if reading is None:
                    missing = True
                    continue
                own_us, run_us, wait_us, own_runs = reading
                latency = own_us if latency is None else latency + own_us
            except Exception as error:
                self._faults.log_once(reader, error)
                missing = True
                continue
            if run_us is not None:
                run, runs = run_us, own_runs
            if wait_us is not None:
                wait = wait_us
        self.dead = self._io_lost or (
            missing and latency is None and not first
        )
        if first or window_us <= 0:
            return self._last_sample
        self._unmeasured[0] = latency is None
        if latency is None:
            run = wait = runs = None
        else:
            latency = latency * period_us / window_us
        self._run_us = None if run is None else (run, window_us)
        if self._every > 1:
            self._last_sample = model.Sample(latency, self._io_events)
        return model.Sample(
            latency, self._io_events, run, wait, runs, window_us
        )

    def close(self) -> None:
        """Close all files."""
        readers: list[Any] = [*self._sync, *self._io]
        for reader in readers:
            try:
                reader.close()
            except Exception as error:
                self._faults.log_once(reader, error)


def make_sampler(conf: Any, host: base.Host, follows_io: bool) -> Sampler:
    """Load the probes that ``[vhpc_agent]`` names.

    :param follows_io: whether I/O events are needed in every period.
    :raises ConfigError: a probe is unknown.
    """
    return Sampler(
        _load(conf.vhpc_agent.sync_probes, SYNC_NAMESPACE, 'sync', host),
        _load(conf.vhpc_agent.io_probes, IO_NAMESPACE, 'io', host),
        1 if follows_io else conf.vhpc_agent.other_sync_ticks,
    )


def _load(
    names: Sequence[str], namespace: str, kind: str, host: base.Host
) -> list[tuple[str, Any]]:
    loaded = []
    for name in names:
        probe = plugins.load(
            namespace,
            name,
            f"[vhpc_agent]{kind}_probes = '{name}'",
            'no such probe',
        )
        try:
            loaded.append((name, probe(host)))
        except Exception as error:
            # Treated like a probe that cannot work on this host.
            LOG.error('Probe %s is not used: %r', name, error)
    return loaded


def _check(probe: Any) -> str | None:
    """Return why a probe cannot be used; None if it can."""
    try:
        reason: str | None = probe.check()
    except Exception as error:
        return f'it failed: {error!r}'
    return reason
