# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Runs ``nova-vhpc-hosts`` as guests do."""

import json
import pathlib
import subprocess
import sys

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes


class ProgramCase(base.TestCase):
    """Two members; the first one runs the program, without this package."""

    def setUp(self):
        super().setUp()
        cluster = fakes.cluster(
            [fakes.member(1, 'h1', 's1'), fakes.member(2, 'h2', 's2')]
        )
        self.answer = fakes.answered(cluster, fakes.uuid(1))
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        # Members get it by the vendordata itself.
        self.program = self.path / 'nova-vhpc-hosts'
        self.program.write_text(self.answer['hosts_program'])
        self.file = self.path / 'vendor_data2.json'
        self.write({'static': {}, 'vhpc': self.answer})

    def write(self, value):
        self.file.write_text(json.dumps(value))

    def run_(self, *argv, stdout=subprocess.PIPE, env=None):
        """Run the program without this package.

        :returns: exit status, standard output, standard error.
        """
        found = subprocess.run(
            [sys.executable, '-s', '-S', str(self.program), *argv],
            cwd=self.path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=env or {},
        )
        return found.returncode, found.stdout, found.stderr

    def assert_refused(self, *argv, reason):
        """Assert that the program ends with 1, and one line says why."""
        status, out, err = self.run_(*argv)
        self.assertEqual((1, ''), (status, out), err)
        self.assertIn(reason, err)
        self.assertEqual(1, err.count('\n'), err)
