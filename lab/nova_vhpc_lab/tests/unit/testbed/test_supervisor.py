# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of the clean-up after a killed owner."""

import json
import pathlib
import tempfile
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import cpu_controller, supervisor


class CleanUpTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def set_weight(self):
        """Return a weight file, the written value and its clean-up order."""
        file = self.root / 'cpu.weight'
        file.write_text('100\n')
        orders = []
        controller = cpu_controller.CpuController(self.root, unified=True)
        with controller.temporary_weight(
            self.root, 4.0, lambda *order: orders.append(order)
        ):
            written = file.read_text()
            (order,) = orders
        return file, written, order

    def test_weight_is_restored(self):
        file, written, order = self.set_weight()
        file.write_text(f'{written}\n')
        supervisor.clean_up(*order)
        self.assertEqual('100\n', file.read_text())

    def test_weight_that_was_changed_since_is_kept(self):
        file, _, order = self.set_weight()
        file.write_text('7\n')
        supervisor.clean_up(*order)
        self.assertEqual('7\n', file.read_text())

    def test_weight_set_by_another_lab_is_kept(self):
        """The other lab starts while the first one's guests are ended."""
        first = supervisor.Supervisor(self.root)
        file = self.root / 'cpu.weight'
        file.write_text('100\n')
        controller = cpu_controller.CpuController(self.root, unified=True)
        with controller.temporary_weight(
            self.root,
            4.0,
            lambda *order: first.note(json.dumps(order).encode()),
        ):
            pass
        with (
            controller.temporary_weight(self.root, 4.0),
            mock.patch.object(
                supervisor, 'end_descendants', return_value=set()
            ),
        ):
            written = file.read_text()
            first._clean_up()
            self.assertEqual(written, file.read_text())

    def test_directory_is_removed_with_its_content(self):
        (self.root / 'lab/agent').mkdir(parents=True)
        (self.root / 'lab/agent/log').write_text('x')
        supervisor.clean_up('directory', str(self.root / 'lab'))
        self.assertEqual([], list(self.root.iterdir()))

    def test_group_is_removed_when_its_last_process_has_left(self):
        group = self.root / 'group'
        (group / 'member').mkdir(parents=True)

        def leave(group):
            if calls.call_count == 3:
                (group / 'member').rmdir()
                group.rmdir()

        with mock.patch.object(
            supervisor, 'remove_cgroup', side_effect=leave
        ) as calls:
            supervisor.clean_up('group', str(group))
        self.assertEqual(3, calls.call_count)

    def test_missing_objects_are_ignored(self):
        gone = str(self.root / 'gone')
        for words in (
            ('bridge', 'nosuchbridge'),
            ('group', gone),
            ('value', gone, '1', '2'),
            ('directory', gone),
        ):
            supervisor.clean_up(*words)
