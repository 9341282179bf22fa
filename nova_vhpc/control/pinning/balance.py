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

"""``balance``: the vCPUs of a parallel VM on different CPUs.

VMs with other workloads are left alone: they gain nothing, and the
kernel's own balancing serves them better than pins.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import fair_share, model
from nova_vhpc.control.pinning import base, cpu_loads, spread, usable_cpus

# To look up a member of an enum takes long, for each VM, each tick.
_MPI, _PARALLEL = model.Paradigm.MPI, model.Workload.PARALLEL


class BalancePolicy:
    """Spreads parallel VMs over all CPUs of the host."""

    uses_phases = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start with nobody placed."""
        self._spreader = spread.Spreader(config.rebalance_periods)
        self._usable = usable_cpus.UsableCpus()
        self._unreserved = UnreservedCpus()
        self._facts: base.Facts = ()
        self._ignored: tuple[model.Diagnostic, ...] = ()

    def pin(self, context: base.PinContext) -> base.PinDecision:
        """Pin every parallel VM that may be pinned."""
        facts = context.facts()
        if facts != self._facts:
            requests, in_force = self._requests(context)
            pins = self._spreader.assign(requests, context.view.cpus, in_force)
            self._facts = facts
        else:
            pins = self._spreader.repeat()
        return base.PinDecision(pins=pins, ignored=self._ignored)

    def _requests(
        self, context: base.PinContext
    ) -> tuple[list[cpu_loads.Request], dict[str, base.Pins]]:
        """What to ask of the spreader, and the pins that are in force."""
        view = context.view
        usable = self._usable
        usable.update(view.cpus)
        self._unreserved.update(context.clear_cpus)
        ignored: list[model.Diagnostic] = []
        requests: list[cpu_loads.Request] = []
        in_force: dict[str, base.Pins] = {}
        for vm in view.vms:
            if (
                vm.workload != _PARALLEL
                or not vm.repin
                or vm.uuid in context.loose
            ):
                continue
            allowed_cpus = usable.of(vm)
            if not allowed_cpus:
                ignored.append(model.Diagnostic(vm.uuid, base.NO_CPU))
                continue
            requests.append(
                request_for(
                    vm,
                    self._unreserved.of(vm, allowed_cpus),
                    vm.uuid in context.idle,
                    view.limits,
                )
            )
            if vm.in_force.vcpu_pins is not None:
                in_force[vm.uuid] = vm.in_force.vcpu_pins
        self._ignored = tuple(ignored)
        return requests, in_force


class UnreservedCpus:
    """What CPUs that are to be left clear leave to parallel VMs."""

    def __init__(self) -> None:
        """Leave none clear."""
        self._clear: frozenset[int] = frozenset()
        # Few different sets: each is taken once.
        self._unreserved: dict[frozenset[int], frozenset[int]] = {}

    def update(self, clear: frozenset[int]) -> None:
        """Take the CPUs to be left clear, each tick."""
        if (
            clear != self._clear
            or len(self._unreserved) > usable_cpus.MAX_SETS
        ):
            self._clear = clear
            self._unreserved = {}

    def of(
        self, vm: model.VmView, allowed_cpus: frozenset[int]
    ) -> frozenset[int]:
        """CPUs for one VM; all of its own if it cannot do without."""
        if not self._clear:
            return allowed_cpus
        rest = self._unreserved.get(allowed_cpus)
        if rest is None:
            rest = self._unreserved[allowed_cpus] = allowed_cpus - self._clear
        return (
            rest
            if len(rest) >= min(vm.vcpus, len(allowed_cpus))
            else allowed_cpus
        )


def request_for(
    vm: model.VmView,
    allowed_cpus: frozenset[int],
    idle: bool,
    limits: model.ActuatorLimits,
) -> cpu_loads.Request:
    """How a VM is to be spread over a set of CPUs.

    OpenMP threads share data, so they stay inside one last-level cache;
    the processes of an MPI program gain more from a cache of their own.
    """
    return cpu_loads.Request(
        vm.uuid,
        vm.vcpus,
        allowed_cpus,
        vm.paradigm != _MPI,
        vm.cluster or '',
        idle,
        fair_share.own_shares(vm.original.shares, limits),
    )
