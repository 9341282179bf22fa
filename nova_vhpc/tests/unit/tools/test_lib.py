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

"""What tools/*.sh share."""

import os
import pathlib
import subprocess
import tempfile

import fixtures

from nova_vhpc.tests import base

TOOLS = pathlib.Path(__file__).parents[4] / 'tools'
LIB = TOOLS / 'lib.sh'
PYTHON3 = """#!/bin/sh
set -e
[ "$1" = -m ] || exit 0
[ "$4" != --clear ] || rm -r "$3"
mkdir -p "$3/bin"
touch "$3/pyvenv.cfg"
for program in python pip bindep; do
    printf '#!/bin/sh\\n' >"$3/bin/$program"
    chmod +x "$3/bin/$program"
done
echo "$*"
"""


class MakeVenvTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(suffix=' of mine')
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.venv = self.root / '.venv'
        python3 = self.root / 'bin' / 'python3'
        python3.parent.mkdir()
        python3.write_text(PYTHON3)
        python3.chmod(0o755)

    def make(self, function='make_venv'):
        """What python3 was called with."""
        return subprocess.run(
            ('bash', '-euc', f'source "$0"; {function}', LIB),
            env={
                'PATH': f'{self.root}/bin:{os.environ["PATH"]}',
                'VHPC_VENV': str(self.venv),
            },
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def test_is_made_once(self):
        self.assertEqual(f'-m venv {self.venv}\n', self.make())
        self.assertEqual('', self.make())

    def test_one_that_was_broken_off_is_made_anew(self):
        self.make()
        (self.venv / 'bin' / 'pip').unlink()
        self.assertEqual(f'-m venv {self.venv} --clear\n', self.make())
        self.assertEqual('', self.make())

    def test_one_whose_python_went_away_is_made_anew(self):
        self.assertIn(f'-m venv {self.venv}\n', self.make('ensure_venv'))
        self.assertEqual('', self.make('ensure_venv'))
        python = self.venv / 'bin' / 'python'
        for function in ('ensure_venv', 'make_venv'):
            python.unlink()
            python.symlink_to('/nonexistent/python3.11')
            self.assertIn(
                f'-m venv {self.venv} --clear\n', self.make(function)
            )

    def test_the_file_that_tox_leaves_is_in_nobodys_way(self):
        self.venv.write_text('.tox/docs\n')
        self.make()
        self.assertTrue((self.venv / 'bin' / 'python').exists())


class ArgumentsTest(base.TestCase):
    """A slip of the pen is told of before minutes of work."""

    def run_tool(self, *words):
        directory = self.useFixture(fixtures.TempDir()).path
        for name in ('apt-get', 'python3'):
            stub = pathlib.Path(directory, name)
            stub.write_text('#!/bin/sh\nexit 1\n')
            stub.chmod(0o755)
        return subprocess.run(
            ('bash', TOOLS / words[0], *words[1:]),
            env={
                'PATH': f'{directory}:{os.environ["PATH"]}',
                'VHPC_VENV': f'{directory}/none',
            },
            check=False,
            capture_output=True,
            text=True,
        )

    def test_all_steps_are_known_before_the_first_one_runs(self):
        for words in (('lnit',), ('unit', 'lnit'), ('--help',)):
            result = self.run_tool('test.sh', *words)
            self.assertEqual((1, ''), (result.returncode, result.stdout))
            self.assertIn(
                f"no step '{words[-1]}'; there are: lint docs", result.stderr
            )

    def test_the_demo_takes_no_arguments(self):
        result = self.run_tool('demo.sh', '--help')
        self.assertEqual((1, ''), (result.returncode, result.stdout))
        self.assertIn('VHPC_DEMO_PAUSE=1', result.stderr)
