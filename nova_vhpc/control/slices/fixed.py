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
