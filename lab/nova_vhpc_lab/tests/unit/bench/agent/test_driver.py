# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
from unittest import mock

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.agent import driver, load, measured
from nova_vhpc_lab.testbed import libvirtd


class AgentBenchTest(base.TestCase):
    def test_missing_libvirtd_is_reported_before_measuring(self):
        with (
            mock.patch.object(
                driver,
                'libvirt_us_per_vm',
                side_effect=libvirtd.LibvirtdError('no libvirtd'),
            ),
            mock.patch.object(driver, '_tick') as measure_tick,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(1, bench.main(['agent']))
        measure_tick.assert_not_called()
        self.assertEqual(
            'nova-vhpc-bench agent: no libvirtd\n', err.getvalue()
        )


class LoadTest(base.TestCase):
    """The stand-in processes, started by a bench that ends or fails."""

    def test_no_process_stays_if_the_reader_of_the_pids_has_ended(self):
        process = subprocess.Popen(
            (sys.executable, '-S', load.__file__, '5', '2'),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self.addCleanup(self.kill_group, process.pid)
        # Without a reader, printing the pids raises BrokenPipeError.
        process.stdout.close()
        _, err = process.communicate(timeout=240)
        self.assertEqual(b'', err)
        self.assertRaises(ProcessLookupError, os.killpg, process.pid, 0)

    def test_bench_fails_if_threads_cannot_be_started(self):
        # As if the control group's pids.max were reached.
        script = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'load.py'
        )
        script.write_text(
            'import runpy, threading\n'
            'def start(self):\n'
            '    raise RuntimeError("can\'t start new thread")\n'
            'threading.Thread.start = start\n'
            f'runpy.run_path({load.__file__!r}, run_name="__main__")\n'
        )
        process = subprocess.run(
            (sys.executable, '-S', script, '3', '2'),
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        self.assertEqual((0, b''), (process.returncode, process.stderr))
        with (
            mock.patch.object(load, '__file__', str(script)),
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(
                1,
                measured.main(
                    ['--vms', '3', '--vcpus', '2', '--seconds', '1']
                ),
            )
        self.assertIn('3 VMs with 2 vCPUs do not start', err.getvalue())
        self.assertIn('take 9 processes and threads', err.getvalue())

    @staticmethod
    def kill_group(group):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
