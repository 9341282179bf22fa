# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check the parts of a host view that plugins or other hosts supply.

These are samples (probes are plugins), the actuator's limits, and the peers'
statements. An impossible value is left out and named, so that policies can
rely on all others. Nothing here raises.

All else in a view is the agent's own: it is checked where it comes in, in the
parsing of extra specs, of libvirt's answers, of the journal and of the
metadata copy.
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from nova_vhpc.control import memo, model
from nova_vhpc.control.validation import limits, peers, sample

_check_limits = memo.LastCall(limits.check)
"""Gives the same object as long as the limits are equal: the plan of each VM
is kept while it has the same limits. See :class:`.vm_plan.VmPlanner`."""

_Vm = TypeVar('_Vm', model.VmView, model.OtherVm)


def check(
    view: model.HostView, diagnostics: list[model.Diagnostic]
) -> model.HostView:
    """Return the view without impossible values.

    :param diagnostics: what is wrong is added here.
    """
    vms = _with_clean_samples(view.vms, diagnostics)
    managed = {vm.uuid for vm in vms}
    others = _with_clean_samples(
        # While a VM is adopted it may be shown as both for one tick.
        [vm for vm in view.others if vm.uuid not in managed],
        diagnostics,
    )
    peer_views = peers.check(view.peers, diagnostics)
    checked_limits, faults = _check_limits(view.limits)
    diagnostics.extend(model.Diagnostic('', fault) for fault in faults)
    return dataclasses.replace(
        view, vms=vms, others=others, peers=peer_views, limits=checked_limits
    )


def _with_clean_samples(
    vms: Sequence[_Vm], diagnostics: list[model.Diagnostic]
) -> tuple[_Vm, ...]:
    checked: list[_Vm] = []
    for vm in vms:
        cleaned, faults = sample.clean(vm.sample)
        if faults:
            diagnostics.extend(
                model.Diagnostic(vm.uuid, fault) for fault in faults
            )
            vm = dataclasses.replace(vm, sample=cleaned)
        checked.append(vm)
    return tuple(checked)
