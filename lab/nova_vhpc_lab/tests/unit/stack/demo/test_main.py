# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import os
import signal
import subprocess
import sys
from pathlib import Path

import fixtures

from nova_vhpc.tests import base

_SHELL_ONLY = """
import os, sys
from nova_vhpc_lab.stack.demo import __main__, shell
__main__.SHELL_PARTS = (lambda demo: shell.wait_for_shell(os.environ),)
sys.exit(__main__.main())
"""
"""The demo's program, without a cloud around the shell."""

_COMMANDS = b"""
sleep 9999 & echo $!
setsid sleep 9999 & echo $!
bash -c 'echo $$; exec sleep 9999'
"""
"""What is typed: the IDs of three processes are its output."""


class TestEndOfTheShell(base.TestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        self.demo = subprocess.Popen(
            (sys.executable, '-c', _SHELL_ONLY, 'shell'),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, 'TMPDIR': str(self.root)},
        )
        self.addCleanup(self.demo.stdout.close)
        self.addCleanup(self.demo.wait)
        self.addCleanup(self.demo.kill)
        self.addCleanup(self.demo.stdin.close)

    def left(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if Path(f'/proc/{pid}').exists()]

    def check_signal_ends_all(self, signum: int) -> None:
        self.demo.stdin.write(_COMMANDS)
        self.demo.stdin.flush()
        pids = [int(self.demo.stdout.readline()) for _ in range(3)]
        self.assertEqual(pids, self.left(pids))
        self.demo.send_signal(signum)
        output = self.demo.stdout.read().decode()
        self.assertEqual(0, self.demo.wait(), output)
        self.assertEqual([], self.left(pids))
        self.assertEqual([], list(self.root.iterdir()))
        self.assertTrue(output.endswith('demo: OK\n'), output)

    def test_sigterm_ends_the_shell_and_what_it_started(self):
        self.check_signal_ends_all(signal.SIGTERM)

    def test_sigint_ends_the_shell_and_what_it_started(self):
        self.check_signal_ends_all(signal.SIGINT)

    def test_exit_ends_what_runs_in_the_background(self):
        self.demo.stdin.write(b'sleep 9999 & echo $!; exit\n')
        self.demo.stdin.flush()
        pids = [int(self.demo.stdout.readline())]
        self.demo.wait()
        self.assertEqual([], self.left(pids))
