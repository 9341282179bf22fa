# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent of a simulated host: the real controller, late as in reality.

Each control period it reads the counters of all VMs, lets the controller
decide, and carries the plan out: pins and quotas as libvirt does, weights at
the borders of gang windows by their files. Under Xen the controller is taken
for a part of the hypervisor, as in the ATC paper: it decides in each of the
scheduler's periods, and nothing is late.
"""

import dataclasses
import random
from collections.abc import Mapping

from nova_vhpc.control import controller, model
from nova_vhpc_lab.sim import (
    agent_threads,
    drawn_delays,
    host_spec,
    kernels,
    libvirt_writer,
    sensor,
    slot_bus,
    window_player,
    xen_writer,
)
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.host import Host

PERIOD_US = 100_000

XEN_PERIOD_US = 30_000
"""ATC paper, section III.A: a scheduling period of Xen."""

IDLE_REPORTED = 3
"""``cpu.shares`` that the kernel reports of an idle group."""


class Agent:
    """Controls one simulated host.

    :param decider: the controller, with its policies.
    :param numbers: the simulated host's number of each VM, by name.
    :param seed: for the latencies.
    :param clock_offset_us: by which the host's wall clock is fast.
    :param slots: agrees with other hosts on cluster slots; None for a local
        rotation.
    :ivar plan: the last plan; None before the first.
    """

    def __init__(
        self,
        host: Host,
        agenda: Agenda,
        spec: host_spec.HostSpec,
        numbers: Mapping[str, int],
        decider: controller.Controller,
        seed: int,
        clock_offset_us: int = 0,
        slots: slot_bus.SlotAgent | None = None,
    ) -> None:
        self._host = host
        self._agenda = agenda
        self._numbers = numbers
        self._controller = decider
        self._slots = slots
        chance = random.Random(seed)
        is_xen = isinstance(spec.kernel, kernels.XenCredit)
        self._period_us = XEN_PERIOD_US if is_xen else PERIOD_US
        self._sensor = sensor.Sensor(
            host, spec, numbers, self._period_us, clock_offset_us
        )
        self._in_force = {
            vm.name: self._sensor.original(vm)
            for vm in spec.vms
            if vm.opted_in
        }
        self._writer: xen_writer.XenWriter | libvirt_writer.LibvirtWriter
        if is_xen:
            self._writer = xen_writer.XenWriter(host, numbers, self._in_force)
        else:
            self._writer = libvirt_writer.LibvirtWriter(
                host, agenda, numbers, self._in_force, chance
            )
        self._delays: agent_threads.AgentThreads | drawn_delays.DrawnDelays
        if spec.agent is None:
            self._delays = drawn_delays.DrawnDelays(
                agenda, chance, 0 if is_xen else drawn_delays.DECIDE_US
            )
        else:
            self._delays = agent_threads.AgentThreads(host, agenda, spec.agent)
        self._player = window_player.WindowPlayer(
            agenda,
            self._set_shares,
            self._place,
            self._delays,
            clock_offset_us,
        )
        self.plan: model.Plan | None = None
        # Not in phase with the kernel's ticks, nor with the samples.
        agenda.at(
            agenda.now_us + chance.randrange(1, self._period_us), self._tick
        )

    @property
    def window_late_us(self) -> float:
        """Mean lateness of windows; 0 while unknown."""
        return self._player.late_us()

    def _tick(self) -> None:
        now_us = self._agenda.now_us
        view = self._sensor.view(self._in_force, self._player.late_us())
        if self._slots is not None:
            view = dataclasses.replace(view, slots=self._slots.table())
        plan = self._controller.decide(view)
        if self._slots is not None:
            self._slots.publish(plan.gangs, len(view.cpus))
        self._delays.decide(lambda: self._carry_out(plan))
        self._agenda.at(now_us + self._period_us, self._tick)

    def _carry_out(self, plan: model.Plan) -> None:
        self.plan = plan
        for name, planned in plan.vms.items():
            self._writer.carry_out(name, planned)
        self._player.play(plan.windows)

    def _place(self, name: str, cpus: tuple[int, ...]) -> None:
        pins = self._in_force[name].vcpu_pins
        assert pins is not None
        if cpus:
            pins = tuple(frozenset({cpu}) for cpu in cpus)
        self._host.set_pins(self._numbers[name], pins)

    def _set_shares(self, name: str, shares: int) -> None:
        number = self._numbers[name]
        if shares == model.IDLE_SHARES:
            self._host.set_idle(number, True)
            shares = IDLE_REPORTED
        else:
            self._host.set_idle(number, False)
            self._host.set_weight(number, shares)
        self._in_force[name] = dataclasses.replace(
            self._in_force[name], shares=shares
        )
