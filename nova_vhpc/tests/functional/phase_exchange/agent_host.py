# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A libvirtd with its guests, and an agent, that stand for a host."""

import contextlib
import ctypes
import pathlib
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

import libvirt

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc_lab.testbed import guest, libvirtd
from nova_vhpc_lab.testbed.image import GuestImage

LEASE_S = 4

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """Have the kernel kill a child, before its exec, with the test."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Host:
    """A libvirtd with its guests, and the agent that manages them."""

    def __init__(self, name: str, root: pathlib.Path) -> None:
        self.name = name
        self.path = root / name
        self.path.mkdir()
        self.config = self.path / 'agent.conf'
        self.log = self.path / 'agent.log'
        self.agent: subprocess.Popen[bytes] | None = None
        self.daemon = libvirtd.PrivateLibvirtd(self.path / 'lv').start()
        self.conn = libvirt.open(self.daemon.uri)

    def close(self) -> None:
        """End the agent, then libvirtd with all its guests."""
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()
        with contextlib.suppress(libvirt.libvirtError):
            self.conn.close()
        self.daemon.stop()

    def start_guest(
        self, name: str, specs: dict[str, str], **options: Any
    ) -> libvirt.virDomain:
        """Start a guest of one vCPU; without an image it has firmware only.

        :param options: of :func:`.guest.domain_xml`; and ``kernel``, a file
            to boot without an image.
        """
        image = options.pop('image', None)
        no_file = pathlib.Path('/x')
        kernel = options.pop('kernel', no_file)
        xml = guest.domain_xml(
            f'{self.name}-{name}',
            image or GuestImage(kernel, no_file),
            vcpus=1,
            memory_mib=128 if image else 32,
            workload='web',
            extra_specs=specs,
            **options,
        )
        root = ElementTree.fromstring(xml)
        system = root.find('os')
        assert system is not None
        kept = {'type'} if kernel is no_file else {'type', 'kernel'}
        if image is None:
            for element in list(system):
                if element.tag not in kept:
                    system.remove(element)
        return self.conn.createXML(ElementTree.tostring(root, 'unicode'))

    def start_agent(self, url: str, **options: Mapping[str, object]) -> None:
        """Start the agent, without waiting until it ticks.

        :param options: further options, by group.
        """
        groups: dict[str, dict[str, object]] = {
            'DEFAULT': {'transport_url': url},
            'vhpc_agent': {
                'host': self.name,
                'libvirt_uri': self.daemon.uri,
                'state_path': self.path / 'state',
                'run_path': self.path / 'run',
                'metrics_port': 0,
            },
            'vhpc_peers': {'lease': LEASE_S},
            'vhpc_topology': {'publish': 'false'},
        }
        for group, values in options.items():
            groups.setdefault(group, {}).update(values)
        self.config.write_text(
            '\n'.join(
                f'[{group}]\n'
                + '\n'.join(f'{name} = {value}' for name, value in one.items())
                for group, one in groups.items()
            )
        )
        with self.log.open('ab') as log:
            self.agent = subprocess.Popen(
                [
                    sys.executable,
                    '-m',
                    'nova_vhpc.cli.agent',
                    '--config-file',
                    str(self.config),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
            )

    def status(self) -> dict[str, Any]:
        """Return the agent's status; empty sections if none runs."""
        try:
            return status_socket.fetch(
                status_socket.socket_path(str(self.path / 'run'))
            )
        except (OSError, ValueError):
            return {'vms': [], 'peers': {}}

    def vm(self, domain: libvirt.virDomain) -> dict[str, Any]:
        """Return a domain's entry in the status; empty if there is none."""
        uuid = domain.UUIDString()
        vms: list[dict[str, Any]] = self.status()['vms']
        return next((vm for vm in vms if vm['uuid'] == uuid), {})
