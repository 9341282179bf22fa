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

"""The gangs, and whom they must leave time to."""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.control.gang import reach as gang_reach
from nova_vhpc.control.pinning import base as pinning_base


@dataclasses.dataclass(frozen=True, slots=True)
class Competition:
    """The gangs, and whom they must leave time to.

    :ivar members: VMs of all gangs.
    :ivar hungry: VMs that never sleep and have no windows.
    :ivar cpus: the CPUs of all gangs.
    :ivar places: the CPUs of each member.
    :ivar width: how many CPUs a gang has, on the mean.
    :ivar weights: of every VM of the host, as nobody has touched it.
    :ivar host: all CPUs.
    :ivar pins: of the hungry ones, as far as they are known.
    """

    members: frozenset[str] = frozenset()
    hungry: frozenset[str] = frozenset()
    cpus: frozenset[int] = frozenset()
    places: Mapping[str, frozenset[int]] = dataclasses.field(
        default_factory=dict
    )
    width: float = 0.0
    weights: Mapping[str, int] = dataclasses.field(default_factory=dict)
    host: frozenset[int] = frozenset()
    pins: Mapping[str, pinning_base.Pins] = dataclasses.field(
        default_factory=dict
    )

    def reach_of(self, uuid: str, vcpu: int) -> frozenset[int]:
        """CPUs of the host that a vCPU of a hungry VM can be on."""
        pins = self.pins.get(uuid)
        if pins is None:
            return self.host
        return pins[vcpu] & self.host

    def reach(self, uuid: str) -> frozenset[int]:
        """The same of all of its vCPUs."""
        pins = self.pins.get(uuid)
        if pins is None:
            return self.host
        return gang_reach.of_pins(pins, self.host)

    def contested_cpus(self) -> frozenset[int]:
        """CPUs of gangs that hungry VMs can be on."""
        if len(self.pins) < len(self.hungry):
            return self.cpus
        return self.cpus & frozenset().union(*map(self.reach, self.pins))
