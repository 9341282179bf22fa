# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``balance``: the vCPUs of a parallel VM on different CPUs.

Balance scheduling (BS in the ATC paper). VMs with other workloads are not
pinned: they gain nothing by it, and the kernel's own balancing serves them
better.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import fair_share, model
from nova_vhpc.control.pinning import base, cpu_loads, spread

# Looking up enum members for each VM in each tick takes 3% of a decision.
_MPI, _PARALLEL = model.Paradigm.MPI, model.Workload.PARALLEL


class BalancePolicy:
    """Spreads parallel VMs over all CPUs of the host."""

    uses_phases = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start without any VM."""
        self._spreader = spread.Spreader(config.rebalance_periods)
        self._usable = cpu_loads.UsableCpus()
        self._facts: base.Facts = ()
        self._ignored: tuple[model.Diagnostic, ...] = ()

    def pin(self, context: base.PinContext) -> base.PinDecision:
        """Return pins of all parallel VMs that may be pinned."""
        facts = context.facts()
        # To work out the requests in each tick takes 10% more of a decision
        # (gang and balance, 200 VMs on 64 CPUs).
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
        """Return the requests to the spreader, and the pins in force."""
        view = context.view
        usable = self._usable
        usable.update(view.cpus)
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
                    unreserved_cpus(vm, allowed_cpus, context.clear_cpus),
                    vm.uuid in context.idle,
                    view.limits,
                )
            )
            if vm.in_force.vcpu_pins is not None:
                in_force[vm.uuid] = vm.in_force.vcpu_pins
        self._ignored = tuple(ignored)
        return requests, in_force


def unreserved_cpus(
    vm: model.VmView,
    allowed_cpus: frozenset[int],
    reserved_cpus: frozenset[int],
) -> frozenset[int]:
    """Return a VM's CPUs without the reserved ones, if these suffice.

    If fewer CPUs than vCPUs (or than allowed CPUs) are left, all of
    ``allowed_cpus`` are returned.
    """
    unreserved = allowed_cpus - reserved_cpus
    if len(unreserved) >= min(vm.vcpus, len(allowed_cpus)):
        return unreserved
    return allowed_cpus


def request_for(
    vm: model.VmView,
    allowed_cpus: frozenset[int],
    idle: bool,
    limits: model.ActuatorLimits,
) -> cpu_loads.Request:
    """Return the request to spread a VM over a set of CPUs.

    OpenMP threads share data, so they stay within one last-level cache; the
    processes of an MPI program gain more from a cache of their own.

    :param allowed_cpus: CPUs that the VM may use.
    :param idle: whether the VM does nothing, so that it is no load.
    :param limits: bounds of the actuator, for the VM's shares.
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
