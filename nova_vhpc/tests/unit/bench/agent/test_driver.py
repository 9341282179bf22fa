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

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
from unittest import mock

import fixtures

from nova_vhpc.bench.agent import driver, measured
from nova_vhpc.bench.agent import load as agent_load
from nova_vhpc.cmd import bench
from nova_vhpc.testbed import libvirtd
from nova_vhpc.tests import base


class AgentBenchTest(base.TestCase):
    def test_a_machine_without_libvirtd_is_told_before_measuring(self):
        with (
            mock.patch.object(
                driver,
                'libvirt_us_per_vm',
                side_effect=libvirtd.LibvirtdError('no libvirtd'),
            ),
            mock.patch.object(driver, '_tick') as measured,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            self.assertEqual(1, bench.main(['agent']))
        measured.assert_not_called()
        self.assertEqual(
            'nova-vhpc-bench agent: no libvirtd\n', err.getvalue()
        )


class LoadTest(base.TestCase):
    """Stand-ins of a bench that was ended while they started."""

    def test_none_stay_when_nobody_wants_their_pids(self):
        load = subprocess.Popen(
            (sys.executable, '-S', agent_load.__file__, '5', '2'),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self.addCleanup(self.end_all, load.pid)
        # No reader: the pids cannot be told.
        load.stdout.close()
        _, err = load.communicate(timeout=60)
        self.assertEqual(b'', err)
        self.assertRaises(ProcessLookupError, os.killpg, load.pid, 0)

    def test_no_more_threads(self):
        # As where the control group's pids.max is reached.
        script = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'load')
        script.write_text(
            'import runpy, threading\n'
            'def start(self):\n'
            '    raise RuntimeError("can\'t start new thread")\n'
            'threading.Thread.start = start\n'
            f'runpy.run_path({agent_load.__file__!r}, run_name="__main__")\n'
        )
        load = subprocess.run(
            (sys.executable, '-S', script, '3', '2'),
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        self.assertEqual((0, b''), (load.returncode, load.stderr))
        with (
            mock.patch.object(agent_load, '__file__', str(script)),
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
    def end_all(group):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
