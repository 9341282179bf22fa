# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The tick: sense, decide and act, once per control period."""

import functools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from nova_vhpc.agent import tick_result
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.probes import outside_load, sampler
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)


class Manager(Protocol):
    """What the tick needs of the guest manager."""

    @property
    def guests(self) -> Mapping[str, Guest]:
        """Return the managed guests by UUID."""

    def write(self, guest: Guest, tune: model.CpuTune) -> None:
        """Write to a guest soon; returns at once."""

    def enqueue(self, uuid: str) -> None:
        """Have a domain reconciled soon; returns at once."""


class Decider(Protocol):
    """What the tick needs of the controller."""

    def decide(self, view: model.HostView) -> model.Plan:
        """Plan the next control period."""


MAX_REMEMBERED = 1000
"""Most diagnostics that are remembered; a host has fewer guests."""

REPEAT_TICKS = 600
"""Ticks without a diagnostic, a minute by default, until it is logged
again."""

_VALUES = re.compile(r'0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d.e+-]*')


@functools.lru_cache(maxsize=4096)
def _kind(reason: str) -> str:
    """Return a diagnostic without the values in it.

    Two diagnostics that differ in values only count as the same.
    """
    return _VALUES.sub('#', reason)


class DiagnosticsLog:
    """Logs the controller's diagnostics, but not in every tick.

    :param name_of: returns libvirt's name of a guest, by UUID.
    """

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        # Last tick with the diagnostic, by UUID and kind.
        self._last_ticks: dict[tuple[str, str], int] = {}
        self._full = False

    def report(
        self, tick: int, diagnostics: Iterable[model.Diagnostic]
    ) -> None:
        """Log the diagnostics of a tick that are new.

        :param tick: number of the tick.
        """
        last_ticks = self._last_ticks
        for diagnostic in diagnostics:
            key = (diagnostic.uuid, _kind(diagnostic.reason))
            if key not in last_ticks and not self._log(tick, diagnostic):
                continue
            last_ticks[key] = tick
        if last_ticks and tick % REPEAT_TICKS == 0:
            self._forget(tick)

    def _log(self, tick: int, diagnostic: model.Diagnostic) -> bool:
        """Log a diagnostic, unless too many are remembered.

        :returns: whether it was logged.
        """
        if len(self._last_ticks) >= MAX_REMEMBERED:
            self._forget(tick)
        if len(self._last_ticks) >= MAX_REMEMBERED:
            if not self._full:
                LOG.warning('Further diagnostics of VMs are not logged')
            self._full = True
            return False
        self._full = False
        if diagnostic.uuid:
            LOG.warning(
                'VM %s: %s', self._name_of(diagnostic.uuid), diagnostic.reason
            )
        else:
            LOG.warning('%s', diagnostic.reason)
        return True

    def _forget(self, tick: int) -> None:
        self._last_ticks = {
            key: last_tick
            for key, last_tick in self._last_ticks.items()
            if tick - last_tick < REPEAT_TICKS
        }


