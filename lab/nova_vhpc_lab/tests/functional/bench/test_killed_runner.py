# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A lab whose runner is killed leaves nothing behind."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from nova_vhpc.tests import base
from nova_vhpc_lab.testbed import supervisor
from nova_vhpc_lab.testbed.patience import PATIENCE_S

RUNNER = """
import pathlib, sys, time
from nova_vhpc_lab.bench.lab import policies
agent = policies.Agent(pathlib.Path(sys.argv[1]), 'test:///default', {}, (0,))
agent.start()
print(agent.status()['agent']['pid'], flush=True)
time.sleep(600)
"""
LAB = """
import json, time
from nova_vhpc_lab.bench.lab import mixes
from nova_vhpc_lab.bench.lab.guest_set import GuestSet
from nova_vhpc_lab.testbed import image
web = next(one for one in mixes.MIXES['web'].guests if one.network)
mix = mixes.Mix('orphan', '', (web,))
with GuestSet(mix, image.build_image()) as guest_set:
    pid = guest_set.guests[web.name].pid
    print(json.dumps([
        f'/proc/{pid}',
        str(guest_set.root),
        str(guest_set.overhead_group),
        f'/sys/class/net/{guest_set.bridge}',
    ]), flush=True)
    time.sleep(600)
"""
CLOCK = """
import os, sys, tempfile, threading
from nova_vhpc_lab.bench.lab import clock_error
from nova_vhpc_lab.testbed import cpu_controller, supervisor
tempfile.tempdir = sys.argv[1]
threading.Thread(
    target=clock_error.measure, args=(600, 1, print), daemon=True
).start()
def name(pid):
    try:
        return open(f'/proc/{pid}/comm').read().strip()
    except OSError:
        return 'ended'
while {'member'} != set(
    map(name, found := supervisor.descendants(os.getpid()))
) or len(found) < 2:
    pass
print(cpu_controller.CpuController.find().group_of(found[0]).parent, *found)
sys.stdout.flush()
threading.Event().wait(600)
"""


class TestOrphans(base.TestCase):
    def killed(self, program, *arguments):
        """Run a program, kill it after its first line, and return the line."""
        runner = subprocess.Popen(
            (sys.executable, '-c', program, *arguments),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(runner.stdout.close)
        self.addCleanup(runner.kill)
        line = runner.stdout.readline()
        runner.kill()
        runner.wait()
        return line

    def test_agent_ends_with_its_killed_runner(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        agent = int(self.killed(RUNNER, scratch.name))
        end = time.monotonic() + PATIENCE_S
        while runs(agent):
            self.assertLess(time.monotonic(), end, f'agent {agent} runs on')
            time.sleep(0.1)

    def test_spinning_processes_end_with_their_killed_runner(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        group, *pids = self.killed(CLOCK, scratch.name).split()
        self.addCleanup(supervisor.remove_cgroup, pathlib.Path(group))
        members = [int(pid) for pid in pids]
        self.assertEqual(2, len(members))
        end = time.monotonic() + PATIENCE_S
        while any(map(runs, members)):
            self.assertLess(time.monotonic(), end, f'{members} spin on')
            time.sleep(0.1)

    def test_killed_lab_leaves_no_guest_file_group_or_bridge(self):
        left = json.loads(self.killed(LAB))
        end = time.monotonic() + PATIENCE_S
        while left := [path for path in left if os.path.exists(path)]:
            self.assertLess(time.monotonic(), end, f'there still: {left}')
            time.sleep(0.1)


def runs(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return stat.rpartition(')')[2].split()[0] != 'Z'
