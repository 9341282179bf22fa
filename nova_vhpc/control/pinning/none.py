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


"""``none``: every VM keeps the pins that Nova gave it."""

from nova_vhpc.control import config as control_config
from nova_vhpc.control.pinning import base


class NonePolicy:
    """Pins no VM; the smallest pinning policy, an example for plugins."""

    uses_phases = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Accept the configuration, like every policy; it is not used."""

    def pin(self, context: base.PinContext) -> base.PinDecision:
        """Return no pins."""
        return base.PinDecision()
