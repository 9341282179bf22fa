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

import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

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


class AptInstallTest(base.TestCase):
    """Packages of Debian, with services that must not start."""

    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.root / 'bin').mkdir()
        (self.root / 'sbin').mkdir()
        self.stub('id', 'echo 0')
        self.stub('update')
        self.stub('install')
        self.stub(
            'apt-get',
            'echo "$1: $(ls sbin)" >>log',
            '"$@" || exit',
            'echo "$1 ended" >>log',
        )

    def stub(self, name, *lines):
        path = self.root / 'bin' / name
        path.write_text('\n'.join(('#!/bin/sh', *lines, '')))
        path.chmod(0o755)

    def start(self):
        return subprocess.Popen(
            ('bash', '-euc', 'source "$0"; apt_install some', LIB),
            env={
                'PATH': f'{self.root}/bin:{os.environ["PATH"]}',
                'VHPC_POLICY': 'sbin/policy-rc.d',
                'TMPDIR': str(self.root),
            },
            cwd=self.root,
            process_group=0,
            # A shell that starts the tests in the background has it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def install(self):
        """What is said, and the exit code."""
        process = self.start()
        out, err = process.communicate(timeout=60)
        self.assert_nothing_stays()
        return out, err, process.returncode

    def assert_nothing_stays(self):
        self.assertEqual(
            ([], ['bin', 'log', 'sbin']),
            (os.listdir(self.root / 'sbin'), sorted(os.listdir(self.root))),
        )

    def log(self):
        return (self.root / 'log').read_text().splitlines()

    def test_services_do_not_start(self):
        self.assertEqual(('', '', 0), self.install())
        self.assertIn('install: policy-rc.d', self.log())

    def test_a_policy_of_others_stays(self):
        policy = self.root / 'sbin' / 'policy-rc.d'
        policy.write_text('theirs')
        process = self.start()
        process.communicate(timeout=60)
        self.assertEqual(
            (0, 'theirs'), (process.returncode, policy.read_text())
        )

    def test_what_fails_is_told(self):
        for name in ('install', 'update'):
            self.stub(name, 'echo "E: no such $1" >&2', 'exit 100')
            _, err, code = self.install()
            self.assertEqual(1, code)
            self.assertIn('E: no such', err)
            self.assertIn(f'apt-get {name} failed', err)

    def test_waits_while_others_have_a_lock(self):
        self.stub('sleep')
        for name in ('update', 'install'):
            self.stub(
                name,
                f'[ ! -e {self.root}/sbin/{name} ] || exit 0',
                f'touch {self.root}/sbin/{name}',
                'echo "E: Could not get lock /a. It is held by process 1" >&2',
                'exit 100',
            )
        process = self.start()
        out, err = process.communicate(timeout=60)
        self.assertEqual(('', 0), (err, process.returncode))
        self.assertIn('Could not get lock /a. It is held by process 1', out)
        self.assertEqual(
            ['update', 'install'],
            [line.split()[0] for line in self.log() if 'ended' in line],
        )

    def test_two_clones_take_turns(self):
        self.stub('update', 'sleep 0.2')
        both = [self.start(), self.start()]
        for process in both:
            process.communicate(timeout=60)
        self.assertEqual([0, 0], [process.returncode for process in both])
        self.assert_nothing_stays()
        one = [
            'update: policy-rc.d',
            'update ended',
            'install: policy-rc.d',
            'install ended',
        ]
        self.assertEqual(one * 2, self.log())

    def test_waiting_for_another_clone_is_told(self):
        other = os.open(self.root / 'sbin', os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        process = self.start()
        self.assertEqual('\n', process.stdout.readline())
        self.assertIn('another clone', process.stdout.readline())
        self.assertFalse((self.root / 'log').exists())
        os.close(other)
        process.communicate(timeout=60)
        self.assertEqual(0, process.returncode)

    def test_nothing_stays_when_it_is_interrupted(self):
        self.stub('update', f'touch {self.root}/sbin/begun', 'exec sleep 60')
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start()
            while not (self.root / 'sbin' / 'begun').exists():
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            os.killpg(process.pid, number)
            # Until all that have its output have ended.
            process.communicate(timeout=60)
            (self.root / 'sbin' / 'begun').unlink()
            self.assert_nothing_stays()


class ArgumentsTest(base.TestCase):
    """A slip of the pen is told of before minutes of work."""

    def run_tool(self, *words, tools=TOOLS):
        directory = self.useFixture(fixtures.TempDir()).path
        for name in ('apt-get', 'python3'):
            stub = pathlib.Path(directory, name)
            stub.write_text('#!/bin/sh\nexit 1\n')
            stub.chmod(0o755)
        return subprocess.run(
            ('bash', tools / words[0], *words[1:]),
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

    def test_a_tarball_is_told_what_it_lacks(self):
        directory = self.useFixture(fixtures.TempDir()).path
        tools = shutil.copytree(TOOLS, pathlib.Path(directory, 'tools'))
        for words in ((), ('docs',), ('unit', 'package')):
            result = self.run_tool('test.sh', *words, tools=tools)
            self.assertEqual((1, ''), (result.returncode, result.stdout))
            self.assertIn('tools/test.sh unit functional', result.stderr)

    def test_the_demo_takes_no_arguments(self):
        result = self.run_tool('demo.sh', '--help')
        self.assertEqual((1, ''), (result.returncode, result.stdout))
        self.assertIn('VHPC_DEMO_PAUSE=1', result.stderr)
