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

"""Real libvirtd, real QEMU guests, and the agent as a real process.

Two kinds of guests, both start at once: *idle* ones have firmware only;
*busy* ones have ``spinner.S``, which keeps every vCPU running.
"""

import contextlib
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid as uuid_module
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from typing import Any

import libvirt
from oslotest import base

from nova_vhpc.agent import status
from nova_vhpc.bench.lab import guest as lab_guest
from nova_vhpc.bench.lab import image as lab_image
from nova_vhpc.bench.lab import libvirtd

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
PATIENCE_S = 30.0

_context = multiprocessing.get_context('forkserver')
# Importing takes a second; a fork of a process that has done it does not.
_context.set_forkserver_preload(['nova_vhpc.cmd.agent'])


_BOOT_TAGS = ('kernel', 'initrd', 'cmdline')


def _spinner(directory: pathlib.Path) -> pathlib.Path:
    """Build the busy guests' kernel; once per directory."""
    kernel = directory / 'spinner.elf'
    if not kernel.exists():
        subprocess.run(
            [
                'gcc',
                '-m32',
                '-nostdlib',
                '-static',
                '-no-pie',
                '-Wl,-Ttext=0x100000,--build-id=none',
                '-o',
                str(kernel),
                str(pathlib.Path(__file__).with_name('spinner.S')),
            ],
            check=True,
        )
    return kernel


def _run_agent(argv: list[str], log: str, environ: dict[str, str]) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(environ)
    from nova_vhpc.cmd import agent

    sys.exit(agent.main(argv))


def everything(domain: libvirt.virDomain) -> Any:
    """All of a domain's cputune, to be compared bit for bit."""
    return (
        domain.schedulerParametersFlags(LIVE),
        domain.vcpuPinInfo(LIVE),
        domain.emulatorPinInfo(LIVE),
    )


