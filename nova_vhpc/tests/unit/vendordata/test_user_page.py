# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The script of the tenant's page writes what the service answers."""

import json
import os
import pathlib
import re
import subprocess
import textwrap

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes

PAGES = pathlib.Path(__file__).parents[4] / 'doc/source/user'
_CURL = """\
#!/bin/sh
[ -e "$(dirname "$0")/vendor_data2.json" ] || { echo refused >&2; exit 7; }
cat "$(dirname "$0")/vendor_data2.json"
"""


class UserPageTest(base.TestCase):
    def setUp(self):
        super().setUp()
        cluster = fakes.cluster([fakes.member(1, 'h1'), fakes.member(2, 'h1')])
        self.answered = fakes.answered(cluster, fakes.uuid(1))
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.path / 'vendor_data2.json').write_text(
            json.dumps({'static': {}, 'vhpc': self.answered})
        )
        (self.path / 'curl').write_text(_CURL)
        (self.path / 'curl').chmod(0o755)

    def run_script(self, page, check=True):
        """Run the first script of a page of the documentation."""
        match = re.search(
            r'code-block:: sh\n\n((?:   .*\n|\n)+)', (PAGES / page).read_text()
        )
        (self.path / 'script').write_text(textwrap.dedent(match[1]))
        return subprocess.run(
            ['sh', '-u', 'script'],
            cwd=self.path,
            env={'PATH': f'{self.path}:{os.environ["PATH"]}'},
            stderr=subprocess.PIPE,
            text=True,
            check=check,
        )

    def test_files_are_written_as_answered(self):
        self.run_script('virtual-clusters.rst')
        answered = self.answered
        for name, text in (
            *((f'hosts.{k}', v) for k, v in answered['hostfile'].items()),
            ('hosts.ipv6', answered['hosts']),
            *(
                (f'flags.{k}', ' '.join(answered['mpi'][k]))
                for k in ('openmpi', 'openmpi5', 'mpich')
            ),
            ('vhpc-run', answered['mpi']['wrapper']),
            ('vhpc-routes', answered['routes_script']),
        ):
            self.assertEqual(text, (self.path / name).read_text(), name)
        self.assertTrue(os.access(self.path / 'vhpc-run', os.X_OK))

    def test_program_for_guests_is_written_and_runs(self):
        self.run_script('vendordata.rst')
        program = self.path / 'nova-vhpc-hosts'
        self.assertEqual(self.answered['hosts_program'], program.read_text())
        ended = subprocess.run(
            [program, 'mpich', '--file', self.path / 'vendor_data2.json'],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self.assertEqual(self.answered['hostfile']['mpich'], ended.stdout)

    def test_scripts_say_why_they_cannot_write(self):
        file = self.path / 'vendor_data2.json'
        for content in ('{"vhpc": {}}', '{}', None):
            if content is None:
                file.unlink()
            else:
                file.write_text(content)
            for page in ('virtual-clusters.rst', 'vendordata.rst'):
                ended = self.run_script(page, check=False)
                self.assertNotEqual(0, ended.returncode)
                self.assertEqual(
                    'this server is in no virtual cluster\n'
                    if content
                    else 'refused\n',
                    ended.stderr,
                )
            self.assertFalse(os.access(self.path / 'nova-vhpc-hosts', os.X_OK))
