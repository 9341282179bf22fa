# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent is killed, and the next one stopped, at random moments.

``--restore`` restores all; so does the one that is stopped.
"""

import collections
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.tests import long
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S

PARALLEL = {'vhpc:workload': 'parallel'}
KILLS = long.long(8, 16)
STOPS = long.long(6, 200)
LAUNCH = (
    'import sys; from nova_vhpc.cli import launch; sys.exit(launch.agent())'
)

POLICIES = {'atc': cputune.PERIOD, 'gang': cputune.SHARES}
"""Slice policies, and the value that each writes to a busy VM."""


class TestKills(base.AgentTestCase):
    """Agents with slices that keep changing, and with windows, in turn."""

    def test_restore_after_random_kills_is_exact(self) -> None:
        domains = [
            self.domain(PARALLEL, busy=True),
            self.domain(PARALLEL, busy=True, cputune=base.OWN_QUOTA),
            self.domain({'vhpc:workload': 'latency'}),
            self.domain({}),
            self.domain(None),
        ]
        before = self.everything(domains)
        touched: collections.Counter[str] = collections.Counter()
        for number in range(KILLS):
            # Two kills per policy, so that each also follows the other.
            policy = tuple(POLICIES)[number // 2 % len(POLICIES)]
            name = POLICIES[policy]
            kill = f'kill {number}, {policy}'
            self.configure(vhpc_control__slice_policy=policy, period_ms=30)
            process = self.spawn()
            if number % 4:
                # Between the first write and steady work.
                self.wait_for_record(domains[0].UUIDString(), name)
                time.sleep(random.uniform(0, 0.5) ** 2 * 2)
            else:
                # At any moment of the start.
                time.sleep(random.uniform(0.1, 1.6))
            process.kill()
            process.join(PATIENCE_S)
            touched[policy] += self.everything(domains[:1]) != before[:1]
            if number % 8 in (3, 5):
                # The next agent, with the other policy, has to recover.
                continue
            self.assertEqual(0, self.restore(), kill)
            self.assertEqual(before, self.everything(domains), kill)
            self.assertEqual(
                [], list((self.path / 'state/journal').glob('*.json')), kill
            )
        # Kills prove something only if the agent had written to the VM.
        for policy in POLICIES:
            self.assertGreater(touched[policy], KILLS // 8, policy)

    def test_agent_that_is_stopped_at_its_start_restores_all(self) -> None:
        seed = int(os.environ.get('VHPC_SEED', '1'))
        rng = random.Random(seed)
        domains = [
            self.domain(PARALLEL, busy=True, cputune=base.OWN_QUOTA),
            self.domain({}),
        ]
        before = self.everything(domains)
        for number in range(STOPS):
            stop = f'stop {number} of seed {seed}'
            self.configure(period_ms=30)
            killed = self.spawn()
            self.wait_for(
                lambda: self.everything(domains[:1]) != before[:1], 'a write'
            )
            killed.kill()
            killed.join(PATIENCE_S)
            if number % 3 == 1:
                # Only the copy in the metadata is left.
                for file in (self.path / 'state/journal').glob('*.json'):
                    file.unlink()
            with self.log.open('ab') as log:
                stopped = subprocess.Popen(
                    [
                        *(sys.executable, '-c', LAUNCH),
                        *('--config-file', str(self.path / 'agent.conf')),
                    ],
                    stdout=log,
                    stderr=log,
                )
            self.addCleanup(stopped.kill)
            self.wait_for(
                lambda pid=stopped.pid: handles_stops(pid), 'the handlers'
            )
            time.sleep(rng.uniform(0, 1.5) ** 2)
            for early in (signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM):
                stopped.send_signal(early)
            self.assertEqual(0, stopped.wait(PATIENCE_S), stop)
            self.assertEqual(before, self.everything(domains), stop)

    def everything(self, domains: list[Any]) -> list[Any]:
        """All cputune of these domains, affinities and idleness."""
        return [
            (*base.everything(domain), base.in_kernel(domain))
            for domain in domains
        ]

    def wait_for_record(self, uuid: str, name: str) -> None:
        """Wait until the journal holds a first value of a kind.

        :param name: name of the value.
        """
        journal = store.Journal(str(self.path / 'state'))
        end = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(JournalError):
                record = journal.load(uuid)
                if record is not None and name in (record.written or ()):
                    return
            self.assertLess(time.monotonic(), end, f'no record of {name}')
            time.sleep(0.001)


def handles_stops(pid: int) -> bool:
    """Return whether a process blocks or handles SIGTERM.

    Before that, Python itself is still loaded.
    """
    status = pathlib.Path('/proc', str(pid), 'status').read_text()
    masks = [
        int(line.split()[1], 16)
        for line in status.splitlines()
        if line.startswith(('SigBlk:', 'SigCgt:'))
    ]
    return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)