class AgentTestCase(base.BaseTestCase):
    """One libvirtd per class; its guests as the class says."""

    daemon: libvirtd.PrivateLibvirtd
    root: pathlib.Path
    conn: libvirt.virConnect

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        # Its directory must not be the temporary one of the first test.
        forkserver.ensure_running()
        libvirt.registerErrorHandler(lambda context, error: None, None)
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix='nv-ag-'))
        cls.daemon = libvirtd.PrivateLibvirtd(cls.root / 'lv').start()
        cls.conn = libvirt.open(cls.daemon.uri)

    @classmethod
    def tearDownClass(cls) -> None:
        with contextlib.suppress(libvirt.libvirtError):
            cls.conn.close()
        cls.daemon.stop()
        shutil.rmtree(cls.root, ignore_errors=True)
        super().tearDownClass()

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(tempfile.mkdtemp(prefix='t-', dir=self.root))
        self.log = self.path / 'agent.log'
        self.processes: list[Any] = []
        self.addCleanup(self._end_processes)
        self.addOnException(self._show_log)

    def _show_log(self, _error: Any) -> None:
        with contextlib.suppress(OSError):
            from testtools import content

            self.addDetail(
                'agent.log', content.text_content(self.log.read_text())
            )

    # -- guests ------------------------------------------------------------

    def domain(
        self,
        specs: dict[str, str] | None,
        *,
        busy: bool = False,
        vcpus: int = 2,
        cputune: str = '',
        cpuset: str | None = None,
        numa: bool = False,
        name: str = '',
    ) -> libvirt.virDomain:
        """Start a guest; it ends with the test."""
        name = name or f'ag-{uuid_module.uuid4().hex[:8]}'
        kernel = _spinner(self.root) if busy else pathlib.Path('/x')
        image = lab_image.GuestImage(kernel, pathlib.Path('/x'))
        xml = lab_guest.domain_xml(
            name,
            image,
            vcpus=vcpus,
            memory_mib=32,
            workload='barrier',
            extra_specs=specs,
            cpuset=cpuset,
        )
        root = ElementTree.fromstring(xml)
        system = root.find('os')
        assert system is not None
        for tag in ('initrd', 'cmdline') if busy else _BOOT_TAGS:
            element = system.find(tag)
            assert element is not None
            system.remove(element)
        vcpu = root.find('vcpu')
        assert vcpu is not None
        place = list(root).index(vcpu) + 1
        if cputune:
            root.insert(
                place,
                ElementTree.fromstring(f'<cputune>{cputune}</cputune>'),
            )
        if numa:
            root.insert(
                place,
                ElementTree.fromstring(
                    "<numatune><memory mode='preferred' nodeset='0'/>"
                    '</numatune>'
                ),
            )
        domain = self.conn.defineXML(ElementTree.tostring(root, 'unicode'))
        self.addCleanup(self._end_domain, domain.UUIDString())
        domain.create()
        return domain

    def _end_domain(self, uuid: str) -> None:
        with contextlib.suppress(libvirt.libvirtError):
            domain = self.conn.lookupByUUIDString(uuid)
            with contextlib.suppress(libvirt.libvirtError):
                domain.destroy()
            domain.undefineFlags(
                libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            )

    @classmethod
    def reconnect(cls) -> None:
        """After a restart of libvirtd."""
        with contextlib.suppress(libvirt.libvirtError):
            cls.conn.close()
        cls.conn = libvirt.open(cls.daemon.uri)

    # -- the agent ---------------------------------------------------------

    def configure(self, **options: Any) -> str:
        """Write a configuration; ``group__name=value`` for other groups."""
        groups: dict[str, dict[str, Any]] = {
            'vhpc_agent': {
                'libvirt_uri': self.daemon.uri,
                'state_path': self.path / 'state',
                'run_path': self.path / 'run',
                'metrics_port': 0,
                'reconcile_period': 1,
                'reconnect_max_seconds': 1,
            },
            'vhpc_control': {'slice_policy': 'fixed'},
            'vhpc_topology': {'publish': 'false'},
        }
        for key, value in options.items():
            group, _, name = key.rpartition('__')
            groups.setdefault(group or 'vhpc_agent', {})[name] = value
        file = self.path / 'agent.conf'
        file.write_text(
            '\n'.join(
                f'[{group}]\n'
                + '\n'.join(f'{k} = {v}' for k, v in values.items())
                for group, values in groups.items()
            )
        )
        return str(file)

    def spawn(self, *arguments: str, environ: Any = None) -> Any:
        """Start the agent with the configuration; do not wait."""
        process = _context.Process(
            target=_run_agent,
            args=(
                ['--config-file', str(self.path / 'agent.conf'), *arguments],
                str(self.log),
                dict(environ or {}),
            ),
        )
        process.start()
        self.processes.append(process)
        return process

    def start_agent(self, *arguments: str, **options: Any) -> Any:
        """Start the agent and wait until it is connected and ticks."""
        self.configure(**options)
        process = self.spawn(*arguments)
        self.wait_for(
            lambda: self.status()['agent']['ticks'] > 1, 'the agent to start'
        )
        return process

    def stop_agent(self, process: Any, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; its exit status."""
        os.kill(process.pid, number)
        process.join(PATIENCE_S)
        self.assertIsNotNone(process.exitcode, 'the agent does not end')
        code: int = process.exitcode
        return code

    def restore(self) -> int:
        """``nova-vhpc-agent --restore``; its exit status."""
        process = self.spawn('--restore')
        process.join(120)
        code: int = process.exitcode
        return code

    def status(self) -> dict[str, Any]:
        """What the status socket says; empty sections without an agent."""
        try:
            return status.fetch(status.socket_path(str(self.path / 'run')))
        except (OSError, ValueError):
            return {'agent': {'ticks': 0}, 'vms': []}

    def vm(self, domain: libvirt.virDomain) -> dict[str, Any] | None:
        """One VM in the status."""
        for vm in self.status()['vms']:
            if vm['uuid'] == domain.UUIDString():
                found: dict[str, Any] = vm
                return found
        return None

    def log_lines(self, text: str) -> list[str]:
        """Lines of the agent's log that hold a text."""
        return [
            line for line in self.log.read_text().splitlines() if text in line
        ]

    def wait_for(
        self,
        condition: Callable[[], Any],
        what: str,
        patience_s: float = PATIENCE_S,
    ) -> Any:
        """Wait until something is so; fail if it never is."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        self.fail(f'waited in vain for {what}')

    def wait_for_write(self, domain: libvirt.virDomain) -> None:
        """Wait until the agent has written to a domain."""
        self.wait_for(
            lambda: (self.vm(domain) or {}).get('writes'),
            f'a write to {domain.name()}',
        )

    def period(self, domain: libvirt.virDomain) -> int:
        """vCPU period in force."""
        value: int = domain.schedulerParametersFlags(LIVE)['vcpu_period']
        return value

    @contextlib.contextmanager
    def running(self, *arguments: str, **options: Any) -> Iterator[Any]:
        """An agent for the length of a block, stopped with SIGTERM."""
        process = self.start_agent(*arguments, **options)
        yield process
        self.assertEqual(0, self.stop_agent(process))

    def _end_processes(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
                process.join(10)
