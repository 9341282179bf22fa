# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Writes bandwidth and pins as libvirt does: late, and one call at a time.

Latencies are those measured with libvirt 9.0 and QEMU guests: 0.8 ms for one
``pinVcpuFlags``, 1.3 ms for one ``setSchedulerParametersFlags``, 3 to 4 ms
beside busy guests.
"""

import dataclasses
import heapq
import random
from collections.abc import Callable, Mapping

from nova_vhpc.control import model
from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.host import Host

CALL_US = (800, 4_000)
"""Shortest and longest duration of one call."""

PARALLEL_CALLS = 5
"""Calls of one client that libvirtd serves at a time by default."""


class LibvirtWriter:
    """Carries out the controller's writes.

    At most one call per VM is under way. A newer plan replaces what is left
    of an older one.

    :param numbers: the simulated host's number of each VM, by name.
    :param in_force: cputune of each managed VM by name, which is kept current.
    :ivar calls: number of calls made.
    """

    def __init__(
        self,
        host: Host,
        agenda: Agenda,
        numbers: Mapping[str, int],
        in_force: dict[str, model.CpuTune],
        chance: random.Random,
    ) -> None:
        self._host = host
        self._agenda = agenda
        self._numbers = numbers
        self._in_force = in_force
        self._chance = chance
        self._wanted: dict[str, model.CpuTune] = {}
        self._under_way: set[str] = set()
        self._server_free_us = [0.0] * PARALLEL_CALLS
        self.calls = 0

    def carry_out(self, name: str, planned: model.VmPlan) -> None:
        """Write what a plan changes of a VM, soon."""
        if planned.writes is not None:
            self.write(name, planned.writes)

    def write(self, name: str, tune: model.CpuTune) -> None:
        """Write the fields of a cputune that are not None, soon."""
        self._wanted[name] = tune
        if name not in self._under_way:
            self._call_next(name)

    def _call_next(self, name: str) -> None:
        """Make the next call that the wanted cputune of a VM needs."""
        call = self._next_call(name)
        if call is None:
            self._under_way.discard(name)
            return
        self._under_way.add(name)
        begin_us = max(
            heapq.heappop(self._server_free_us), self._agenda.now_us
        )
        end_us = begin_us + self._chance.uniform(*CALL_US)
        heapq.heappush(self._server_free_us, end_us)
        self.calls += 1

        def finish() -> None:
            call()
            self._call_next(name)

        self._agenda.at(end_us, finish)

    def _next_call(self, name: str) -> Callable[[], None] | None:
        wanted, in_force = self._wanted[name], self._in_force[name]
        number = self._numbers[name]
        bandwidth = wanted.period_us, wanted.quota_us
        if None not in bandwidth and bandwidth != (
            in_force.period_us,
            in_force.quota_us,
        ):

            def write_bandwidth() -> None:
                period_us, quota_us = bandwidth
                assert period_us is not None
                assert quota_us is not None
                self._host.set_bandwidth(number, period_us, quota_us)
                self._note(name, period_us=period_us, quota_us=quota_us)

            return write_bandwidth
        if wanted.shares is not None and wanted.shares != in_force.shares:
            shares = wanted.shares

            def write_shares() -> None:
                # As the agent does: the kernel refuses weights of idle groups.
                self._host.set_idle(number, False)
                self._host.set_weight(number, shares)
                self._note(name, shares=shares)

            return write_shares
        return self._next_pin(name)

    def _next_pin(self, name: str) -> Callable[[], None] | None:
        wanted, in_force = (
            self._wanted[name].vcpu_pins,
            self._in_force[name].vcpu_pins,
        )
        if wanted is None or in_force is None or wanted == in_force:
            return None
        vcpu = next(
            index
            for index, (new, old) in enumerate(
                zip(wanted, in_force, strict=True)
            )
            if new != old
        )

        def write_pin() -> None:
            pins = self._in_force[name].vcpu_pins
            assert pins is not None
            pins = (*pins[:vcpu], wanted[vcpu], *pins[vcpu + 1 :])
            self._host.set_pins(self._numbers[name], pins)
            self._note(name, vcpu_pins=pins)

        return write_pin

    def _note(self, name: str, **fields: object) -> None:
        self._in_force[name] = dataclasses.replace(
            self._in_force[name],
            **fields,  # type: ignore[arg-type]
        )
