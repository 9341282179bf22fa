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

"""One VM's plan: from slice and pins to cputune, and to what to write."""

from collections.abc import Set
from typing import NamedTuple

from nova_vhpc.control import bandwidth as cputune
from nova_vhpc.control import model
from nova_vhpc.control.phases import tracker
from nova_vhpc.control.pinning import base as pinning_base

UNKNOWN_QUOTA = 'original period or quota unknown; not written'


class Wanted(NamedTuple):
    """All that a VM's cputune depends on.

    :ivar slice_us: as in :class:`~.slices.base.VmSlice`, and the next two.
    :ivar pins: None for the original ones.
    :ivar in_windows: the window player owns the VM's shares.
    """

    slice_us: int | None
    by_windows: bool
    specified: bool
    pins: pinning_base.Pins | None
    in_windows: bool
    repin: bool
    original: model.CpuTune
    limits: model.ActuatorLimits


Asked = tuple[
    int | None,
    bool,
    bool,
    pinning_base.Pins | None,
    bool,
    bool,
    model.CpuTune,
    model.ActuatorLimits,
]
"""The same before it is known to be news: a plain tuple is made in no time."""


class Outcome(NamedTuple):
    """What comes of it.

    :ivar remark: what could not be done, and why.
    """

    tune: model.CpuTune
    slice_us: int | None
    remark: str | None = None


_Known = tuple[Asked, Outcome, model.CpuTune, model.VmPlan]
"""What was asked for and came of it, what was in force, and the plan."""


class VmPlanner:
    """Plans VMs, and remembers the outcome while nothing changes."""

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[str, _Known] = {}

    def forget_all_but(self, uuids: Set[str]) -> None:
        """Drop VMs that are no longer there."""
        for gone in self._known.keys() - uuids:
            del self._known[gone]

    def plan(
        self,
        uuid: str,
        asked: Asked,
        in_force: model.CpuTune,
        reason: str,
        phase: tracker.VmPhase,
        ignored: list[model.Diagnostic],
    ) -> model.VmPlan:
        """One VM's whole cputune, and what of it must be written.

        :param asked: what :class:`Wanted` is made of.
        :param reason: why it is wanted.
        """
        effective, predicted_events, threshold_events = phase
        known = self._known.get(uuid)
        if known is None or known[0] != asked:
            outcome = work_out(Wanted(*asked))
            writes = _writes(outcome.tune, in_force)
        else:
            asked, outcome, was_in_force, plan = known
            if in_force is was_in_force:
                if (
                    plan.predicted_events == predicted_events
                    and plan.threshold_events == threshold_events
                    and plan.phase is effective
                    and plan.reason == reason
                ):
                    if outcome.remark is not None:
                        ignored.append(model.Diagnostic(uuid, outcome.remark))
                    return plan
                writes = plan.writes
            else:
                writes = _writes(outcome.tune, in_force)
        if outcome.remark is not None:
            ignored.append(model.Diagnostic(uuid, outcome.remark))
        plan = model.VmPlan(
            uuid,
            outcome.tune,
            writes,
            outcome.slice_us,
            effective,
            reason,
            predicted_events,
            threshold_events,
        )
        self._known[uuid] = (asked, outcome, in_force, plan)
        return plan


def work_out(wanted: Wanted) -> Outcome:
    """The cputune that is wanted, inside all limits."""
    limits = wanted.limits
    slice_us = wanted.slice_us
    remark: str | None = None
    original = cputune.known(wanted.original)
    if original is not None and not cputune.possible(original, limits):
        original = None
    bandwidth = original
    if not wanted.by_windows and slice_us is not None:
        if original is None:
            remark = UNKNOWN_QUOTA
            slice_us = None
        elif not wanted.specified and _has_own_cpus(wanted, original):
            slice_us = None
        else:
            made = cputune.for_slice(
                slice_us, original, limits, wanted.specified
            )
            bandwidth = made or original
            slice_us = None if made is None else made[1]
    pins: pinning_base.Pins | None = None
    if wanted.repin:
        pins = (
            wanted.original.vcpu_pins if wanted.pins is None else wanted.pins
        )
    tune = model.CpuTune(
        period_us=None if bandwidth is None else bandwidth[0],
        quota_us=None if bandwidth is None else bandwidth[1],
        # While windows are played their player owns the shares.
        shares=None if wanted.in_windows else _shares(wanted.original, limits),
        vcpu_pins=pins,
    )
    return Outcome(tune, slice_us, remark)


def _has_own_cpus(wanted: Wanted, original: cputune.Bandwidth) -> bool:
    """Whether a slice could bring a VM nothing but a timer per period.

    Each vCPU has one CPU for good, as of a dedicated CPU policy, and no quota
    that would hold it up: there is nobody to yield to.
    """
    pins = wanted.original.vcpu_pins
    return (
        not wanted.repin
        and original[1] == model.UNLIMITED
        and bool(pins)
        and all(len(pin) == 1 for pin in pins or ())
    )


def _shares(
    original: model.CpuTune, limits: model.ActuatorLimits
) -> int | None:
    """The original shares, if they can be written at all."""
    shares = original.shares
    if shares is None or not limits.min_shares <= shares <= limits.max_shares:
        return None
    return shares


def _writes(
    tune: model.CpuTune, in_force: model.CpuTune
) -> model.CpuTune | None:
    """Fields of a cputune that differ from what is in force."""
    if tune is in_force:
        return None
    bandwidth = cputune.known(tune)
    if bandwidth == cputune.known(in_force):
        bandwidth = None
    shares = None if tune.shares == in_force.shares else tune.shares
    pins = None if tune.vcpu_pins == in_force.vcpu_pins else tune.vcpu_pins
    if bandwidth is None and shares is None and pins is None:
        return None
    return model.CpuTune(
        period_us=None if bandwidth is None else bandwidth[0],
        quota_us=None if bandwidth is None else bandwidth[1],
        shares=shares,
        vcpu_pins=pins,
    )
