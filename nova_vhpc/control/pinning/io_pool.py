# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``io_pool``: VMs in the I/O phase on CPUs of their own.

I/O-perception paper, section III: VMs in the computing phase and VMs in the
I/O phase run in two disjoint pools of CPUs, so that I/O is not delayed by
computing, and computing is not interrupted as often as I/O has to be.
"""

import dataclasses

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.pinning import (
    balance,
    base,
    cpu_loads,
    pools,
    spread,
)

# Looking up enum members for each VM in each tick takes 3% of a decision.
_IO, _PARALLEL = model.Phase.IO, model.Workload.PARALLEL

_STAYS = 'stays in the computing pool, with all members of its cluster'

_NO_ROOM = (
    'a VM in the computing pool needs as many CPUs as the host has; ' + _STAYS
)

_Movable = tuple[model.VmView, frozenset[int], bool, int]
"""A VM that may be pinned; the CPUs that it may use; whether it is in the I/O
phase; and the number of CPUs that it needs, which is that of its vCPUs for a
parallel VM and 1 for others."""


class IoPoolPolicy:
    """Pins VMs to the pool of their phase, siblings to different CPUs."""

    uses_phases = True

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start without any VM."""
        self._sizer = pools.PoolSizer(config)
        self._spreader = spread.Spreader(config.rebalance_periods)
        self._usable = cpu_loads.UsableCpus()
        # Of the last tick; in the next one all this is nearly always equal,
        # and comparing it saves 8% of a decision (see BalancePolicy).
        self._facts: base.Facts = ()
        self._bounds: tuple[model.Pools | None, int, str] = (None, 0, '')
        self._movable: list[_Movable] = []
        self._unpinnable: list[model.Diagnostic] = []
        self._wants_io, self._wants_computing = pools.Demand(), pools.Demand()
        self._decision = base.PinDecision()

    def pin(self, context: base.PinContext) -> base.PinDecision:
        """Pin each VM that may be pinned to the pool of its phase.

        A parallel VM gets one CPU per vCPU. All other VMs, and unpinned ones
        in the computing pool, get the whole pool. The members of a cluster
        move together: if the I/O pool is too narrow for one of them, all stay
        in the computing pool. A parallel VM for which that is too narrow as
        well may use all of its CPUs.
        """
        view = context.view
        facts = context.facts()
        is_changed = facts != self._facts
        if is_changed:
            self._collect_demand(context)
        sizer = self._sizer
        host_pools = sizer.divide(
            view.cpus, self._wants_io, self._wants_computing
        )
        bounds = (host_pools, sizer.max_width, sizer.diagnostic)
        if not is_changed and bounds == self._bounds:
            spread_pins = self._spreader.repeat()
        else:
            requests = self._assign_pools(context, host_pools)
            in_force = {
                vm.uuid: vm.in_force.vcpu_pins
                for vm in view.vms
                if vm.in_force.vcpu_pins is not None
            }
            spread_pins = self._spreader.assign(requests, view.cpus, in_force)
            self._facts, self._bounds = facts, bounds
        decision = self._decision
        return dataclasses.replace(
            decision, pins={**decision.pins, **spread_pins}
        )

    def _collect_demand(self, context: base.PinContext) -> None:
        """Collect the VMs that may be pinned and their demand on the pools."""
        usable = self._usable
        usable.update(context.view.cpus)
        self._unpinnable = []
        self._movable = movable = []
        for vm in context.view.vms:
            if not vm.repin:
                continue
            allowed_cpus = usable.of(vm)
            if not allowed_cpus:
                self._unpinnable.append(model.Diagnostic(vm.uuid, base.NO_CPU))
                continue
            width = vm.vcpus if vm.workload == _PARALLEL else 1
            io = context.phases[vm.uuid] is _IO
            movable.append((vm, allowed_cpus, io, width))
        widths = _widths(movable)
        self._wants_io, self._wants_computing = pools.Demand(), pools.Demand()
        for vm, _, io, width in movable:
            demand = self._wants_io if io else self._wants_computing
            demand.vcpus.append(vm.vcpus)
            demand.widths.append(
                widths.get(vm.cluster, width) if io else width
            )

    def _assign_pools(
        self, context: base.PinContext, host_pools: model.Pools | None
    ) -> list[cpu_loads.Request]:
        """Assign each VM to a pool.

        :param host_pools: the pools; None if there are none.
        :returns: requests to spread the vCPUs of VMs within their pools.
        """
        ignored = [*self._unpinnable]
        if self._sizer.diagnostic:
            ignored.append(model.Diagnostic('', self._sizer.diagnostic))
        pins: dict[str, base.Pins] = {}
        in_io_pool: set[str] = set()
        requests: list[cpu_loads.Request] = []
        movable = self._movable
        kept_out = (
            {} if host_pools is None else self._kept_out(host_pools, movable)
        )
        for vm, allowed_cpus, io, width in movable:
            cpus = allowed_cpus
            if host_pools is not None:
                reason = kept_out.get(vm.cluster or vm.uuid) if io else None
                if reason is not None:
                    ignored.append(model.Diagnostic(vm.uuid, reason))
                    io = False
                cpus = _pool_cpus(host_pools, io) & allowed_cpus
                if io:
                    in_io_pool.add(vm.uuid)
                elif vm.workload == _PARALLEL and len(cpus) < min(
                    width, len(allowed_cpus)
                ):
                    ignored.append(_squeezed(vm, len(cpus)))
                    cpus = allowed_cpus
                elif not cpus:
                    ignored.append(_no_cpu(vm))
                    continue
            if vm.workload == _PARALLEL and (
                io or vm.uuid not in context.loose
            ):
                if not io:
                    cpus = balance.unreserved_cpus(
                        vm, cpus, context.clear_cpus
                    )
                idle = not io and vm.uuid in context.idle
                requests.append(
                    balance.request_for(vm, cpus, idle, context.view.limits)
                )
            elif io or cpus != allowed_cpus:
                pins[vm.uuid] = (cpus,) * vm.vcpus
        self._decision = base.PinDecision(
            pins=pins,
            in_io_pool=frozenset(in_io_pool),
            pools=host_pools,
            ignored=tuple(ignored),
        )
        return requests

    def _kept_out(
        self, host_pools: model.Pools, movable: list[_Movable]
    ) -> dict[str, str]:
        """Return what has to stay out of the I/O pool, and the reasons.

        :returns: by name of a cluster, or UUID of a VM without one, the
            reason.
        """
        max_width = self._sizer.max_width
        kept_out: dict[str, str] = {}
        for vm, allowed_cpus, io, width in movable:
            if not io:
                continue
            cpu_count = len(host_pools.io & allowed_cpus)
            if (
                not cpu_count
                or width > max_width
                or cpu_count < min(width, len(allowed_cpus))
            ):
                reason = (
                    _NO_ROOM
                    if width <= cpu_count
                    else _too_wide(vm, cpu_count)
                )
                kept_out.setdefault(vm.cluster or vm.uuid, reason)
        return kept_out


