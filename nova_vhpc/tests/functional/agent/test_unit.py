# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent's systemd unit: what it forbids, the agent must not need."""

import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S

UNIT = (
    pathlib.Path(__file__).parents[4] / 'etc/nova-vhpc/nova-vhpc-agent.service'
)


def allowed_system_calls() -> set[str]:
    """Return the system calls that the unit's SystemCallFilter= allows."""
    (name,) = re.findall('^SystemCallFilter=(.*)$', UNIT.read_text(), re.M)
    text = subprocess.run(
        ['systemd-analyze', '--no-pager', 'syscall-filter'],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    groups: dict[str, list[str]] = {}
    members: list[str] = []
    for line in text.splitlines():
        if line.startswith('@'):
            members = groups.setdefault(line.strip(), [])
        elif line.startswith('    ') and '#' not in line:
            members.append(line.strip())

    def resolve(group: str) -> set[str]:
        return set().union(
            *(
                resolve(member) if member.startswith('@') else {member}
                for member in groups[group]
            )
        )

    return resolve(name)


@unittest.skipUnless(
    shutil.which('strace') and shutil.which('systemd-analyze'),
    'needs strace and systemd-analyze',
)
class SystemCallTest(base.AgentTestCase):
    """The agent manages a guest and restores it."""

    def test_agent_makes_no_system_call_that_the_unit_forbids(self) -> None:
        domain = self.domain({'vhpc:workload': 'parallel'})
        config_file = self.configure()
        trace = self.path / 'trace'
        agent = subprocess.Popen(
            [
                *('strace', '-f', '-qq', '-o', str(trace)),
                *(sys.executable, '-m', 'nova_vhpc.cli.agent'),
                *('--config-file', config_file),
            ],
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(agent.kill)
        self.wait_for_write(domain)
        # strace passes no signal on.
        first = trace.read_text().split(maxsplit=1)[0]
        subprocess.run(['kill', f'-{signal.SIGTERM}', first], check=True)
        self.assertEqual(0, agent.wait(PATIENCE_S))
        called = set(
            re.findall(
                r'^\d+ +(?:<\.\.\. )?([a-z_0-9]+)[( ]', trace.read_text(), re.M
            )
        )
        self.assertEqual(set(), called - allowed_system_calls())
