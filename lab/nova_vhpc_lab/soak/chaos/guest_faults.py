# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Faults of guests, and what Nova and operators do with them."""

import contextlib
import os
import pathlib
import random
import signal
import time

import libvirt

from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.functional.agent import base
from nova_vhpc_lab.soak.chaos.fault import fault
from nova_vhpc_lab.soak.chaos.host import Host

_CPU_GROUP = pathlib.Path('/sys/fs/cgroup/cpu')


@fault()
def hard_rebooted(host: Host, rng: random.Random) -> None:
    """Destroy and start two guests."""
    for who in rng.sample(('gang', 'quota', 'latency'), 2):
        host.restart(who)
        if rng.random() < 0.5:
            time.sleep(rng.uniform(0, 0.6))


@fault(is_last=True)
def hard_rebooted_without_agent(host: Host, rng: random.Random) -> None:
    """Destroy and start a guest after the agent was killed."""
    host.kill_agent()
    host.restart(rng.choice(('gang', 'quota')))


@fault()
def qemu_killed(host: Host, rng: random.Random) -> None:
    """Kill QEMU and start the guest again."""
    os.kill(host.pid('gang'), signal.SIGKILL)
    time.sleep(rng.uniform(0, 0.5))
    # libvirt may not have noticed yet, and would say that it runs.
    host.restart('gang')
    time.sleep(rng.uniform(0, 0.5))


@fault()
def qemu_hung(host: Host, rng: random.Random) -> None:
    """Stop QEMU for a while."""
    pid = host.pid('gang')
    os.kill(pid, signal.SIGSTOP)
    time.sleep(rng.uniform(0.1, 1))
    if rng.random() < 0.5:
        host.kill_agent()
    os.kill(pid, signal.SIGCONT)


@fault()
def renamed(host: Host, rng: random.Random) -> None:
    """Rename a guest, as an operator may while it is shut off."""
    domain = host.guest('quota')
    domain.destroy()
    time.sleep(rng.uniform(0, 0.2))
    name = f'soak{rng.randrange(10**12)}'
    domain.rename(name, 0)
    host.names['quota'] = name
    host.create('quota')
    time.sleep(rng.uniform(0, 1))


@fault()
def saved(host: Host, rng: random.Random) -> None:
    """Save a guest to disk and start it from there."""
    if rng.random() < 0.5:
        host.kill_agent()
    allowed = host.allowed.get('gang')
    host.guest('gang').managedSave(0)
    time.sleep(rng.uniform(0, 0.3))
    host.create('gang')
    if allowed:
        host.allowed['gang'] = allowed
    time.sleep(rng.uniform(0, 0.6))


@fault()
def undefined(host: Host, rng: random.Random) -> None:
    """Make a running guest transient."""
    with contextlib.suppress(libvirt.libvirtError):
        host.guest('gang').undefine()
    time.sleep(rng.uniform(0, 0.6))


@fault()
def control_groups_lost(host: Host, rng: random.Random) -> None:
    """Remove the control groups of a guest's vCPUs below libvirt."""
    processes = qemu_process.Processes()
    groups = processes.vcpu_cgroups(host.pid('gang'), range(2))
    for group in groups:
        for tid in (group / 'tasks').read_text().split():
            with contextlib.suppress(OSError):
                (_CPU_GROUP / 'tasks').write_text(tid)
        with contextlib.suppress(OSError):
            group.rmdir()
    time.sleep(rng.uniform(0.2, 1.5))
    host.restart('gang')


@fault(order=1)
def vcpu_plugged(host: Host, rng: random.Random) -> None:
    """Plug a vCPU in, which nobody pulls out before the guest ends."""
    host.guest('gang').setVcpusFlags(3, base.LIVE)
    parameters, pins, emulator = host.before['gang']
    host.allowed['gang'] = [(parameters, [*pins, pins[0]], emulator)]
    host.stale.add('gang')
    time.sleep(rng.uniform(0, 1))


def _set(host: Host, name: str, value: int) -> None:
    host.guest('gang').setSchedulerParametersFlags({name: value}, base.LIVE)
    host.allowed['gang'] = [
        ({**parameters, name: value}, *others)
        for parameters, *others in host.allowed_for('gang')
    ]
    host.stale.add('gang')


@fault(order=1)
def value_set_by_operator(host: Host, rng: random.Random) -> None:
    """Set a value as ``virsh schedinfo`` does, while the agent runs.

    It is one that the agent does not write all the time: libvirt cannot
    compare and set.
    """
    if host.options.get('vhpc_control__slice_policy') == 'gang':
        _set(host, 'vcpu_period', 77_000)
    else:
        _set(host, 'cpu_shares', rng.choice((333, 4321, 15)))
    time.sleep(rng.uniform(0, 1.5))


@fault(is_last=True)
def values_set_without_agent(host: Host, rng: random.Random) -> None:
    """Set values after the agent was killed."""
    host.kill_agent()
    _set(host, 'cpu_shares', rng.choice((333, 4321, 15)))
    _set(host, 'vcpu_period', 60_000)
    _set(host, 'vcpu_quota', rng.choice((54_321, 23_456)))


@fault(order=1)
def pin_set_by_operator(host: Host, rng: random.Random) -> None:
    """Pin a vCPU as ``virsh vcpupin`` does, unless the agent pins, too."""
    if host.options.get('vhpc_control__pinning_policy') != 'none':
        return
    host.guest('gang').pinVcpuFlags(0, (True, False), base.LIVE)
    pin = host.guest('gang').vcpuPinInfo(base.LIVE)[0]
    host.allowed['gang'] = [
        (parameters, [pin, *pins[1:]], emulator)
        for parameters, pins, emulator in host.allowed_for('gang')
    ]
    host.stale.add('gang')
    time.sleep(rng.uniform(0, 1.5))
