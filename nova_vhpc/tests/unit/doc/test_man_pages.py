# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Every program has a man page with what a reader looks for."""

import pathlib
import subprocess
import sys

import fixtures

from nova_vhpc.cli import launch
from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
SECTIONS = ('NAME', 'DESCRIPTION', 'OPTIONS', 'EXIT STATUS', 'SEE ALSO')
DAEMONS_AND_ADMINISTRATION = ('agent', 'ctl', 'hook', 'status', 'vendordata')


class ManPagesTest(base.TestCase):
    def test_every_program_has_a_man_page(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        subprocess.run(
            [
                *(sys.executable, '-m', 'sphinx', '-q', '-b', 'man'),
                *('-d', str(folder / 'doctrees')),
                *(str(TOP / 'doc/source'), str(folder / 'man')),
            ],
            check=True,
            env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8'},
            cwd=TOP,
        )
        found = sorted(path.name for path in (folder / 'man').iterdir())
        self.assertEqual(
            [
                f'nova-vhpc-{program}.'
                + ('8' if program in DAEMONS_AND_ADMINISTRATION else '1')
                for program in launch.PROGRAMS
            ],
            found,
        )
        for name in found:
            text = (folder / 'man' / name).read_text()
            for section in SECTIONS:
                self.assertIn(f'\n.SH {section}\n', text, name)
            self.assertIn('--version', text.replace('\\-', '-'))
