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


import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc.tests.stack import cloud


class CloudTest(base.TestCase):
    def test_first_statements_are_readable_by_the_database(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        stack = cloud.Cloud(root=Path(directory.name))
        # With this umask, files of root are readable by root only.
        self.addCleanup(os.umask, os.umask(0o077))
        with (
            mock.patch.object(shutil, 'chown'),
            mock.patch.object(
                subprocess, 'run', return_value=mock.Mock(returncode=0)
            ),
            mock.patch.object(stack, 'spawn') as spawn,
            mock.patch.object(stack, 'wait_port'),
        ):
            stack._start_database()
        (first,) = (
            Path(word.partition('=')[2])
            for word in spawn.call_args.args
            if word.startswith('--init-file=')
        )
        self.assertEqual(0o644, first.stat().st_mode & 0o777)
