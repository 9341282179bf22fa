# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Faults of the agent's process: ended, starved, told of other options."""

import os
import pathlib
import random
import resource
import shutil
import signal
import time

from nova_vhpc_lab.soak.chaos import wall_clock
from nova_vhpc_lab.soak.chaos.fault import fault
from nova_vhpc_lab.soak.chaos.host import Host
from nova_vhpc_lab.testbed.patience import PATIENCE_S


def _limit(host: Host, what: int, most: int) -> None:
    if host.agent.is_alive():
        resource.prlimit(host.agent.pid, what, (most, most))


@fault()
def nothing(host: Host, rng: random.Random) -> None:
    """Let the agent work."""
    time.sleep(rng.uniform(0, 0.5))


@fault(is_last=True)
def agent_killed(host: Host, rng: random.Random) -> None:
    """Kill the agent."""
    host.kill_agent()


@fault(is_last=True)
def agent_killed_while_stopping(host: Host, rng: random.Random) -> None:
    """Kill the agent after SIGTERM."""
    host.signal_agent(signal.SIGTERM)
    time.sleep(rng.uniform(0, 0.4))
    host.kill_agent()


@fault()
def agent_suspended(host: Host, rng: random.Random) -> None:
    """Stop the agent for a while, as a suspended host does."""
    host.signal_agent(signal.SIGSTOP)
    time.sleep(rng.uniform(0.1, 1.5))
    if rng.random() < 0.6:
        host.restart(rng.choice(('gang', 'quota')))
    host.signal_agent(signal.SIGCONT)
    time.sleep(rng.uniform(0, 1))


@fault()
def files_refused(host: Host, rng: random.Random) -> None:
    """Have each write of a file fail."""
    _limit(host, resource.RLIMIT_FSIZE, 0)
    time.sleep(rng.uniform(0.2, 1.5))
    if rng.random() < 0.5:
        host.restart('gang')
        time.sleep(rng.uniform(0, 1))


@fault()
def descriptors_exhausted(host: Host, rng: random.Random) -> None:
    """Leave the agent no file descriptors."""
    if not host.agent.is_alive():
        return
    used = len(os.listdir(f'/proc/{host.agent.pid}/fd'))
    _limit(host, resource.RLIMIT_NOFILE, max(3, used - rng.randrange(3)))
    time.sleep(rng.uniform(0.2, 1.5))
    if rng.random() < 0.5:
        host.restart('gang')
        time.sleep(rng.uniform(0, 1))


@fault()
def memory_exhausted(host: Host, rng: random.Random) -> None:
    """Leave the agent nearly no memory."""
    if not host.agent.is_alive():
        return
    pages = int(
        pathlib.Path(f'/proc/{host.agent.pid}/statm').read_text().split()[0]
    )
    spare = rng.choice((0, 1 << 20, 8 << 20))
    _limit(host, resource.RLIMIT_AS, pages * resource.getpagesize() + spare)
    time.sleep(rng.uniform(0.3, 2))
    if rng.random() < 0.5:
        host.restart('gang')
        time.sleep(rng.uniform(0, 1))


@fault()
def two_agents(host: Host, rng: random.Random) -> None:
    """Start a second agent and a restore beside the first."""
    if rng.random() < 0.5:
        shutil.rmtree(host.path / 'run', ignore_errors=True)
    for arguments in ((), ('--restore',)):
        second = host.spawn(*arguments)
        second.join(PATIENCE_S)
        if host.agent.is_alive() and second.exitcode != 2:
            raise AssertionError(
                f'a second agent {arguments} ended with {second.exitcode}'
            )
        # Without a first agent, it is an agent like any other.
        if second.is_alive():
            second.kill()
            second.join()


@fault()
def options_changed(host: Host, rng: random.Random) -> None:
    """Reload other options by SIGHUP, perhaps twice."""
    for _ in range(rng.choice((1, 2))):
        host.set_options(
            reconcile_period=rng.choice((0.3, 2)),
            foreign_changes=rng.choice(('respect', 'respect', 'override')),
            call_deadline=rng.choice((0.5, 5)),
            quarantine_failures=rng.choice((1, 3)),
            vhpc_control__slice_policy=rng.choice(('atc', 'gang', 'fixed')),
        )
        host.signal_agent(signal.SIGHUP)
        time.sleep(rng.uniform(0, 0.7))
    # An operator's change that comes now must be respected.
    host.set_options(foreign_changes='respect')
    host.signal_agent(signal.SIGHUP)
    time.sleep(0.5)


@fault()
def clock_jumped(host: Host, rng: random.Random) -> None:
    """Set the wall clock forward or back."""
    for _ in range(rng.choice((1, 2))):
        wall_clock.jump(
            host.clock, rng.choice((-(10**7), -3600, -1, 1, 3600, 10**8))
        )
        time.sleep(rng.uniform(0.1, 0.8))
