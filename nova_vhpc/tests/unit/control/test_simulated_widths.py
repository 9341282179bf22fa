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

"""Simulated hosts with parallel VMs of different widths."""

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.control import simulated_widths
from nova_vhpc.tests.unit.control.simulated_host import Host, Vm


class TestMixedWidths(base.TestCase):
    """All VMs weigh the same, so a vCPU of a narrow VM weighs more."""

    def test_each_vm_gets_nine_tenths_of_its_fair_share(self):
        vms = [
            Vm(f'{size}.{number}', size, f'{size}.{number}')
            for size in (2, 4)
            for number in range(4)
        ]
        got = Host(16, vms).run(6_000, 3_000)
        for vm in vms:
            self.assertGreater(got[vm.name], 0.9 if vm.size == 2 else 0.45)

    def test_windows_are_more_efficient_than_stock_linux(self):
        """The figures of the documentation come from this comparison."""
        widths = simulated_widths.compare(7)
        self.assertEqual(widths.stock.keys(), widths.windows.keys())
        self.assertGreater(
            widths.efficiency(widths.windows), widths.efficiency(widths.stock)
        )
        for part in widths.fairness(widths.windows):
            self.assertLessEqual(part, 1)