class TickLoop:
    """Runs the tick in a thread of its own.

    :param period_us: control period, in microseconds.
    :param cpus: returns the CPUs that guests may be pinned to.
    :param limits: returns the limits of the actuator.
    :param manager: the managed guests; takes the writes.
    :param controller: makes the plan.
    :param cluster_of: returns the virtual cluster of a guest.
    :param peer_views: returns the other hosts' statements, by cluster.
    :param observers: called with the result at the end of each tick.
    :param unmanaged: returns the unmanaged VMs of this host, given the
        monotonic time in microseconds.
    :param window_late_us: returns by how much gang windows begin late, in
        microseconds.
    :param offline_cpus: returns the host's CPUs that are switched off.
    :param slots: returns the slots that hosts agreed on, by cluster;
        None for none.
    :ivar ticks: number of ticks so far.
    :ivar overruns: number of control periods that were missed.
    :ivar failures: number of ticks that raised an exception.
    :ivar problem: exception of the last tick; empty if it succeeded.
    :ivar last: result of the last tick that succeeded; None before it.
    :ivar idle: set while no tick is under way. Other threads that compute for
        long wait for it, because the tick needs the interpreter.
    """

    def __init__(
        self,
        period_us: int,
        cpus: Callable[[], tuple[model.Cpu, ...]],
        limits: Callable[[], model.ActuatorLimits],
        manager: Manager,
        controller: Decider,
        cluster_of: Callable[[Guest], str | None],
        peer_views: Callable[[], Mapping[str, model.PeerView]],
        observers: Iterable[Callable[[tick_result.TickResult], None]] = (),
        unmanaged: Callable[
            [int], tuple[model.OtherVm, ...]
        ] = lambda now_us: (),
        window_late_us: Callable[[], float] = lambda: 0.0,
        offline_cpus: Callable[[], frozenset[int]] = frozenset,
        slots: Callable[[], Mapping[str, model.ClusterSlot | None]] = dict,
    ) -> None:
        self.period_us = period_us
        self.cpus = cpus
        self.limits = limits
        self._manager = manager
        self._controller = controller
        self._cluster_of = cluster_of
        self._peer_views = peer_views
        self._observers = tuple(observers)
        self._unmanaged = unmanaged
        self._outside_load = outside_load.OutsideLoad()
        self._window_late_us = window_late_us
        self._offline_cpus = offline_cpus
        self._slots = slots
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._readers: dict[str, sampler.VmReader] = {}
        self._views: dict[str, tuple[Any, model.VmView]] = {}
        self._diagnostics_log = DiagnosticsLog(self._name_of)
        self.problem = ''
        self.ticks = 0
        self.overruns = 0
        self.failures = 0
        self.last: tick_result.TickResult | None = None
        self.idle = threading.Event()
        self.idle.set()

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(
            target=self.run, name='tick', daemon=True
        )
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop ticking.

        :param timeout_s: longest time to wait for the current tick, in
            seconds.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def run(self) -> None:
        """Tick at deadlines of the monotonic clock until :meth:`stop`.

        If a tick takes longer than the period, the deadlines that it missed
        are skipped and counted.
        """
        period_s = self.period_us / 1e6
        due_s = time.monotonic()
        while not self._stop.is_set():
            self.tick_safely()
            due_s += period_s
            left_s = due_s - time.monotonic()
            if left_s < 0:
                missed = int(-left_s / period_s) + 1
                self.overruns += missed
                due_s += missed * period_s
                left_s = due_s - time.monotonic()
            self._stop.wait(max(0.0, left_s))

    def tick_safely(self) -> None:
        """Tick once; log an exception once, until a tick succeeds."""
        self.idle.clear()
        try:
            self.tick()
        except Exception as error:
            self.failures += 1
            problem = repr(error)
            if problem != self.problem:
                LOG.exception(
                    'Tick %d failed; the next one is tried as usual',
                    self.ticks,
                )
            self.problem = problem
        else:
            if self.problem:
                LOG.info('Tick %d succeeded again', self.ticks)
                self.problem = ''
        finally:
            self.idle.set()

    def tick(self) -> tick_result.TickResult:
        """Sense, decide and act once."""
        start_ns = time.monotonic_ns()
        self.ticks += 1
        guests = self._manager.guests
        view = self._view(guests, start_ns // 1000)
        plan = self._controller.decide(view)
        offline_cpus = self._offline_cpus()
        self._diagnostics_log.report(self.ticks, plan.ignored)
        for uuid, vm_plan in plan.vms.items():
            writes = vm_plan.writes
            if writes is not None:
                guest = guests.get(uuid)
                if guest is not None:
                    tune = guest.values_to_write(writes, offline_cpus)
                    if tune is not None:
                        self._manager.write(guest, tune)
        result = tick_result.TickResult(
            view, plan, (time.monotonic_ns() - start_ns) / 1000
        )
        self.last = result
        for observe in self._observers:
            observe(result)
        return result

    def _name_of(self, uuid: str) -> str:
        guest = self._manager.guests.get(uuid)
        return uuid if guest is None else guest.name

    def _view(
        self, guests: Mapping[str, Guest], now_us: int
    ) -> model.HostView:
        period_us = self.period_us
        readers = self._readers
        if readers.keys() != guests.keys():
            for uuid in readers.keys() - guests.keys():
                readers.pop(uuid).close()
                self._views.pop(uuid, None)
        vms = []
        for uuid, guest in guests.items():
            reader = guest.reader
            if readers.get(uuid) is not reader:
                if uuid in readers:
                    readers[uuid].close()
                readers[uuid] = reader
            was_dead = reader.dead
            sample = reader.read(now_us, period_us)
            if reader.dead and not was_dead:
                self._manager.enqueue(uuid)
            vms.append(self._vm_view(uuid, guest, sample))
        cpus = self.cpus()
        others = self._unmanaged(now_us)
        return model.HostView(
            self.ticks,
            now_us,
            period_us,
            cpus,
            tuple(vms),
            time.time_ns() // 1000,
            self.limits(),
            self._peer_views(),
            others,
            self._window_late_us(),
            self._outside_load.advance(
                now_us, {cpu.id for cpu in cpus}, (*vms, *others)
            ),
            self._slots(),
        )

    def _vm_view(
        self, uuid: str, guest: Guest, sample: model.Sample
    ) -> model.VmView:
        facts = (
            guest.traits,
            self._cluster_of(guest),
            guest.repin,
            guest.allowed_cpus,
            guest.original_tune,
            guest.in_force,
        )
        last = self._views.get(uuid)
        if last is not None and last[1].sample is sample and last[0] == facts:
            return last[1]
        traits, cluster, repin, allowed_cpus, original, in_force = facts
        view = model.VmView(
            uuid,
            vcpus=traits.vcpus,
            workload=traits.workload,
            paradigm=traits.paradigm,
            io_pool=traits.io_pool,
            time_slice_us=traits.time_slice_us,
            cluster=cluster,
            repin=repin,
            allowed_cpus=allowed_cpus,
            original=original,
            in_force=in_force,
            sample=sample,
        )
        self._views[uuid] = (facts, view)
        return view
