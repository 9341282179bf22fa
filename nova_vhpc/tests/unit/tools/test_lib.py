# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of ``tools/lib.sh`` and of the arguments of ``tools/*.sh``."""

import fcntl
import os
import pathlib
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
        """Return the arguments that python3 was called with."""
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

    def test_venv_is_made_once(self):
        self.assertEqual(f'-m venv {self.venv}\n', self.make())
        self.assertEqual('', self.make())

    def test_venv_whose_python_is_gone_is_made_again(self):
        self.assertIn(f'-m venv {self.venv}\n', self.make('ensure_venv'))
        self.assertEqual('', self.make('ensure_venv'))
        python = self.venv / 'bin' / 'python'
        for function in ('ensure_venv', 'make_venv'):
            python.unlink()
            python.symlink_to('/nonexistent/python3.11')
            self.assertIn(
                f'-m venv {self.venv} --clear\n', self.make(function)
            )

    def test_file_that_tox_leaves_is_replaced_by_a_venv(self):
        self.venv.write_text('.tox/docs\n')
        self.make()
        self.assertTrue((self.venv / 'bin' / 'python').exists())


class AptInstallTest(base.TestCase):
    """Debian packages are installed without starting their services."""

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
            # SIGINT is ignored if a shell started the tests in background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def install(self):
        """Return output, errors and exit status."""
        process = self.start()
        out, err = process.communicate(timeout=240)
        self.assert_nothing_stays()
        return out, err, process.returncode

    def assert_nothing_stays(self):
        self.assertEqual(
            ([], ['bin', 'log', 'sbin']),
            (os.listdir(self.root / 'sbin'), sorted(os.listdir(self.root))),
        )

    def log(self):
        return (self.root / 'log').read_text().splitlines()

    def test_services_are_not_started_by_the_installation(self):
        self.assertEqual(('', '', 0), self.install())
        self.assertIn('install: policy-rc.d', self.log())

    def test_existing_policy_is_kept(self):
        policy = self.root / 'sbin' / 'policy-rc.d'
        policy.write_text('existing')
        process = self.start()
        process.communicate(timeout=240)
        self.assertEqual(
            (0, 'existing'), (process.returncode, policy.read_text())
        )

    def test_failure_is_reported_with_the_output_of_apt_get(self):
        for name in ('install', 'update'):
            self.stub(name, 'echo "E: no such $1" >&2', 'exit 100')
            _, err, code = self.install()
            self.assertEqual(1, code)
            self.assertIn('E: no such', err)
            self.assertIn(f'apt-get {name} failed', err)

    def test_apt_get_is_retried_while_its_lock_is_held(self):
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
        out, err = process.communicate(timeout=240)
        self.assertEqual(('', 0), (err, process.returncode))
        self.assertIn('Could not get lock /a. It is held by process 1', out)
        self.assertEqual(
            ['update', 'install'],
            [line.split()[0] for line in self.log() if 'ended' in line],
        )

    def test_two_clones_take_turns(self):
        self.stub('update', 'sleep 0.2')
        processes = [self.start(), self.start()]
        for process in processes:
            process.communicate(timeout=240)
        self.assertEqual([0, 0], [process.returncode for process in processes])
        self.assert_nothing_stays()
        turn = [
            'update: policy-rc.d',
            'update ended',
            'install: policy-rc.d',
            'install ended',
        ]
        self.assertEqual(turn * 2, self.log())

    def test_waiting_for_another_clone_is_reported(self):
        other = os.open(self.root / 'sbin', os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        process = self.start()
        self.assertEqual('\n', process.stdout.readline())
        self.assertIn('another clone', process.stdout.readline())
        self.assertFalse((self.root / 'log').exists())
        os.close(other)
        process.communicate(timeout=240)
        self.assertEqual(0, process.returncode)

    def test_no_file_stays_after_an_interrupt(self):
        self.stub('update', f'touch {self.root}/sbin/begun', 'exec sleep 600')
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start()
            while not (self.root / 'sbin' / 'begun').exists():
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            os.killpg(process.pid, number)
            # Wait until all processes that share the output have ended.
            process.communicate(timeout=240)
            (self.root / 'sbin' / 'begun').unlink()
            self.assert_nothing_stays()
