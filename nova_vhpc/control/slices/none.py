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


"""``none``: every VM keeps the time slice of its flavor."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control.slices import base


class NonePolicy:
    """Does nothing; the smallest slice policy there is."""

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Take the configuration as every policy does, and need none."""

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Leave all VMs alone."""
        return base.SliceDecision()
