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

"""From what a host shows to what is to be in force: the only door.

:class:`Controller` holds all state of the control core. It has no clock
and touches nothing: the same views in the same order give the same plans.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model, validation, vm_plan, windows
from nova_vhpc.control.phases import tracker
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.control.pinning import usable_cpus
from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.slices import base as slices_base

_Checked = tuple[pinning_base.Pins, int, frozenset[int] | None]
"""Pins that are all right for so many vCPUs, where these CPUs are allowed."""

_Windows = tuple[model.WindowSchedule, frozenset[str], model.ActuatorLimits]
"""Windows that are all right for these VMs and this actuator."""

_SETS = {'clear_cpus': 'clear CPUs', 'loose': 'loose VMs', 'idle': 'idle VMs'}
"""What a slice policy may ask of the pinning policy, and its name."""


class Controller:
    """Turns one :class:`model.HostView` per tick into a plan.

    :ivar predicts: whether a policy looks at phases; if none does, nothing
        is predicted, whatever predictor there is.
    """

    def __init__(
        self,
        config: control_config.ControlConfig,
        slice_policy: slices_base.SlicePolicy,
        pinning_policy: pinning_base.PinningPolicy,
        make_predictor: Callable[[], predictors_base.Predictor],
    ) -> None:
        """Take the policies and a factory of predictors, one per VM."""
        self.config = config
        self._slice_policy = slice_policy
        self._pinning_policy = pinning_policy
        # Predicting is the dearest part of a tick: not for nothing.
        self.predicts = bool(
            getattr(pinning_policy, 'uses_phases', True)
            or getattr(slice_policy, 'uses_phases', False)
        )
        self._phases = tracker.PhaseTracker(
            config, make_predictor, follow=self.predicts
        )
        self._intake: validation.Intake | None = None
        self._planner = vm_plan.VmPlanner()
        # Made once and kept, as what is the same object need not be compared
        # field by field, which for many VMs takes much of a tick.
        self._in_pool = slices_base.VmSlice(
            config.io_slice_us, reason='I/O pool'
        )
        self._original = slices_base.VmSlice()
        self._limits = model.ActuatorLimits()
        # What the slice policy asked of the pinning policy last.
        self._sliced = slices_base.SliceDecision()
        self._usable = usable_cpus.UsableCpus()
        self._checked: dict[str, _Checked] = {}
        self._harmless_windows: _Windows | None = None

    def decide(self, view: model.HostView) -> model.Plan:
        """Plan the next control period; never raises on bad input."""
        checked = self._intake = validation.check(view, self._intake)
        ignored = list(checked.ignored)
        view = checked.view
        vm_phases = self._phases.advance(view)
        ignored.extend(self._phases.faults)
        effective = {
            uuid: phase.effective for uuid, phase in vm_phases.items()
        }

        pinned = self._pin(
            pinning_base.PinContext(
                view,
                effective,
                self._sliced.clear_cpus,
                self._sliced.loose,
                self._sliced.idle,
            ),
            ignored,
        )
        sliced = self._slice(
            slices_base.SliceContext(
                view=view,
                phases=effective,
                pins=pinned.pins,
                in_io_pool=pinned.in_io_pool,
            ),
            ignored,
        )
        self._sliced = sliced
        return model.Plan(
            vms=self._plan_vms(view, vm_phases, pinned, sliced, ignored),
            windows=sliced.windows,
            clusters=self._clusters(view, sliced),
            ignored=tuple(ignored),
            pools=pinned.pools,
        )

    def _pin(
        self,
        context: pinning_base.PinContext,
        ignored: list[model.Diagnostic],
    ) -> pinning_base.PinDecision:
        """Ask the pinning policy."""
        try:
            return self._allowed(
                self._pinning_policy.pin(context), context, ignored
            )
        except Exception as error:
            # Policies are plugins: a faulty one must not stop the agent.
            ignored.append(
                model.Diagnostic('', f'pinning policy failed: {error!r}')
            )
            return pinning_base.PinDecision()

    def _allowed(
        self,
        decision: pinning_base.PinDecision,
        context: pinning_base.PinContext,
        ignored: list[model.Diagnostic],
    ) -> pinning_base.PinDecision:
        """Keep only pins that are allowed."""
        ignored.extend(decision.ignored)
        usable, known = self._usable, self._checked
        vms = context.view.vms
        if usable.update(context.view.cpus):
            known.clear()
        elif len(known) > len(vms):
            for gone in known.keys() - {vm.uuid for vm in vms}:
                del known[gone]
        pins: dict[str, pinning_base.Pins] = {}
        for vm in vms:
            uuid = vm.uuid
            wanted = decision.pins.get(uuid)
            if wanted is None or not vm.repin:
                continue
            checked = known.get(uuid)
            if (
                checked is None
                or checked[0] is not wanted
                or checked[1] != vm.vcpus
                or checked[2] is not vm.allowed_cpus
            ):
                if not _inside(wanted, vm.vcpus, usable.of(vm)):
                    ignored.append(
                        model.Diagnostic(
                            uuid, 'pins outside of its CPUs; not pinned'
                        )
                    )
                    continue
                known[uuid] = (wanted, vm.vcpus, vm.allowed_cpus)
            pins[uuid] = wanted
        return dataclasses.replace(
            decision,
            pins=pins,
            in_io_pool=decision.in_io_pool & pins.keys(),
        )

    def _slice(
        self,
        context: slices_base.SliceContext,
        ignored: list[model.Diagnostic],
    ) -> slices_base.SliceDecision:
        """Ask the slice policy."""
        try:
            return self._harmless(
                self._slice_policy.decide(context), context, ignored
            )
        except Exception as error:
            ignored.append(
                model.Diagnostic('', f'slice policy failed: {error!r}')
            )
            return slices_base.SliceDecision()

    def _harmless(
        self,
        decision: slices_base.SliceDecision,
        context: slices_base.SliceContext,
        ignored: list[model.Diagnostic],
    ) -> slices_base.SliceDecision:
        """Drop what could do harm, or is not what it should be."""
        # Else the pinning policy would fail, and be blamed for it.
        for name, text in _SETS.items():
            if type(getattr(decision, name)) is not frozenset:
                ignored.append(model.Diagnostic('', f'{text}: no set'))
                nothing: dict[str, Any] = {name: frozenset()}
                decision = dataclasses.replace(decision, **nothing)
        schedule = decision.windows
        if schedule is None:
            return decision
        uuids = frozenset(context.phases) - context.in_io_pool
        limits = context.view.limits
        known = self._harmless_windows
        if (
            known is not None
            and known[0] is schedule
            and known[1:] == (uuids, limits)
        ):
            return decision
        fault = windows.fault(schedule, uuids, limits)
        if fault is not None:
            ignored.append(model.Diagnostic('', f'windows dropped: {fault}'))
            return dataclasses.replace(decision, windows=None)
        self._harmless_windows = schedule, uuids, limits
        return decision

    def _plan_vms(
        self,
        view: model.HostView,
        vm_phases: Mapping[str, tracker.VmPhase],
        pinned: pinning_base.PinDecision,
        sliced: slices_base.SliceDecision,
        ignored: list[model.Diagnostic],
    ) -> dict[str, model.VmPlan]:
        """Put slices, pins and originals together, VM by VM."""
        self._planner.forget_all_but(vm_phases.keys())
        in_windows: Collection[str] = ()
        if sliced.windows is not None:
            in_windows = sliced.windows.shares_after.keys()
        if view.limits != self._limits:
            self._limits = view.limits
        in_pool, original, limits = self._in_pool, self._original, self._limits
        in_io_pool, pins_of = pinned.in_io_pool, pinned.pins.get
        choose, plan = sliced.vms.get, self._planner.plan
        plans: dict[str, model.VmPlan] = {}
        for vm in view.vms:
            uuid = vm.uuid
            choice = in_pool if uuid in in_io_pool else choose(uuid, original)
            try:
                plans[uuid] = plan(
                    uuid,
                    (
                        choice.slice_us,
                        choice.by_windows,
                        choice.specified,
                        pins_of(uuid),
                        uuid in in_windows,
                        vm.repin,
                        vm.original,
                        limits,
                    ),
                    vm.in_force,
                    choice.reason,
                    vm_phases[uuid],
                    ignored,
                )
            except Exception as error:
                # What nobody thought of in one VM must not stop the rest.
                ignored.append(
                    model.Diagnostic(uuid, f'cannot be planned: {error!r}')
                )
        return plans

    def _clusters(
        self, view: model.HostView, sliced: slices_base.SliceDecision
    ) -> dict[str, model.ClusterPlan]:
        """What the other hosts of each cluster should know."""
        least: dict[str, int | None] = {
            vm.cluster: None for vm in view.vms if vm.cluster is not None
        }
        if self.config.share_slices:
            for vm in view.vms:
                choice = sliced.vms.get(vm.uuid)
                own_us = None if choice is None else choice.own_us
                if vm.cluster is not None and own_us is not None:
                    so_far = least[vm.cluster]
                    least[vm.cluster] = (
                        own_us if so_far is None else min(so_far, own_us)
                    )
        return {
            cluster: model.ClusterPlan(
                phase=self._phases.own_phase(cluster), min_slice_us=slice_us
            )
            for cluster, slice_us in least.items()
        }


def _inside(
    pins: pinning_base.Pins, vcpus: int, allowed: frozenset[int]
) -> bool:
    """Whether pins are complete and leave no CPU that is allowed."""
    return (
        len(pins) == vcpus
        and all(pins)
        and frozenset().union(*pins) <= allowed
    )
