# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows and programs that sleep while they wait, on one host."""

import statistics

from nova_vhpc.control.model import WaitState
from nova_vhpc.tests import base
from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.host_spec import VmSpec
from nova_vhpc_lab.tests.unit.sim.running_host import SPIN, RunningHost, gangs

WAIT = programs.SpinThenBlock(500, 200)
"""What the guest's library does while somebody takes the CPU."""


def run(cpus, vms, managed, **options):
    """Return the host, and the mean progress of VMs by their first letter."""
    host = RunningHost(cpus, vms, managed, **options)
    progress = {}
    for name, one in host.run(12, 6).items():
        progress.setdefault(name[0], []).append(one)
    return host, {
        letter: statistics.fmean(all_of_it)
        for letter, all_of_it in progress.items()
    }


def states(host):
    """Return how the agent says that VMs wait, by their first letter."""
    found = {}
    for name, one in host.agent.plan.waiting.items():
        found.setdefault(name[0], set()).add(one.state)
    return found


class TestSleepingGangs(base.TestCase):
    """Gangs that sleep at times, and could still gain."""

    def test_gangs_that_sleep_late_gain_by_windows(self):
        vms = gangs(4, 4, programs.SpinThenBlock(500, 5_000))
        _, stock = run(8, vms, False)
        _, got = run(8, vms, True)
        self.assertGreater(got['c'], 1.5 * stock['c'])

    def test_gangs_that_wait_have_no_windows_and_need_none(self):
        for wake_us in (0.0, 50.0):
            _, spinning = run(2, gangs(3, 2), False)
            host, got = run(2, gangs(3, 2, WAIT), True, wake_us=wake_us)
            self.assertEqual({'c': {WaitState.WAITS}}, states(host))
            self.assertIsNone(host.agent.plan.windows)
            self.assertGreater(got['c'], 1.5 * spinning['c'])


class TestHalfWaiting(base.TestCase):
    """Clusters of two members on the same host, of which one waits."""

    def clusters(self, *of_members):
        """Return three clusters, by the programs of their members."""
        return [
            VmSpec(
                f'{name}{n}', 'member', program, 2, True, f'c{n}', coupled=True
            )
            for n in range(3)
            for name, program in zip('sw', of_members, strict=True)
        ]

    def test_half_waiting_clusters_keep_what_stock_linux_gives_them(self):
        _, stock = run(4, self.clusters(SPIN, WAIT), False)
        host, got = run(4, self.clusters(SPIN, WAIT), True)
        self.assertGreater(got['s'], 0.9 * stock['s'])
        self.assertEqual(
            {'s': {WaitState.HELD_UP}, 'w': {WaitState.WAITS}}, states(host)
        )
        self.assertTrue(host.agent.plan.waiting['s0'].peers_wait)

    def test_the_other_half_gains_by_waiting_too(self):
        _, half = run(4, self.clusters(SPIN, WAIT), True)
        _, every = run(4, self.clusters(WAIT, WAIT), True)
        self.assertGreater(every['s'], 1.5 * half['s'])


class TestWaitingBesideSpinning(base.TestCase):
    """Clusters that wait beside as many that spin."""

    def test_no_side_loses_by_windows(self):
        vms = [*gangs(4, 4, name='s'), *gangs(4, 4, WAIT, 'w')]
        _, stock = run(8, vms, False)
        host, got = run(8, vms, True)
        self.assertGreater(got['w'], 0.9 * stock['w'])
        self.assertGreater(got['s'], 0.9 * stock['s'])
        self.assertEqual({WaitState.HELD_UP}, states(host)['s'])
        self.assertEqual({WaitState.WAITS}, states(host)['w'])
