# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab.stack import cloud


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
