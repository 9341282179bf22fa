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

"""``io_pool``: VMs in the I/O phase on CPUs of their own.

I/O-perception paper, section III: computing and I/O VMs run in two
disjoint pools of CPUs, so that I/O is not held up by computing, and
computing is not interrupted as often as I/O has to be.
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
    usable_cpus,
)

# To look up a member of an enum takes long, for each VM, each tick.
_IO, _PARALLEL = model.Phase.IO, model.Workload.PARALLEL

_STAYS = 'stays in the computing pool, with all members of its cluster'

_NO_ROOM = (
    'a VM in the computing pool needs as many CPUs as the host has; ' + _STAYS
)

_Domains = dict[frozenset[int], frozenset[int]]

_Movable = tuple[model.VmView, frozenset[int], bool, int]
"""A VM, the CPUs that it may use, whether it is in the I/O phase, and how many
CPUs it must have: a parallel one as many as vCPUs, others one."""


class IoPoolPolicy:
    """Two pools; in each, siblings on different CPUs."""

    uses_phases = True

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start with nobody placed."""
        self._sizer = pools.PoolSizer(config)
        self._spreader = spread.Spreader(config.rebalance_periods)
        self._usable = usable_cpus.UsableCpus()
        self._rest = balance.Rest()
        # Of the last tick: nearly always it is the same in the next one.
        self._facts: base.Facts = ()
        self._bounds: tuple[model.Pools | None, int, str] = (None, 0, '')
        self._movable: list[_Movable] = []
        self._nowhere: list[model.Diagnostic] = []
        self._wants_io, self._wants_computing = pools.Demand(), pools.Demand()
        self._decision = base.PinDecision()
        # Of the computing pool and the I/O pool, by CPUs that are allowed.
        self._domains: tuple[_Domains, _Domains] = ({}, {})

    def pin(self, context: base.PinContext) -> base.PinDecision:
        """Pin every VM that may be pinned into its pool.

        Parallel VMs get one CPU per vCPU, others and loose ones in the
        computing pool the whole pool. The members
        of a cluster move together: where the I/O pool is too narrow for one
        of them, all stay in the computing pool. A parallel VM for which that
        is too narrow, too, may use all of its CPUs.
        """
        view = context.view
        facts = context.facts()
        is_news = facts != self._facts
        if is_news:
            self._look(context)
        sizer = self._sizer
        divided = sizer.divide(
            view.cpus, self._wants_io, self._wants_computing
        )
        bounds = (divided, sizer.room, sizer.remark)
        if not is_news and bounds == self._bounds:
            spread_out = self._spreader.again()
        else:
            if divided != self._bounds[0]:
                self._domains = ({}, {})
            requests = self._divide(context, divided)
            in_force = {
                vm.uuid: vm.in_force.vcpu_pins
                for vm in view.vms
                if vm.in_force.vcpu_pins is not None
            }
            spread_out = self._spreader.assign(requests, view.cpus, in_force)
            self._facts, self._bounds = facts, bounds
        divided_up = self._decision
        return dataclasses.replace(
            divided_up, pins={**divided_up.pins, **spread_out}
        )

    def _look(self, context: base.PinContext) -> None:
        """See who may be pinned, and what they want of the pools."""
        usable = self._usable
        if usable.show(context.view.cpus):
            self._domains = ({}, {})
        self._nowhere = []
        self._movable = movable = []
        for vm in context.view.vms:
            if not vm.repin:
                continue
            allowed = usable.of(vm)
            if not allowed:
                self._nowhere.append(model.Diagnostic(vm.uuid, base.NO_CPU))
                continue
            width = vm.vcpus if vm.workload == _PARALLEL else 1
            io = context.phases[vm.uuid] is _IO
            movable.append((vm, allowed, io, width))
        widths = _widths(movable)
        self._wants_io, self._wants_computing = pools.Demand(), pools.Demand()
        for vm, _, io, width in movable:
            demand = self._wants_io if io else self._wants_computing
            demand.vcpus.append(vm.vcpus)
            demand.widths.append(
                widths.get(vm.cluster, width) if io else width
            )

    def _divide(
        self, context: base.PinContext, divided: model.Pools | None
    ) -> list[cpu_loads.Request]:
        """Say who is in which pool.

        :returns: whose vCPUs are to be spread there.
        """
        self._rest.show(context.clear_cpus)
        ignored = [*self._nowhere]
        if self._sizer.remark:
            ignored.append(model.Diagnostic('', self._sizer.remark))
        pins: dict[str, base.Pins] = {}
        in_io_pool: set[str] = set()
        requests: list[cpu_loads.Request] = []
        movable = self._movable
        stay = {} if divided is None else self._stay(divided, movable)
        for vm, allowed, io, width in movable:
            domain = allowed
            if divided is not None:
                why = stay.get(vm.cluster or vm.uuid) if io else None
                if why is not None:
                    ignored.append(model.Diagnostic(vm.uuid, why))
                    io = False
                domain = self._domain(divided, io, allowed)
                if io:
                    in_io_pool.add(vm.uuid)
                elif vm.workload == _PARALLEL and len(domain) < min(
                    width, len(allowed)
                ):
                    ignored.append(_squeezed(vm, len(domain)))
                    domain = allowed
                elif not domain:
                    ignored.append(_no_cpu(vm))
                    continue
            if vm.workload == _PARALLEL and (
                io or vm.uuid not in context.loose
            ):
                if not io:
                    domain = self._rest.of(vm, domain)
                idle = not io and vm.uuid in context.idle
                requests.append(
                    balance.request_for(vm, domain, idle, context.view.limits)
                )
            elif io or domain != allowed:
                pins[vm.uuid] = (domain,) * vm.vcpus
        self._decision = base.PinDecision(
            pins=pins,
            in_io_pool=frozenset(in_io_pool),
            pools=divided,
            ignored=tuple(ignored),
        )
        return requests

    def _stay(
        self, divided: model.Pools, movable: list[_Movable]
    ) -> dict[str, str]:
        """Clusters, and VMs without one, that cannot go to the I/O pool.

        :returns: why, by cluster or uuid.
        """
        room = self._sizer.room
        stay: dict[str, str] = {}
        for vm, allowed, io, width in movable:
            if not io:
                continue
            cpus = len(self._domain(divided, True, allowed))
            if not cpus or width > room or cpus < min(width, len(allowed)):
                why = _NO_ROOM if width <= cpus else _too_wide(vm, cpus)
                stay.setdefault(vm.cluster or vm.uuid, why)
        return stay

    def _domain(
        self, divided: model.Pools, io: bool, allowed: frozenset[int]
    ) -> frozenset[int]:
        """CPUs of a VM in one of the pools.

        Many VMs, few different sets: each is intersected once, and kept.
        """
        domains = self._domains[io]
        domain = domains.get(allowed)
        if domain is None:
            pool = divided.io if io else divided.computing
            if divided.lent and not io:
                pool |= divided.io
            domain = domains[allowed] = allowed & pool
        return domain


def _widths(movable: list[_Movable]) -> dict[str | None, int]:
    """By cluster, CPUs that the widest member in the I/O phase must have."""
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
