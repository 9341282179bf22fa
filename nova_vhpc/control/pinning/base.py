# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The interface of pinning policies: their input and their result.

A policy is a class with one method. It is found by its entry point in
``nova_vhpc.pinning_policies`` and constructed with the :class:`ControlConfig`.
It may keep state, but must drop VMs that the view no longer has. Pins to CPUs
that the VM or the host does not have are dropped and reported by the
controller.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model

NO_CPU = 'none of the CPUs it may use is in cpu_shared_set; not pinned'
"""Reason of the diagnostic for a VM that cannot be pinned at all."""

Pins = tuple[frozenset[int], ...]
"""One set of host CPUs per vCPU, in vCPU order."""


@dataclasses.dataclass(frozen=True, slots=True)
class PinContext:
    """Input of a pinning policy in one tick.

    :ivar view: the host, without VMs that the controller had to ignore.
    :ivar phases: by VM of the view, its effective phase.
    :ivar clear_cpus: reserved CPUs, which parallel VMs should not use, by
        the slice policy's decision of the last period.
    :ivar loose: parallel VMs that should be unpinned, so without a CPU for
        each vCPU, by the same decision.
    :ivar idle: parallel VMs that do nothing, by the same decision; their
        CPUs count as free.
    """

    view: model.HostView
    phases: Mapping[str, model.Phase]
    clear_cpus: frozenset[int] = frozenset()
    loose: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()

    def facts(self) -> 'Facts':
        """Return all that pins depend on, except for the pins in force.

        Facts are nearly always equal from tick to tick. A policy that
        compares them need not work out its pins again.
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
"""Result of :meth:`PinContext.facts`, to be compared only."""


@dataclasses.dataclass(frozen=True, slots=True)
class PinDecision:
    """Result of a pinning policy.

    :ivar pins: by UUID, the pins of a VM; a VM that is missing gets its
        original ones.
    :ivar in_io_pool: UUIDs of VMs that are pinned to the I/O pool.
    :ivar pools: pools of the host, or None.
    :ivar ignored: diagnostics on VMs that could not be pinned as wanted; with
        the UUID '', on the host.
    """

    pins: Mapping[str, Pins] = dataclasses.field(default_factory=dict)
    in_io_pool: frozenset[str] = frozenset()
    pools: model.Pools | None = None
    ignored: tuple[model.Diagnostic, ...] = ()


class PinningPolicy(Protocol):
    """Chooses host CPUs, once per control period.

    :ivar uses_phases: whether the policy uses phases. Nothing is predicted
        on a host of which no policy does.
    """

    uses_phases: bool

    def pin(self, context: PinContext) -> PinDecision:
        """Return the pins of the next period."""
        ...


class NonePolicy:
    """Pins no VM; the smallest pinning policy, an example for plugins."""

    uses_phases = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Accept the configuration, like every policy; it is not used."""

    def pin(self, context: PinContext) -> PinDecision:
        """Return no pins."""
        return PinDecision()