def _pool_cpus(host_pools: model.Pools, io: bool) -> frozenset[int]:
    """Return the CPUs of a pool; the computing pool with lent ones."""
    if io:
        return host_pools.io
    if host_pools.lent:
        return host_pools.computing | host_pools.io
    return host_pools.computing


def _widths(movable: list[_Movable]) -> dict[str | None, int]:
    """Return, by cluster, the CPUs that its widest member needs for I/O."""
    widths: dict[str | None, int] = {}
    for vm, _, io, width in movable:
        if io and vm.cluster is not None:
            widths[vm.cluster] = max(width, widths.get(vm.cluster, 1))
    return widths


def _too_wide(vm: model.VmView, cpus: int) -> str:
    if not cpus:
        return f'none of the CPUs of {vm.uuid} is in the I/O pool; ' + _STAYS
    return (
        f'{vm.uuid} has {vm.vcpus} vCPUs, too many for the I/O pool '
        f'({_cpus(cpus)} for it now): siblings would share a CPU; ' + _STAYS
    )


def _squeezed(vm: model.VmView, cpus: int) -> model.Diagnostic:
    return model.Diagnostic(
        vm.uuid,
        f'has {vm.vcpus} vCPUs, too many for the computing pool '
        f'({_cpus(cpus)} for it now): siblings would share a CPU; may use all '
        'of its CPUs, those of the I/O pool included',
    )


def _cpus(number: int) -> str:
    return f'{number} CPU' if number == 1 else f'{number} CPUs'


def _no_cpu(vm: model.VmView) -> model.Diagnostic:
    return model.Diagnostic(
        vm.uuid, 'none of its CPUs is in the computing pool; not pinned'
    )
