# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Weights and idle groups by the files of a control group."""

import pathlib

import fixtures

from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.control import model
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent.libvirt import idle_kernel


class CgroupFiles:
    """The weight and idle files of a group, as the kernel keeps them.

    A plain file takes what the kernel refuses; the tests read both files.
    """

    def __init__(self, directory: str, name: str, idle: str | None) -> None:
        self.weight = pathlib.Path(directory, name)
        self.weight.write_text('1024\n')
        self.idle = self.weight.with_name('cpu.idle')
        if idle is not None:
            self.idle.write_text(f'{idle}\n')


class Domain:
    """A domain whose weight libvirt reads from the group."""

    def __init__(self, files: CgroupFiles) -> None:
        self.files = files

    def schedulerParametersFlags(self, flags: int) -> dict[str, int]:
        return {cputune.SHARES: cgroup_weight.read(self.files.weight)}


class FilesTestCase(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.kernel = self.useFixture(idle_kernel.IdleKernel())

    def files(
        self, name: str = 'cpu.weight', idle: str | None = '0'
    ) -> CgroupFiles:
        return CgroupFiles(
            self.useFixture(fixtures.TempDir()).path, name, idle
        )


class PutTest(FilesTestCase):
    def test_weight_is_written(self) -> None:
        files = self.files()
        cgroup_weight.put(files.weight, 20)
        self.assertEqual('20', files.weight.read_text())
        self.assertEqual('0\n', files.idle.read_text())

    def test_group_is_made_idle_and_its_weight_not_written(self) -> None:
        # The kernel would refuse the weight.
        files = self.files()
        cgroup_weight.put(files.weight, model.IDLE_SHARES)
        self.assertEqual('1', files.idle.read_text())
        self.assertEqual('1024\n', files.weight.read_text())

    def test_idle_group_gets_its_weight_after_it_is_not_idle(self) -> None:
        files = self.files(idle='1')
        cgroup_weight.put(files.weight, 20)
        self.assertEqual('0', files.idle.read_text())
        self.assertEqual('20', files.weight.read_text())

    def test_weight_is_written_on_kernels_without_idle_groups(self) -> None:
        files = self.files(idle=None)
        cgroup_weight.put(files.weight, 20)
        self.assertEqual('20', files.weight.read_text())
        self.assertFalse(files.idle.exists())

    def test_group_that_is_gone_raises(self) -> None:
        files = self.files()
        gone = files.weight.parent / 'gone' / 'cpu.weight'
        self.assertRaises(OSError, cgroup_weight.put, gone, 20)
        self.assertRaises(OSError, cgroup_weight.put, gone, model.IDLE_SHARES)


class EndIdleTest(FilesTestCase):
    def test_idle_group_is_not_idle_afterwards(self) -> None:
        files = self.files(idle='1')
        cgroup_weight.end_idle(files.weight)
        self.assertEqual('0', files.idle.read_text())

    def test_other_group_is_not_written(self) -> None:
        files = self.files()
        cgroup_weight.end_idle(files.weight)
        self.assertEqual('0\n', files.idle.read_text())

    def test_old_kernel_has_nothing_to_end(self) -> None:
        files = self.files(idle=None)
        cgroup_weight.end_idle(files.weight)
        self.assertFalse(files.idle.exists())


class WeightFileTest(FilesTestCase):
    def test_idle_weight_proves_the_file_as_libvirt_reports_it(self) -> None:
        for name, weight, shares in (
            ('cpu.weight', 0, 0),
            ('cpu.weight', 1, 1),
            ('cpu.shares', 0, 3),
        ):
            self.kernel.weight = weight
            files = self.files(name)
            file = cgroup_weight.WeightFile(files.weight)
            problem = file.write(Domain(files), model.IDLE_SHARES)
            self.assertEqual(('', True), (problem, file.proven))
            self.assertEqual('1', files.idle.read_text())
            self.assertEqual(shares, file.in_force)

    def test_group_is_not_left_idle_by_an_unknown_kernel(self) -> None:
        self.kernel.weight = 7
        for first in ((), (20,)):
            files = self.files()
            file = cgroup_weight.WeightFile(files.weight)
            for shares in first:
                self.assertEqual('', file.write(Domain(files), shares))
            problem = file.write(Domain(files), model.IDLE_SHARES)
            self.assertIn('7 is no weight of an idle', problem)
            self.assertFalse(file.proven)
            self.assertEqual('0', files.idle.read_text())

    def test_weights_and_idle_alternate(self) -> None:
        files = self.files()
        file = cgroup_weight.WeightFile(files.weight)
        for shares, idle in (
            (40_960, '0\n'),
            (model.IDLE_SHARES, '1'),
            (40_960, '0'),
            (model.IDLE_SHARES, '1'),
        ):
            self.assertEqual('', file.write(Domain(files), shares))
            self.assertEqual(idle, files.idle.read_text())
        self.assertEqual('40960', files.weight.read_text())

    def test_group_that_somebody_else_made_idle_stays_idle(self) -> None:
        files = self.files('cpu.shares', idle='1')
        files.weight.write_text('3\n')
        file = cgroup_weight.WeightFile(files.weight)
        problem = file.write(Domain(files), 20)
        self.assertIn('idle', problem)
        self.assertEqual('1\n', files.idle.read_text())
        self.assertEqual('3\n', files.weight.read_text())

    def test_weight_of_three_is_not_taken_for_an_idle_group(self) -> None:
        for idle in ('0', None):
            files = self.files('cpu.shares', idle=idle)
            files.weight.write_text('3\n')
            file = cgroup_weight.WeightFile(files.weight)
            self.assertEqual('', file.write(Domain(files), 20))
            self.assertEqual('20', files.weight.read_text())

    def test_group_is_not_left_idle_if_libvirt_reads_another(self) -> None:
        files, other = self.files(), self.files()
        file = cgroup_weight.WeightFile(files.weight)
        problem = file.write(Domain(other), model.IDLE_SHARES)
        self.assertIn('not what libvirt reads', problem)
        self.assertEqual('0', files.idle.read_text())
        self.assertEqual('1024', files.weight.read_text())

    def test_only_a_group_that_the_agent_made_idle_is_ended(self) -> None:
        files = self.files()
        file = cgroup_weight.WeightFile(files.weight)
        files.idle.write_text('1')
        file.end_idle()
        self.assertEqual('1', files.idle.read_text())
        files.idle.write_text('0')
        file.write(Domain(files), model.IDLE_SHARES)
        file.end_idle()
        self.assertEqual('0', files.idle.read_text())

    def test_group_that_is_gone_does_not_matter(self) -> None:
        files = self.files()
        file = cgroup_weight.WeightFile(files.weight)
        file.write(Domain(files), model.IDLE_SHARES)
        files.idle.unlink()
        files.idle.mkdir()
        file.end_idle()
        cgroup_weight.WeightFile(None).end_idle()
