# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The interface of time slice policies: their input and their result.

A policy is a class with one method. It is found by its entry point in
``nova_vhpc.slice_policies`` and constructed with the :class:`ControlConfig`.
It may keep state, but must drop VMs that the view no longer has. It need not
observe limits: the controller writes no slice that the actuator, the flavor's
CPU share or libvirt forbid.
"""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model


@dataclasses.dataclass(frozen=True, slots=True)
class SliceContext:
    """Input of a slice policy in one tick.

    :ivar view: the host, without VMs that the controller had to ignore. Each
        sample is valid (finite, not negative) or None.
    :ivar phases: by VM of the view, its effective phase.
    :ivar pins: by VM that is pinned now, one set of host CPUs per vCPU.
    :ivar in_io_pool: VMs that run in the I/O pool now. The controller gives
        them the pool's short slice, whatever the policy decides, and leaves
        them out of windows.
    """

    view: model.HostView
    phases: Mapping[str, model.Phase]
    pins: Mapping[str, tuple[frozenset[int], ...]]
    in_io_pool: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class VmSlice:
    """The time slice chosen for one VM.

    :ivar slice_us: time slice in microseconds; None leaves the VM with its
        original period and quota.
    :ivar reason: reason for the choice, for the status.
    :ivar by_windows: whether the window schedule (``gang``) brings the slice
        about; period and quota then stay the original ones.
    :ivar own_us: slice in microseconds that the VM alone would have, before
        any minimum over several VMs. It is sent to the other hosts of the
        cluster (``share_slices``).
    :ivar specified: whether the administrator specified this slice. It may
        then be longer than the slice that follows from the flavor's period.
    :ivar optional: whether nothing is reported if the slice cannot act.
    """

    slice_us: int | None = None
    reason: str = ''
    by_windows: bool = False
    specified: bool = False
    optional: bool = False
    own_us: int | None = None


def specified(slice_us: int) -> VmSlice:
    """Return the choice of the slice that the administrator specified."""
    return VmSlice(slice_us, reason='specified', specified=True)


@dataclasses.dataclass(frozen=True, slots=True)
class SliceDecision:
    """Result of a slice policy.

    :ivar vms: by UUID, the slice of a VM; a VM that is missing keeps its
        original one.
    :ivar windows: schedule of gang windows until the next plan. If it has
        VMs that the view does not have, or shares beyond the actuator's
        limits, the controller drops it and reports that.
    :ivar clear_cpus: reserved CPUs, which parallel VMs should not use; a
        pinning policy may decide otherwise.
    :ivar loose: UUIDs of parallel VMs that should be unpinned, so without
        a CPU for each vCPU; a pinning policy may decide otherwise.
    :ivar idle: UUIDs of parallel VMs that do nothing.
    :ivar cpu_shares: what VMs received of their entitlement; None if the
        policy does not measure that.
    :ivar gangs: what gangs are entitled to, to agree with other hosts on
        slots.
    :ivar waiting: how programs wait, by UUID; empty if the policy does not
        look.
    """

    vms: Mapping[str, VmSlice] = dataclasses.field(default_factory=dict)
    windows: model.WindowSchedule | None = None
    clear_cpus: frozenset[int] = frozenset()
    loose: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    cpu_shares: model.Shares | None = None
    gangs: tuple[model.GangDemand, ...] = ()
    waiting: Mapping[str, model.Waiting] = dataclasses.field(
        default_factory=dict
    )


class SlicePolicy(Protocol):
    """Chooses time slices, once per control period.

    A policy that uses phases has an attribute ``uses_phases = True``;
    nothing is predicted on a host of which no policy does. A policy that
    never uses I/O events has ``uses_io = False``; they are then read less
    often. A policy that places vCPUs by its windows has ``places_vcpus =
    True``: parallel VMs are then not pinned, because a pinned vCPU waits for
    its CPU even if others are idle.
    """

    def decide(self, context: SliceContext) -> SliceDecision:
        """Return the slices (and windows) of the next period."""
        ...


class NonePolicy:
    """Changes no slice; the smallest slice policy, an example for plugins."""

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Accept the configuration, like every policy; it is not used."""

    def decide(self, context: SliceContext) -> SliceDecision:
        """Return no slices."""
        return SliceDecision()
