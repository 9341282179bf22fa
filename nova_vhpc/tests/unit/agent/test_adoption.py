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

"""Taking VMs in that another host, or another run of the agent, has known."""

from nova_vhpc.tests.unit.agent import test_domains

PINS = (
    "<cputune><vcpupin vcpu='0' cpuset='{}'/>"
    "<vcpupin vcpu='1' cpuset='{}'/></cputune>"
)


class TestRepin(test_domains.DomainsCase):
    """Nova migrates the live XML, and makes it the persistent one there."""

    def test_pins_that_confine_to_nothing(self) -> None:
        """Of a VM that was put back before it migrated."""
        self.domain.extra = PINS.format('0-1', '0-1')
        self.assertTrue(self.look().repin)

    def test_pins_that_are_put_back_since(self) -> None:
        """Of one that was not, after a restart of the agent here."""
        self.domain.extra = PINS.format(0, 1)
        self.assertTrue(self.look().repin)

    def test_pins_of_somebody_else(self) -> None:
        self.domain.extra = PINS.format(0, 1)
        self.domain.pins = [(True, False), (False, True)]
        self.assertFalse(self.look().repin)

    def test_placed_by_nova(self) -> None:
        self.domain.extra = (
            PINS.format('0-1', '0-1')
            + "<numatune><memory nodeset='0'/></numatune>"
        )
        self.assertFalse(self.look().repin)
