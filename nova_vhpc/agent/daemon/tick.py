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

"""The tick: sense, decide, act; once per control period."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from nova_vhpc.agent.daemon import diagnostics
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.probes import sampler
from nova_vhpc.control import model

LOG = logging.getLogger(__name__)


class Writer(Protocol):
    """Where VMs come from and writes go to; :class:`domains.Domains`."""

    @property
    def guests(self) -> Mapping[str, guest.Guest]:
        """Our VMs by uuid."""

    def write(
        self,
        target: guest.Guest,
        tune: model.CpuTune,
        slice_us: int | None = None,
    ) -> None:
        """Have a VM written soon."""

    def look(self, uuid: str) -> None:
        """Have a domain looked at soon."""


class Decider(Protocol):
    """:class:`nova_vhpc.control.controller.Controller`."""

    def decide(self, view: model.HostView) -> model.Plan:
        """Plan the next control period."""


@dataclasses.dataclass(frozen=True, slots=True)
class TickResult:
    """One tick, for those who look on.

    :ivar took_us: time from its start to its end.
    """

    view: model.HostView
    plan: model.Plan
    took_us: float


class TickLoop:
    """Runs the tick in a thread of its own.

    :param period_us: length of the control period.
    :param cpus: gives the CPUs that VMs may be pinned to, at each tick.
    :param limits: of the actuators.
    :param cluster_of: the virtual cluster of a VM.
    :param peers: gives the other hosts' views of clusters.
    :param after: called with each result, at the end of its tick.
    :param others: gives the VMs that are not ours, at a monotonic time.
    :param window_late_us: how late gang windows begin.
    :param off: gives the host's CPUs that are switched off.
    """

    def __init__(
        self,
        period_us: int,
        cpus: Callable[[], tuple[model.Cpu, ...]],
        limits: model.ActuatorLimits,
        writer: Writer,
        controller: Decider,
        cluster_of: Callable[[guest.Guest], str | None],
        peers: Callable[[], Mapping[str, model.PeerView]],
        after: Iterable[Callable[[TickResult], None]] = (),
        others: Callable[[int], tuple[model.OtherVm, ...]] = lambda _: (),
        window_late_us: Callable[[], float] = lambda: 0.0,
        off: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self.period_us = period_us
        self.cpus = cpus
        self.limits = limits
        self._writer = writer
        self._controller = controller
        self._cluster_of = cluster_of
        self._peers = peers
        self._after = tuple(after)
        self._others = others
        self._window_late_us = window_late_us
        self._off = off
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._readers: dict[str, sampler.VmReader] = {}
        self._shown: dict[str, tuple[Any, model.VmView]] = {}
        self._diagnostics_log = diagnostics.DiagnosticsLog(self._name_of)
        self._problem = ''
        self.ticks = 0
        self.overruns = 0
        self.failures = 0
        self.last: TickResult | None = None

    def start(self) -> None:
        """Begin to tick."""
        self._thread = threading.Thread(
            target=self.run, name='tick', daemon=True
        )
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Tick no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def run(self) -> None:
        """Tick at monotonic deadlines until :meth:`stop`.

        A tick that takes longer than the period makes the next ones late
        by whole periods, and is counted.
        """
        period_s = self.period_us / 1e6
        due = time.monotonic()
        while not self._stop.is_set():
            self.tick_safely()
            due += period_s
            left = due - time.monotonic()
            if left < 0:
                missed = int(-left / period_s) + 1
                self.overruns += missed
                due += missed * period_s
                left = due - time.monotonic()
            self._stop.wait(max(0.0, left))

    def tick_safely(self) -> None:
        """One tick; a fault in it is told once, and the next is tried."""
        try:
            self.tick()
        except Exception as error:
            self.failures += 1
            problem = repr(error)
            if problem != self._problem:
                LOG.exception('Tick %d failed', self.ticks)
            self._problem = problem
        else:
            if self._problem:
                LOG.info('Tick %d: works again', self.ticks)
                self._problem = ''

    def tick(self) -> TickResult:
        """Sense, decide, act."""
        began = time.monotonic_ns()
        self.ticks += 1
        guests = self._writer.guests
        view = self._view(guests, began // 1000)
        plan = self._controller.decide(view)
        off = self._off()
        self._diagnostics_log.report(self.ticks, plan.ignored)
        for uuid, vm_plan in plan.vms.items():
            writes = vm_plan.writes
            if writes is not None:
                target = guests.get(uuid)
                if target is not None:
                    todo = target.ours_to_write(writes, off)
                    if todo is not None:
                        self._writer.write(target, todo, vm_plan.slice_us)
        result = TickResult(view, plan, (time.monotonic_ns() - began) / 1000)
        self.last = result
        for notify in self._after:
            notify(result)
        return result

    def _name_of(self, uuid: str) -> str:
        target = self._writer.guests.get(uuid)
        return uuid if target is None else target.name

    def _view(
        self, guests: Mapping[str, guest.Guest], now_us: int
    ) -> model.HostView:
        period_us = self.period_us
        readers = self._readers
        if readers.keys() != guests.keys():
            for uuid in readers.keys() - guests.keys():
                readers.pop(uuid).close()
                self._shown.pop(uuid, None)
        vms = []
        for uuid, target in guests.items():
            reader = target.reader
            if readers.get(uuid) is not reader:
                if uuid in readers:
                    readers[uuid].close()
                readers[uuid] = reader
            was_dead = reader.dead
            sample = reader.read(now_us, period_us)
            if reader.dead and not was_dead:
                self._writer.look(uuid)
            vms.append(self._vm_view(uuid, target, sample))
        return model.HostView(
            self.ticks,
            now_us,
            period_us,
            self.cpus(),
            tuple(vms),
            time.time_ns() // 1000,
            self.limits,
            self._peers(),
            self._others(now_us),
            self._window_late_us(),
        )

    def _vm_view(
        self, uuid: str, target: guest.Guest, sample: model.Sample
    ) -> model.VmView:
        facts = (
            target.traits,
            self._cluster_of(target),
            target.repin,
            target.allowed_cpus,
            target.first_tune,
            target.in_force,
        )
        last = self._shown.get(uuid)
        if last is not None and last[1].sample is sample and last[0] == facts:
            return last[1]
        # By position: this runs for nearly every VM, each tick.
        view = model.VmView(uuid, *facts[0], *facts[1:], sample)
        self._shown[uuid] = (facts, view)
        return view
