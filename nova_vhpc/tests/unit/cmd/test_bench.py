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

"""A run that is broken off cleans up and says nothing odd."""

import contextlib
import io
import os
import signal
from unittest import mock

from nova_vhpc.bench.replay import cli
from nova_vhpc.cmd import bench
from nova_vhpc.tests import base


class EndTest(base.TestCase):
    def setUp(self):
        super().setUp()
        # Who runs tests in the background has some of them ignored.
        for number, handler in (
            (signal.SIGINT, signal.default_int_handler),
            *((number, signal.SIG_DFL) for number in bench.ENDS),
        ):
            self.addCleanup(
                signal.signal, number, signal.signal(number, handler)
            )

    def end(self, *numbers):
        """Exit code of a run that gets signals, and what it cleaned up."""
        cleaned = []

        def run(args):
            with contextlib.ExitStack() as stack:
                stack.callback(cleaned.append, 'broker')
                for number in numbers[1:]:
                    stack.callback(os.kill, os.getpid(), number)
                os.kill(os.getpid(), numbers[0])
            return 0

        with mock.patch.object(cli, 'run', run):
            try:
                code = bench.main(['replay', 'x.csv'])
            except SystemExit as ending:
                code = ending.code
        return code, cleaned

    def test_time_limits_and_closed_terminals(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            self.assertEqual((128 + number, ['broker']), self.end(number))
            self.assertEqual(handler, signal.getsignal(number))

    def test_a_second_one_does_not_cut_the_cleaning_up_short(self):
        self.assertEqual(
            (143, ['broker']), self.end(signal.SIGTERM, signal.SIGTERM)
        )

    def test_interrupts_are_no_tracebacks(self):
        self.assertEqual((130, ['broker']), self.end(signal.SIGINT))

    def test_a_full_disk_is_no_traceback(self):
        for number in bench.FULL:
            err = io.StringIO()
            with (
                mock.patch.object(
                    cli, 'run', side_effect=OSError(number, 'no room')
                ),
                contextlib.redirect_stderr(err),
            ):
                self.assertEqual(1, bench.main(['replay', 'x.csv']))
            self.assertIn('replay: no room', err.getvalue())

    def test_nohup_holds(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        self.assertEqual((0, ['broker']), self.end(signal.SIGHUP))
