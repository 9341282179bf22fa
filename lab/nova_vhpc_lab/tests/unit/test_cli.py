# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""An interrupted run cleans up and prints no traceback."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.predictors import run as predictors
from nova_vhpc_lab.testbed.patience import PATIENCE_S

SIMULATIONS = """
import os, sys, time
from nova_vhpc_lab import cli
from nova_vhpc_lab.bench import fairness
from nova_vhpc_lab.bench.common import simulations

class Job:
    def run(self):
        os.write(1, b'begun\\n')
        time.sleep(3600)

fairness.run = lambda args: list(simulations.run_all([Job()] * 5, 2))
sys.exit(cli.main(['fairness']))
"""


class EndTest(base.TestCase):
    def setUp(self):
        super().setUp()
        # Shells ignore some of these signals for background processes.
        for number, handler in (
            (signal.SIGINT, signal.default_int_handler),
            *((number, signal.SIG_DFL) for number in bench.ENDS),
        ):
            self.addCleanup(
                signal.signal, number, signal.signal(number, handler)
            )

    def end(self, *numbers):
        """Return exit code and clean-up of a run that gets signals."""
        cleaned = []

        def run(args):
            with contextlib.ExitStack() as stack:
                stack.callback(cleaned.append, 'broker')
                for number in numbers[1:]:
                    stack.callback(os.kill, os.getpid(), number)
                os.kill(os.getpid(), numbers[0])
            return 0

        with mock.patch.object(predictors, 'run', run):
            try:
                code = bench.main(['predictors', '--traces', 'x'])
            except SystemExit as ending:
                code = ending.code
        return code, cleaned

    def test_sigterm_and_sighup_end_the_run_after_clean_up(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            self.assertEqual((128 + number, ['broker']), self.end(number))
            self.assertEqual(handler, signal.getsignal(number))

    def test_second_sigterm_does_not_interrupt_the_clean_up(self):
        self.assertEqual(
            (143, ['broker']), self.end(signal.SIGTERM, signal.SIGTERM)
        )

    def test_sigint_ends_the_run_without_traceback(self):
        self.assertEqual((130, ['broker']), self.end(signal.SIGINT))

    def test_ctrl_c_ends_simulations_in_processes_with_one_line(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(
                [sys.executable, '-c', SIMULATIONS],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
                # A shell in background has it ignored.
                preexec_fn=lambda: signal.signal(
                    signal.SIGINT, signal.default_int_handler
                ),
            ) as running:
                for _ in range(2):
                    self.assertEqual('begun\n', running.stdout.readline())
                # As a terminal does: to the whole group.
                os.killpg(running.pid, number)
                out, err = running.communicate(timeout=PATIENCE_S)
            code = 128 + number
            text = 'nova-vhpc-bench fairness: interrupted\n'
            self.assertEqual((code, ''), (running.returncode, out))
            self.assertEqual(text if code == 130 else '', err)

    def test_full_disk_is_reported_without_traceback(self):
        for number in bench.FULL:
            err = io.StringIO()
            with (
                mock.patch.object(
                    predictors,
                    'run',
                    side_effect=OSError(number, 'no room'),
                ),
                contextlib.redirect_stderr(err),
            ):
                self.assertEqual(
                    1, bench.main(['predictors', '--traces', 'x'])
                )
            self.assertIn('predictors: no room', err.getvalue())

    def test_ignored_sighup_does_not_end_the_run(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        self.assertEqual((0, ['broker']), self.end(signal.SIGHUP))
