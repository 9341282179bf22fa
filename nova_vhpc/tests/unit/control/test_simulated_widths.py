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


from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control import simulated_widths
from nova_vhpc.tests.unit.control.simulated_host import Host, Vm


class TestMixedWidths(base.TestCase):
    """Of one weight, so each vCPU of a narrow VM weighs more."""

    def test_wide_ones_share_and_everybody_has_what_is_fair(self):
        vms = [
            Vm(f'{size}.{number}', size, f'{size}.{number}')
            for size in (2, 4)
            for number in range(4)
        ]
        got = Host(16, vms).run(6_000, 3_000)
        for vm in vms:
            self.assertGreater(got[vm.name], 0.9 if vm.size == 2 else 0.45)

    def test_report(self):
        """What the figures of the documentation come from can be run."""
        found = simulated_widths.compare(7)
        self.assertEqual(found.stock.keys(), found.ours.keys())
        self.assertGreater(
            found.efficiency(found.ours), found.efficiency(found.stock)
        )
        for part in found.fairness(found.ours):
            self.assertLessEqual(part, 1)
