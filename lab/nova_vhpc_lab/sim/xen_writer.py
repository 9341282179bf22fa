# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Carries plans out under Xen, where a VM has a time slice of its own."""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.control import model
from nova_vhpc_lab.sim.host import Host


class XenWriter:
    """Sets time slices, weights and pins at once, as a hypervisor does.

    A plan also says which period and quota make the slice on Linux. These are
    not written: they keep the VM's part of the CPUs, and so does its cap.

    :param numbers: the simulated host's number of each VM, by name.
    :param in_force: cputune of each managed VM by name, which is kept current.
    """

    def __init__(
        self,
        host: Host,
        numbers: Mapping[str, int],
        in_force: dict[str, model.CpuTune],
    ) -> None:
        self._host = host
        self._numbers = numbers
        self._in_force = in_force
        self._slices_us: dict[str, int | None] = {}

    def carry_out(self, name: str, planned: model.VmPlan) -> None:
        """Bring about what is planned for a VM."""
        number = self._numbers[name]
        if planned.slice_us != self._slices_us.get(name):
            self._host.set_slice(number, planned.slice_us)
            self._slices_us[name] = planned.slice_us
        writes = planned.writes
        if writes is None:
            return
        if writes.shares is not None:
            self._host.set_weight(number, writes.shares)
        if writes.vcpu_pins is not None:
            self._host.set_pins(number, writes.vcpu_pins)
        self._in_force[name] = dataclasses.replace(
            self._in_force[name],
            **{
                field: value
                for field, value in dataclasses.asdict(writes).items()
                if value is not None
            },
        )
