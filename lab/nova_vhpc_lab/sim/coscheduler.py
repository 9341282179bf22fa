# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Co-scheduling as a policy: what the ATC paper compares with as "CS".

C. Weng et al., "Dynamic adaptive scheduling for virtual machines" (HPDC 2011):
the hypervisor watches how long a VM's vCPUs spin, and co-schedules the VM for
a while once that is longer than a threshold. There the while is learned; here
it is constant.
"""

import dataclasses
from collections.abc import Iterable

from nova_vhpc_lab.sim.agenda import Agenda
from nova_vhpc_lab.sim.host import Host
from nova_vhpc_lab.sim.kernels import CoScheduling


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the policy.

    :ivar threshold_us: mean wait of a vCPU at a barrier from which on a VM is
        co-scheduled.
    :ivar period_us: time between two looks: a scheduling period of Xen.
    :ivar hold_periods: number of periods for which it is co-scheduled.
    """

    mode: CoScheduling = CoScheduling.RELAXED
    threshold_us: float = 500.0
    period_us: int = 30_000
    hold_periods: int = 33


class CoScheduler:
    """Co-schedules the VMs of a simulated host that wait long at barriers.

    :param numbers: the simulated host's numbers of its VMs.
    :ivar together: numbers of the VMs that are co-scheduled now.
    """

    def __init__(
        self,
        host: Host,
        agenda: Agenda,
        numbers: Iterable[int],
        settings: Settings,
    ) -> None:
        self._host = host
        self._agenda = agenda
        self._settings = settings
        self._last = {number: host.counters(number) for number in numbers}
        self._periods_left: dict[int, int] = {}
        agenda.at(agenda.now_us + settings.period_us, self._look)

    @property
    def together(self) -> frozenset[int]:
        return frozenset(self._periods_left)

    def _look(self) -> None:
        for number, before in self._last.items():
            now = self._last[number] = self._host.counters(number)
            if now.mean_wait_us(before) > self._settings.threshold_us:
                if number not in self._periods_left:
                    self._host.set_coscheduling(number, self._settings.mode)
                self._periods_left[number] = self._settings.hold_periods
            elif number in self._periods_left:
                self._periods_left[number] -= 1
                if not self._periods_left[number]:
                    del self._periods_left[number]
                    self._host.set_coscheduling(number, CoScheduling.NONE)
        self._agenda.at(
            self._agenda.now_us + self._settings.period_us, self._look
        )
