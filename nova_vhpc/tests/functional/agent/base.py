# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agent as a real process, beside real guests (:mod:`guests`)."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from typing import Any

import libvirt

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.tests.functional.agent import guests
from nova_vhpc_lab.testbed.patience import PATIENCE_S

LIVE = guests.LIVE
OWN_QUOTA = guests.OWN_QUOTA

everything = guests.everything
in_kernel = guests.in_kernel

_context = multiprocessing.get_context('forkserver')
# Importing the agent takes a second; forks of the server, which has imported
# it, start at once.
_context.set_forkserver_preload(['nova_vhpc.cli.agent'])


def _run_agent(argv: list[str], log: str, environ: dict[str, str]) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(environ)
    from nova_vhpc.agent.daemon import systemd
    from nova_vhpc.cli import agent

    signals = systemd.Signals()
    signals.catch()
    sys.exit(agent.main(argv, signals))


class AgentTestCase(guests.GuestTestCase):
    """Starts agents and reads their status."""

    @classmethod
    def setUpClass(cls) -> None:
        # Started here, so that the fork server does not run in the temporary
        # directory of the first test, which that test removes.
        forkserver.ensure_running()
        super().setUpClass()

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

    def configure(self, **options: Any) -> str:
        """Write the agent's configuration, and return its path.

        :param options: values of ``[vhpc_agent]``; ``group__name=value`` sets
            an option of another group.
        """
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
        """Start the agent with the written configuration; do not wait."""
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
        """Send a signal, wait for the end, and return the exit status."""
        os.kill(process.pid, number)
        process.join(PATIENCE_S)
        self.assertIsNotNone(process.exitcode, 'the agent does not end')
        code: int = process.exitcode
        return code

    def restore(self) -> int:
        """Run ``nova-vhpc-agent --restore``, and return its exit status."""
        process = self.spawn('--restore')
        process.join(PATIENCE_S)
        code: int = process.exitcode
        return code

    def status(self) -> dict[str, Any]:
        """Return the agent's status; empty sections if none runs."""
        try:
            return status_socket.fetch(
                status_socket.socket_path(str(self.path / 'run'))
            )
        except (OSError, ValueError):
            return {'agent': {'ticks': 0}, 'vms': []}

    def vm(self, domain: libvirt.virDomain) -> dict[str, Any] | None:
        """Return a domain's entry in the status; None if there is none."""
        vms: list[dict[str, Any]] = self.status()['vms']
        for vm in vms:
            if vm['uuid'] == domain.UUIDString():
                return vm
        return None

    def log_lines(self, text: str) -> list[str]:
        """Return the lines of the agent's log that contain a text."""
        return [
            line for line in self.log.read_text().splitlines() if text in line
        ]

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition is true, and return its value.

        :param what: what is waited for, in the words of the failure.
        """
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        self.fail(f'timeout while waiting for {what}')

    def wait_for_ticks(self, count: int) -> None:
        """Wait until the agent has ticked some more times.

        What it would do wrongly it would have done by then, also where it
        gets little CPU time.
        """
        last = self.status()['agent']['ticks'] + count
        self.wait_for(
            lambda: self.status()['agent']['ticks'] >= last, f'{count} ticks'
        )

    def wait_for_write(self, domain: libvirt.virDomain) -> None:
        """Wait until the agent has written to a domain."""
        self.wait_for(
            lambda: (self.vm(domain) or {}).get('writes'),
            f'a write to {domain.name()}',
        )

    def wait_for_period(self, domain: libvirt.virDomain) -> int:
        """Wait until the agent has written a period, and return it.

        The first write may be a pin only.
        """
        self.wait_for_write(domain)
        self.wait_for(
            lambda: self.period(domain) != 100_000,
            f'a period of {domain.name()}',
        )
        return self.period(domain)

    def period(self, domain: libvirt.virDomain) -> int:
        """Return the vCPU period in force, in microseconds."""
        value: int = domain.schedulerParametersFlags(LIVE)['vcpu_period']
        return value

    @contextlib.contextmanager
    def running(self, *arguments: str, **options: Any) -> Iterator[Any]:
        """Run an agent during a block; stop it with SIGTERM after it."""
        process = self.start_agent(*arguments, **options)
        yield process
        self.assertEqual(0, self.stop_agent(process))

    def _end_processes(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()
                process.join(10)
