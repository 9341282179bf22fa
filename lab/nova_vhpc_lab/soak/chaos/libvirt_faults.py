# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Faults of libvirtd and of the calls that wait in it."""

import random
import signal
import time

from nova_vhpc_lab.soak.chaos.fault import fault
from nova_vhpc_lab.soak.chaos.host import Host
from nova_vhpc_lab.testbed.patience import PATIENCE_S


@fault(is_last=True)
def libvirtd_killed(host: Host, rng: random.Random) -> None:
    """Kill libvirtd, then the agent, and start libvirtd."""
    host.daemon.kill()
    time.sleep(rng.uniform(0, 0.5))
    host.kill_agent()
    host.restart_libvirtd()


@fault(is_last=True)
def stopped_without_libvirtd(host: Host, rng: random.Random) -> None:
    """Stop the agent while libvirtd does not run."""
    host.daemon.kill()
    time.sleep(rng.uniform(0, 0.2))
    host.signal_agent(signal.SIGTERM)
    host.agent.join(PATIENCE_S)
    if host.agent.exitcode is None:
        raise AssertionError('the agent does not stop without libvirtd')
    host.restart_libvirtd()


@fault()
def libvirtd_restarted(host: Host, rng: random.Random) -> None:
    """Kill or restart libvirtd while the agent runs."""
    if rng.random() < 0.5:
        host.daemon.kill()
        time.sleep(rng.uniform(0, 0.3))
        host.daemon.start()
    else:
        host.daemon.restart()
    host.reconnect()
    time.sleep(rng.uniform(0, 2))


@fault()
def libvirtd_hung(host: Host, rng: random.Random) -> None:
    """Freeze libvirtd for a while."""
    with host.daemon.frozen():
        time.sleep(rng.uniform(0.05, 1.2))
        if rng.random() < 0.4:
            host.kill_agent()
    time.sleep(rng.uniform(0, 0.5))


@fault(is_last=True)
def stopped_while_libvirtd_hung(host: Host, rng: random.Random) -> None:
    """Stop the agent while libvirtd is frozen."""
    with host.daemon.frozen():
        host.signal_agent(signal.SIGTERM)
        host.agent.join(PATIENCE_S)
    if host.agent.exitcode is None:
        raise AssertionError('the agent does not stop if libvirtd hangs')


@fault(is_last=True)
def calls_waiting_in_libvirtd(host: Host, rng: random.Random) -> None:
    """Kill the agent while its calls wait, and restore before they run."""
    with host.daemon.frozen():
        time.sleep(rng.uniform(0.02, 0.4))
        host.kill_agent()
        early = host.spawn('--restore')
        time.sleep(rng.uniform(0, 0.5))
    early.join(PATIENCE_S)
    time.sleep(0.7)


@fault(is_last=True)
def calls_waiting_for_guest(host: Host, rng: random.Random) -> None:
    """The same, where only the calls on one guest wait."""
    with host.held('gang'):
        time.sleep(rng.uniform(0.1, 0.8))
        host.kill_agent()
        early = host.spawn('--restore')
        time.sleep(rng.uniform(0, 0.5))
    early.join(PATIENCE_S)
    time.sleep(0.7)


@fault(is_last=True)
def calls_reaching_another_run(host: Host, rng: random.Random) -> None:
    """Start a guest anew while calls wait for it."""
    with host.held('gang'):
        time.sleep(rng.uniform(0.1, 0.6))
        if rng.random() < 0.5:
            host.kill_agent()
        host.restart('gang')
    time.sleep(rng.uniform(0, 0.5))
    host.kill_agent()
    time.sleep(0.5)
