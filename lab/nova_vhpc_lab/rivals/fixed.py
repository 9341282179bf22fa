# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``fixed``: one and the same time slice for every VM."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control.slices import base


class FixedPolicy:
    """Gives all VMs the same slice, as a sysctl would; the baseline."""

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Take the slice from ``fixed_slice_us``."""
        self._slice_us = config.fixed_slice_us

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Return the fixed slice, or the administrator's, for each VM."""
        return base.SliceDecision(
            {
                vm.uuid: base.VmSlice(self._slice_us, reason='fixed')
                if vm.time_slice_us is None
                else base.specified(vm.time_slice_us)
                for vm in context.view.vms
            }
        )
