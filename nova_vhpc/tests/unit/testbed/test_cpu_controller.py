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

"""The CPU controller on cgroup v1 and v2; real groups are the lab's tests."""

import os
import pathlib
import tempfile

import fixtures

from nova_vhpc.testbed import cpu_controller, errors
from nova_vhpc.tests import base


class CpuGroupTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.cgroup = pathlib.Path(directory.name)

    def write(self, path, text=''):
        file = self.cgroup / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def find(self):
        return cpu_controller.CpuController.find(self.cgroup)

    def v2(self, below='.'):
        self.write(f'{below}/cgroup.controllers', 'cpuset cpu io\n')
        self.write(f'{below}/cgroup.subtree_control', 'cpu\n')

    def test_v1(self):
        self.write('cpu/cpu.shares', '1024\n')
        self.assertEqual((self.cgroup / 'cpu', False), self.of(self.find()))

    def test_v2(self):
        self.v2()
        self.assertEqual((self.cgroup, True), self.of(self.find()))

    def test_v2_beside_v1_with_the_controller_on_either(self):
        self.write('unified/cgroup.controllers', 'hugetlb\n')
        self.write('cpu/cpu.shares', '1024\n')
        self.assertEqual((self.cgroup / 'cpu', False), self.of(self.find()))
        self.v2('unified')
        self.assertEqual((self.cgroup / 'unified', True), self.of(self.find()))

    def test_a_controller_that_groups_do_not_have(self):
        self.write('cgroup.controllers', 'cpuset cpu io\n')
        self.write('cgroup.subtree_control', 'io\n')
        error = self.assertRaises(errors.LabError, self.find)
        self.assertIn('echo +cpu >', str(error))
        self.assertIn('cgroup.subtree_control', str(error))

    def test_no_controller(self):
        error = self.assertRaises(errors.LabError, self.find)
        self.assertIn(str(self.cgroup), str(error))

    def test_weights(self):
        for unified, name, expected in (
            (False, 'cpu.shares', ['1024', '4096', '2', '262144']),
            (True, 'cpu.weight', ['100', '400', '1', '10000']),
        ):
            controller = cpu_controller.CpuController(self.cgroup, unified)
            found = []
            for weight in (1, 4, 0.0001, 9999):
                controller.set_weight(self.cgroup, weight)
                found.append((self.cgroup / name).read_text())
            self.assertEqual(expected, found)

    def test_a_weight_for_a_while(self):
        self.write('cpu.weight', '79')
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        with controller.temporary_weight(self.cgroup, 2):
            found = (self.cgroup / 'cpu.weight').read_text()
            self.assertEqual('200', found)
        self.assertEqual('79', (self.cgroup / 'cpu.weight').read_text())

    def test_groups_below_a_group_get_the_controller(self):
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        top = controller.make_group('top')
        below = controller.make_group('top/below', 3)
        self.assertEqual('+cpu', (top / 'cgroup.subtree_control').read_text())
        self.assertEqual('300', (below / 'cpu.weight').read_text())
        self.assertFalse((self.cgroup / 'cgroup.subtree_control').exists())

    def test_a_group_that_cannot_be_made(self):
        controller = cpu_controller.CpuController(
            self.cgroup / 'x', unified=True
        )
        error = self.assertRaises(
            errors.LabError, controller.make_group, 'top'
        )
        self.assertIn('x/top', str(error))

    def test_a_group_of_somebody_else_stays(self):
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        (self.cgroup / 'top').mkdir()
        self.assertRaises(errors.LabError, controller.make_group, 'top')
        self.assertTrue((self.cgroup / 'top').is_dir())

    def test_a_group_that_cannot_be_weighed_is_not_left(self):
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        self.useFixture(
            fixtures.MockPatchObject(
                cpu_controller.CpuController,
                'set_weight',
                side_effect=OSError(22, 'no'),
            )
        )
        self.assertRaises(errors.LabError, controller.make_group, 'top')
        self.assertFalse((self.cgroup / 'top').exists())

    def test_no_group_of_a_process_that_is_gone(self):
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        self.assertRaises(errors.LabError, controller.group_of, 2**22 + 1)
        self.assertRaises(
            errors.LabError, controller.group_of, f'{os.getpid()}/gone'
        )

    @staticmethod
    def of(controller):
        return controller.root, controller.unified
