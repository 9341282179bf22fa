# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of the CPU controller on directories that look like cgroups."""

import os
import pathlib
import tempfile

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import cpu_controller, errors


class CpuControllerTest(base.TestCase):
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

    def test_controller_of_cgroup_v1_is_found(self):
        self.write('cpu/cpu.shares', '1024\n')
        self.assertEqual(
            (self.cgroup / 'cpu', False), self.root_and_version(self.find())
        )

    def test_controller_of_cgroup_v2_is_found(self):
        self.v2()
        self.assertEqual(
            (self.cgroup, True), self.root_and_version(self.find())
        )

    def test_controller_is_found_on_v1_or_v2_if_both_are_mounted(self):
        self.write('unified/cgroup.controllers', 'hugetlb\n')
        self.write('cpu/cpu.shares', '1024\n')
        self.assertEqual(
            (self.cgroup / 'cpu', False), self.root_and_version(self.find())
        )
        self.v2('unified')
        self.assertEqual(
            (self.cgroup / 'unified', True), self.root_and_version(self.find())
        )

    def test_controller_not_enabled_for_groups_is_reported_with_a_command(
        self,
    ):
        self.write('cgroup.controllers', 'cpuset cpu io\n')
        self.write('cgroup.subtree_control', 'io\n')
        error = self.assertRaises(errors.LabError, self.find)
        self.assertIn('echo +cpu >', str(error))
        self.assertIn('cgroup.subtree_control', str(error))

    def test_missing_controller_is_reported(self):
        error = self.assertRaises(errors.LabError, self.find)
        self.assertIn(str(self.cgroup), str(error))

    def test_weight_is_written_within_the_range_of_the_kernel(self):
        for unified, name, expected in (
            (False, 'cpu.shares', ['1024', '4096', '2', '262144']),
            (True, 'cpu.weight', ['100', '400', '1', '10000']),
        ):
            controller = cpu_controller.CpuController(self.cgroup, unified)
            written = []
            for weight in (1, 4, 0.0001, 9999):
                controller.set_weight(self.cgroup, weight)
                written.append((self.cgroup / name).read_text())
            self.assertEqual(expected, written)

    def test_temporary_weight_is_reset_at_the_end(self):
        self.write('cpu.weight', '79')
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        with controller.temporary_weight(self.cgroup, 2):
            weight = (self.cgroup / 'cpu.weight').read_text()
            self.assertEqual('200', weight)
        self.assertEqual('79', (self.cgroup / 'cpu.weight').read_text())

    def test_controller_is_enabled_for_groups_below_a_group(self):
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        top = controller.make_group('top')
        below = controller.make_group('top/below', 3)
        self.assertEqual('+cpu', (top / 'cgroup.subtree_control').read_text())
        self.assertEqual('300', (below / 'cpu.weight').read_text())
        self.assertFalse((self.cgroup / 'cgroup.subtree_control').exists())

    def test_failure_to_make_a_group_is_reported(self):
        controller = cpu_controller.CpuController(
            self.cgroup / 'x', unified=True
        )
        error = self.assertRaises(
            errors.LabError, controller.make_group, 'top'
        )
        self.assertIn('x/top', str(error))

    def test_existing_group_is_refused_and_kept(self):
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        (self.cgroup / 'top').mkdir()
        self.assertRaises(errors.LabError, controller.make_group, 'top')
        self.assertTrue((self.cgroup / 'top').is_dir())

    def test_new_group_is_removed_if_its_weight_cannot_be_set(self):
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

    def test_group_of_a_process_that_has_ended_is_refused(self):
        controller = cpu_controller.CpuController(self.cgroup, unified=True)
        self.assertRaises(errors.LabError, controller.group_of, 2**22 + 1)
        self.assertRaises(
            errors.LabError, controller.group_of, f'{os.getpid()}/gone'
        )

    @staticmethod
    def root_and_version(controller):
        return controller.root, controller.unified
