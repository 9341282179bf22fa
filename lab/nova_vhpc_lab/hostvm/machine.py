# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the checks need of the machine: units, agent, log, guests."""

import json
import os
import pathlib
import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import libvirt

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.linux import qemu_process
from nova_vhpc_lab.testbed import guest, image, spinner

UNIT = 'nova-vhpc-agent.service'

CONFIG = pathlib.Path('/etc/nova-vhpc/nova-vhpc.conf')

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

PATIENCE_S = 1200.0
"""An emulated machine is some twenty times slower, on a busy host more."""


def run(*command: str, may_fail: bool = False) -> str:
    """Run a program and return what it prints.

    :raises AssertionError: it failed.
    """
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert may_fail or done.returncode == 0, (
        f'{" ".join(command)} exits with {done.returncode}: {done.stdout}'
    )
    return done.stdout


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition is true, and return its value.

    :raises AssertionError: it is not within :data:`PATIENCE_S`; with what the
        agent says.
    """
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(
        f'timeout while waiting for {what}: {json.dumps(agent_status())}\n'
        f'{agent_log()[-4000:]}'
    )


def unit_property(name: str, unit: str = UNIT) -> str:
    """Return a property of a unit, as of ``systemctl show``."""
    return run('systemctl', 'show', '--value', '-p', name, unit).strip()


def agent_status() -> dict[str, Any]:
    """Return the status document; an agent without ticks if none runs."""
    try:
        return status_socket.fetch(status_socket.socket_path('/run/nova-vhpc'))
    except (OSError, ValueError):
        return {'agent': {'ticks': 0, 'libvirt_up': False}, 'vms': []}


def agent_log() -> str:
    """Return the agent's log lines since the machine booted."""
    return run('journalctl', '-b', '-o', 'cat', '--no-pager', '-u', UNIT)


def libvirt_units() -> tuple[str, str]:
    """Return the unit of the daemon that has the guests, and the other one."""
    units = ('libvirtd.service', 'virtqemud.service')
    if pathlib.Path('/usr/sbin/virtqemud').exists():
        return units[::-1]
    return units


def config(**control: str) -> dict[str, dict[str, Any]]:
    """Return the agent's configuration, by group.

    :param control: options of ``[vhpc_control]``.
    """
    return {
        'vhpc_agent': {
            'libvirt_uri': 'qemu:///system',
            'reconcile_period': 2,
            'reconnect_max_seconds': 2,
            # libvirt's daemon is emulated, too.
            'call_deadline': 120,
        },
        'vhpc_topology': {'publish': False},
        'vhpc_control': control,
    }


def configure(**control: str) -> None:
    """Write the agent's configuration.

    :param control: options of ``[vhpc_control]``.
    """
    CONFIG.write_text(
        ''.join(
            f'[{group}]\n'
            + ''.join(f'{name} = {value}\n' for name, value in options.items())
            for group, options in config(**control).items()
        )
    )


class Guests:
    """Busy servers of Nova on the system's libvirtd.

    :param directory: place of the guests' kernel.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        libvirt.registerErrorHandler(lambda context, error: None, None)
        self._kernel = spinner.build(directory)
        self.processes = qemu_process.Processes()

    def connect(self) -> libvirt.virConnect:
        """Return a new connection: libvirtd may have been restarted."""
        return libvirt.open('qemu:///system')

    def start(self, name: str, quota_us: int | None = None) -> None:
        """Define and start a guest of two vCPUs with a parallel program."""
        root = ElementTree.fromstring(
            guest.domain_xml(
                name,
                image.GuestImage(self._kernel, self._kernel),
                memory_mib=32,
                extra_specs={'vhpc:workload': 'parallel'},
                quota_us=quota_us,
            )
        )
        system = root.find('os')
        assert system is not None
        for tag in ('initrd', 'cmdline'):
            element = system.find(tag)
            assert element is not None
            system.remove(element)
        self.connect().defineXML(
            ElementTree.tostring(root, 'unicode')
        ).create()

    def domains(self) -> list[libvirt.virDomain]:
        """Return the guests, in order of their names."""
        return sorted(
            self.connect().listAllDomains(), key=lambda domain: domain.name()
        )

    def end(self) -> None:
        """Destroy and undefine all guests."""
        for domain in self.domains():
            if domain.isActive():
                domain.destroy()
            domain.undefine()

    def settings(self) -> dict[str, Any]:
        """Return all that an agent may change, to be compared exactly."""
        return {
            domain.name(): (
                domain.schedulerParametersFlags(LIVE),
                domain.vcpuPinInfo(LIVE),
                domain.emulatorPinInfo(LIVE),
                self.in_kernel(domain),
            )
            for domain in self.domains()
        }

    def in_kernel(self, domain: libvirt.virDomain) -> Any:
        """Return affinities of vCPUs, and all of the scope's CPU control."""
        pid = self.pid(domain)
        return (
            [os.sched_getaffinity(tid) for tid in self.threads(domain)],
            {
                str(path.relative_to(self.scope(domain))): path.read_text()
                for name in ('cpu.weight', 'cpu.idle', 'cpu.max')
                for path in sorted(self.scope(domain).rglob(name))
            },
            pid,
        )

    def pid(self, domain: libvirt.virDomain) -> int:
        """Return the process ID of a guest's QEMU."""
        pid = self.processes.find(domain.UUIDString())
        assert pid, f'no QEMU of {domain.name()}'
        return pid

    def threads(self, domain: libvirt.virDomain) -> tuple[int, ...]:
        """Return the thread IDs of a guest's vCPUs."""
        return self.processes.vcpu_threads(self.pid(domain), range(2))

    def scope(self, domain: libvirt.virDomain) -> pathlib.Path:
        """Return the control group that systemd made for a guest."""
        text = pathlib.Path(f'/proc/{self.pid(domain)}/cgroup').read_text()
        match = re.fullmatch(
            r'0::(/machine\.slice/[^/]*\.scope)(/.*)?\n', text
        )
        assert match is not None, f'{domain.name()} is in {text}'
        return pathlib.Path('/sys/fs/cgroup', match[1].lstrip('/'))


def vms() -> dict[str, dict[str, Any]]:
    """Return the servers of the status document by their names."""
    return {vm['name']: vm for vm in agent_status()['vms']}


def wait_for_agent() -> dict[str, Any]:
    """Wait until the agent ticks and has libvirt; return its status."""

    def ready() -> Any:
        status = agent_status()
        ours = status['agent']['ticks'] > 1 and status['agent']['libvirt_up']
        return status if ours else None

    return wait_for(ready, 'the agent to run')
