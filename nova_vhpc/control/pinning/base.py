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


"""What a pinning policy is shown, and what it answers.

A policy is a class with one method, found by its entry point in
``nova_vhpc.pinning_policies`` and made with the :class:`ControlConfig`.
It may keep state, but must forget VMs that are no longer shown. The
controller drops pins that leave the VM's or the host's CPUs, and says so.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from nova_vhpc.control import model

NO_CPU = 'none of the CPUs it may use is in cpu_shared_set; not pinned'
"""Reason given for a VM that cannot be pinned at all."""

Pins = tuple[frozenset[int], ...]
"""One set of host CPUs per vCPU, in vCPU order."""


@dataclasses.dataclass(frozen=True, slots=True)
class PinContext:
    """One tick, as pinning policies see it.

    :ivar view: the host, without what the controller had to ignore.
    :ivar phases: effective phase of every VM of the view.
    :ivar clear_cpus: CPUs that parallel VMs should be kept off, as the slice
        policy asked for in the last period.
    :ivar loose: parallel VMs that should not have a CPU for each vCPU, as it
        asked for, too.
    :ivar idle: parallel VMs that it takes to do nothing: whatever CPUs they
        have, these are as good as free.
    """

    view: model.HostView
    phases: Mapping[str, model.Phase]
    clear_cpus: frozenset[int] = frozenset()
    loose: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()

    def facts(self) -> 'Facts':
        """All that the pins of who is pinned already may depend on.

        To be compared with those of the last tick, which is quickly done:
        nearly always they are the same.
        """
        phases = self.phases
        return (
            *(self.view.cpus, self.clear_cpus, self.loose, self.idle),
            self.view.limits,
            [
                (
                    vm.uuid,
                    phases[vm.uuid],
                    vm.vcpus,
                    vm.workload,
                    vm.paradigm,
                    vm.cluster,
                    vm.repin,
                    vm.allowed_cpus,
                    vm.original.shares,
                )
                for vm in self.view.vms
            ],
        )


Facts = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PinDecision:
    """Answer of a pinning policy.

    :ivar pins: by uuid; a VM that is left out gets its original pins.
    :ivar in_io_pool: VMs that are pinned to the I/O pool.
    :ivar pools: the host's pools, if there are any.
    :ivar ignored: VMs that could not be pinned as wanted, and why; uuid
        '' for a remark on the host.
    """

    pins: Mapping[str, Pins] = dataclasses.field(default_factory=dict)
    in_io_pool: frozenset[str] = frozenset()
    pools: model.Pools | None = None
    ignored: tuple[model.Diagnostic, ...] = ()


class PinningPolicy(Protocol):
    """Chooses host CPUs, one call per control period.

    :ivar uses_phases: whether it looks at phases at all. Nothing is
        predicted on a host whose policies do not.
    """

    uses_phases: bool

    def pin(self, context: PinContext) -> PinDecision:
        """Choose the pins of the next period."""
        ...
