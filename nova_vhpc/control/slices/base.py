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


"""What a time slice policy is shown, and what it answers.

A policy is a class with one method, found by its entry point in
``nova_vhpc.slice_policies`` and made with the :class:`ControlConfig`. It
may keep state, but must forget VMs that are no longer shown. It need not
care for limits: the controller writes no slice that the actuator, the
flavor's CPU share or libvirt forbid.
"""

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from nova_vhpc.control import model


@dataclasses.dataclass(frozen=True, slots=True)
class SliceContext:
    """One tick, as slice policies see it.

    :ivar view: the host, without what the controller had to ignore;
        samples are checked (finite, not negative) or None.
    :ivar phases: effective phase of every VM of the view.
    :ivar pins: one host CPU set per vCPU, for VMs that are pinned now.
    :ivar in_io_pool: VMs that run in the I/O pool now. The controller
        gives them the pool's short slice whatever the policy says, and
        leaves them out of windows.
    """

    view: model.HostView
    phases: Mapping[str, model.Phase]
    pins: Mapping[str, tuple[frozenset[int], ...]]
    in_io_pool: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class VmSlice:
    """The time slice chosen for one VM.

    :ivar slice_us: None leaves the VM with its original period and quota.
    :ivar by_windows: the slice is brought about by the window schedule
        (``gang``), so period and quota stay as they were originally.
    :ivar own_us: what this VM alone would have, before any minimum over
        several; told to the other hosts of its cluster (``share_slices``).
    :ivar specified: the administrator asked for just this slice; it may
        be longer than the one that the flavor's own period makes.
    """

    slice_us: int | None = None
    reason: str = ''
    by_windows: bool = False
    specified: bool = False
    own_us: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SliceDecision:
    """Answer of a slice policy.

    :ivar vms: by uuid; a VM that is left out keeps its original.
    :ivar windows: gang windows to be played until the next plan. The
        controller drops a schedule that names other VMs than the view's
        or shares outside of the actuator's limits, and says so.
    :ivar clear_cpus: CPUs that parallel VMs should be kept off, for others;
        pinning policies may know better.
    :ivar loose: parallel VMs, by uuid, that should not have a CPU for each
        vCPU; pinning policies may know better.
    :ivar idle: parallel VMs, by uuid, that do nothing.
    """

    vms: Mapping[str, VmSlice] = dataclasses.field(default_factory=dict)
    windows: model.WindowSchedule | None = None
    clear_cpus: frozenset[int] = frozenset()
    loose: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()


class SlicePolicy(Protocol):
    """Chooses time slices, one call per control period.

    A policy that looks at phases has an attribute ``uses_phases = True``;
    nothing is predicted on a host whose policies do not. One that never
    looks at I/O events has ``uses_io = False``; they are then read less
    often.
    """

    def decide(self, context: SliceContext) -> SliceDecision:
        """Choose the slices (and windows) of the next period."""
        ...
