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

"""What is undone for an owner that was killed."""

import json
import pathlib
import tempfile
from unittest import mock

from nova_vhpc.testbed import cpu_controller, supervisor
from nova_vhpc.tests import base


class UndoTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def weighed(self):
        """A group of weight 100, and the words that undo its weight."""
        file = self.root / 'cpu.weight'
        file.write_text('100\n')
        told = []
        controller = cpu_controller.CpuController(self.root, unified=True)
        with controller.temporary_weight(
            self.root, 4.0, lambda *w: told.append(w)
        ):
            ours = file.read_text()
            (words,) = told
        return file, ours, words

    def test_a_weight_goes_back(self):
        file, ours, words = self.weighed()
        file.write_text(f'{ours}\n')
        supervisor.clean_up(*words)
        self.assertEqual('100\n', file.read_text())

    def test_a_weight_of_somebody_else_stays(self):
        file, _, words = self.weighed()
        file.write_text('7\n')
        supervisor.clean_up(*words)
        self.assertEqual('7\n', file.read_text())

    def test_another_lab_keeps_the_weight_that_it_has_set(self):
        """It begins while the first one's guests are being ended."""
        first = supervisor.Supervisor(self.root)
        file = self.root / 'cpu.weight'
        file.write_text('100\n')
        controller = cpu_controller.CpuController(self.root, unified=True)
        with controller.temporary_weight(
            self.root, 4.0, lambda *w: first.note(json.dumps(w).encode())
        ):
            pass
        with (
            controller.temporary_weight(self.root, 4.0),
            mock.patch.object(
                supervisor, 'end_descendants', return_value=set()
            ),
        ):
            ours = file.read_text()
            first._clean_up()
            self.assertEqual(ours, file.read_text())

    def test_a_directory_goes_with_what_is_in_it(self):
        (self.root / 'lab/agent').mkdir(parents=True)
        (self.root / 'lab/agent/log').write_text('x')
        supervisor.clean_up('directory', str(self.root / 'lab'))
        self.assertEqual([], list(self.root.iterdir()))

    def test_a_group_goes_when_the_last_has_left(self):
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

    def test_what_is_gone_is_no_error(self):
        gone = str(self.root / 'gone')
        for words in (
            ('bridge', 'nosuchbridge'),
            ('group', gone),
            ('value', gone, '1', '2'),
            ('directory', gone),
        ):
            supervisor.clean_up(*words)
