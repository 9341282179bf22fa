# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``vslicer``: micro-slices for latency-sensitive VMs.

vSlicer (C. Xu et al., HPDC 2012), one of the approaches that the ATC paper
compares with (section IV.A): latency-sensitive VMs are scheduled more often,
in slices that are shorter by the same factor; all others keep their slice.
"""

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.slices import base

_NOT_LATENCY = base.VmSlice(reason='vSlicer: not vhpc:workload=latency')


class VslicerPolicy:
    """Short slices for ``vhpc:workload=latency``."""

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Take the micro-slice from ``micro_slice_us``."""
        self._slice_us = config.micro_slice_us

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Return micro-slices, or the administrator's slices."""
        choices: dict[str, base.VmSlice] = {}
        for vm in context.view.vms:
            if vm.time_slice_us is not None:
                choices[vm.uuid] = base.specified(vm.time_slice_us)
            elif vm.workload == model.Workload.LATENCY:
                choices[vm.uuid] = base.VmSlice(
                    self._slice_us, reason='vSlicer'
                )
            else:
                choices[vm.uuid] = _NOT_LATENCY
        return base.SliceDecision(choices)
