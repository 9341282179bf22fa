# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Decide what to write to a host's VMs: the control core's entry point.

:class:`Controller` holds all state of the control core. It has no clock and
touches nothing: the same views in the same order give the same plans.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from nova_vhpc.control import checks, model, vm_plan
from nova_vhpc.control import config as control_config
from nova_vhpc.control.phases import tracker
from nova_vhpc.control.pinning import base as pinning_base
from nova_vhpc.control.pinning import cpu_loads
from nova_vhpc.control.predictors import base as predictors_base
from nova_vhpc.control.slices import base as slices_base

_CheckedPins = tuple[pinning_base.Pins, int, frozenset[int] | None]

_SET_FIELDS = ('clear_cpus', 'loose', 'idle')
"""What a slice policy asks of the pinning policy: fields of its decision."""


class Controller:
    """Turns one :class:`model.HostView` per tick into a plan.

    :param config: settings of the control core.
    :param slice_policy: chooses time slices and gang windows.
    :param pinning_policy: chooses host CPUs.
    :param make_predictor: makes a predictor of I/O events for one VM.
    :ivar predicts: whether a policy uses phases; if none does, nothing is
        predicted, whatever the predictor.
    """

    def __init__(
        self,
        config: control_config.ControlConfig,
        slice_policy: slices_base.SlicePolicy,
        pinning_policy: pinning_base.PinningPolicy,
        make_predictor: Callable[[], predictors_base.Predictor],
    ) -> None:
        self.config = config
        self._slice_policy = slice_policy
        self._pinning_policy = pinning_policy
        # Predictions take half of a tick.
        self.predicts = bool(
            getattr(pinning_policy, 'uses_phases', True)
            or getattr(slice_policy, 'uses_phases', False)
        )
        self._phases = tracker.PhaseTracker(
            config, make_predictor, follow=self.predicts
        )
        self._vm_planner = vm_plan.VmPlanner()
        self._usable_cpus = cpu_loads.UsableCpus()
        # Pins, vCPUs and allowed CPUs of VMs whose pins were found right in
        # the last tick. Together with kept limits (checks) it saves
        # 0.04 of 0.92 ms (nova-vhpc-bench controller, 100 VMs as shipped).
        self._within: dict[str, _CheckedPins] = {}
        self._io_pool_slice = slices_base.VmSlice(
            # The pins of the pool act without it.
            config.io_slice_us,
            reason='I/O pool',
            optional=True,
        )
        self._original_slice = slices_base.VmSlice()
        # The pinning policy comes first in a tick, so it is shown what the
        # slice policy asked for in the tick before.
        self._last_slices = slices_base.SliceDecision()

    def decide(self, view: model.HostView) -> model.Plan:
        """Plan the next control period.

        Never raises because of what a plugin or another host supplies.
        """
        diagnostics: list[model.Diagnostic] = []
        view = checks.check_view(view, diagnostics)
        vm_phases = self._phases.advance(view)
        diagnostics.extend(self._phases.faults)
        effective = {
            uuid: phase.effective for uuid, phase in vm_phases.items()
        }
        pinned = self._pin(
            pinning_base.PinContext(
                view,
                effective,
                self._last_slices.clear_cpus,
                self._loose(view),
                self._last_slices.idle,
            ),
            diagnostics,
        )
        sliced = self._slice(
            slices_base.SliceContext(
                view, effective, pinned.pins, pinned.in_io_pool
            ),
            diagnostics,
        )
        self._last_slices = sliced
        return model.Plan(
            vms=self._plan_vms(view, vm_phases, pinned, sliced, diagnostics),
            windows=sliced.windows,
            clusters=self._clusters(view, sliced),
            ignored=tuple(diagnostics),
            pools=pinned.pools,
            cpu_shares=sliced.cpu_shares,
            gangs=sliced.gangs,
            waiting=sliced.waiting,
        )

    def _loose(self, view: model.HostView) -> frozenset[str]:
        """Return the VMs that should not be pinned."""
        if getattr(self._slice_policy, 'places_vcpus', False):
            return frozenset(
                vm.uuid
                for vm in view.vms
                if vm.workload == model.Workload.PARALLEL
            )
        return self._last_slices.loose

    def _pin(
        self,
        context: pinning_base.PinContext,
        diagnostics: list[model.Diagnostic],
    ) -> pinning_base.PinDecision:
        """Return the pinning policy's decision, without forbidden pins."""
        try:
            return self._allowed_pins(
                self._pinning_policy.pin(context), context, diagnostics
            )
        except Exception as error:
            # Policies are plugins: a faulty one must not stop the agent.
            diagnostics.append(
                model.Diagnostic('', f'pinning policy failed: {error!r}')
            )
            return pinning_base.PinDecision()

    def _allowed_pins(
        self,
        decision: pinning_base.PinDecision,
        context: pinning_base.PinContext,
        diagnostics: list[model.Diagnostic],
    ) -> pinning_base.PinDecision:
        """Return the decision without pins outside of a VM's CPUs."""
        diagnostics.extend(decision.ignored)
        is_void = self._usable_cpus.update(context.view.cpus)
        earlier, self._within = ({} if is_void else self._within), {}
        pins: dict[str, pinning_base.Pins] = {}
        for vm in context.view.vms:
            wanted = decision.pins.get(vm.uuid)
            if wanted is None or not vm.repin:
                continue
            checked = (wanted, vm.vcpus, vm.allowed_cpus)
            if earlier.get(vm.uuid) == checked or _are_within(
                wanted, vm.vcpus, self._usable_cpus.of(vm)
            ):
                pins[vm.uuid] = wanted
                self._within[vm.uuid] = checked
            else:
                diagnostics.append(
                    model.Diagnostic(
                        vm.uuid, 'pins outside of its CPUs; not pinned'
                    )
                )
        return dataclasses.replace(
            decision,
            pins=pins,
            in_io_pool=decision.in_io_pool & pins.keys(),
        )

    def _slice(
        self,
        context: slices_base.SliceContext,
        diagnostics: list[model.Diagnostic],
    ) -> slices_base.SliceDecision:
        """Return the slice policy's decision, without invalid parts."""
        try:
            return self._allowed_slices(
                self._slice_policy.decide(context), context, diagnostics
            )
        except Exception as error:
            diagnostics.append(
                model.Diagnostic('', f'slice policy failed: {error!r}')
            )
            return slices_base.SliceDecision()

    def _allowed_slices(
        self,
        decision: slices_base.SliceDecision,
        context: slices_base.SliceContext,
        diagnostics: list[model.Diagnostic],
    ) -> slices_base.SliceDecision:
        """Return the decision without invalid sets and invalid windows."""
        # The pinning policy gets these sets in the next tick. With another
        # type it would fail, and the diagnostic would name the wrong policy.
        for name in _SET_FIELDS:
            if type(getattr(decision, name)) is not frozenset:
                diagnostics.append(
                    model.Diagnostic(
                        '', f"slice policy's {name} is not a frozenset"
                    )
                )
                nothing: dict[str, Any] = {name: frozenset()}
                decision = dataclasses.replace(decision, **nothing)
        if decision.windows is None:
            return decision
        fault = checks.window_fault(
            decision.windows,
            frozenset(context.phases) - context.in_io_pool,
            context.view.limits,
        )
        if fault is None:
            return decision
        diagnostics.append(model.Diagnostic('', f'windows dropped: {fault}'))
        return dataclasses.replace(decision, windows=None)

    def _plan_vms(
        self,
        view: model.HostView,
        vm_phases: Mapping[str, tracker.VmPhase],
        pinned: pinning_base.PinDecision,
        sliced: slices_base.SliceDecision,
        diagnostics: list[model.Diagnostic],
    ) -> dict[str, model.VmPlan]:
        """Combine slices, pins and originals, VM by VM."""
        self._vm_planner.forget_all_but(vm_phases.keys())
        in_windows: Collection[str] = ()
        if sliced.windows is not None:
            in_windows = sliced.windows.shares_after.keys()
        # Attributes of self are looked up here, not once per VM.
        io_pool_slice, original_slice = (
            self._io_pool_slice,
            self._original_slice,
        )
        plan, limits = self._vm_planner.plan, view.limits
        in_io_pool, pins_of = pinned.in_io_pool, pinned.pins.get
        slice_of = sliced.vms.get
        plans: dict[str, model.VmPlan] = {}
        for vm in view.vms:
            uuid = vm.uuid
            choice = (
                io_pool_slice
                if uuid in in_io_pool
                else slice_of(uuid, original_slice)
            )
            try:
                plans[uuid] = plan(
                    vm,
                    choice,
                    pins_of(uuid),
                    uuid in in_windows,
                    limits,
                    vm_phases[uuid],
                    diagnostics,
                )
            except Exception as error:
                # An unforeseen fault of one VM must not stop the others.
                diagnostics.append(
                    model.Diagnostic(uuid, f'cannot be planned: {error!r}')
                )
        return plans

    def _clusters(
        self, view: model.HostView, sliced: slices_base.SliceDecision
    ) -> dict[str, model.ClusterPlan]:
        """Return this host's statements for the hosts of each cluster."""
        min_slice_us: dict[str, int | None] = {
            vm.cluster: None for vm in view.vms if vm.cluster is not None
        }
        if self.config.share_slices:
            for vm in view.vms:
                choice = sliced.vms.get(vm.uuid)
                own_us = None if choice is None else choice.own_us
                if vm.cluster is not None and own_us is not None:
                    least_us = min_slice_us[vm.cluster]
                    min_slice_us[vm.cluster] = (
                        own_us if least_us is None else min(least_us, own_us)
                    )
        return {
            cluster: model.ClusterPlan(
                phase=self._phases.own_phase(cluster), min_slice_us=slice_us
            )
            for cluster, slice_us in min_slice_us.items()
        }


def _are_within(
    pins: pinning_base.Pins, vcpus: int, allowed_cpus: frozenset[int]
) -> bool:
    """Return whether each vCPU has CPUs, and all of them are allowed."""
    return (
        len(pins) == vcpus
        and all(pins)
        and frozenset().union(*pins) <= allowed_cpus
    )
