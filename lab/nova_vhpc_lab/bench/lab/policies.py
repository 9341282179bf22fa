# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The policies that the lab compares, each carried out by a real agent.

Under ``stock`` no agent runs. The policies of the papers run without pinning,
as their authors ran them; ``default`` is the agent without any option set.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

READY_SECONDS = 30.0
STOP_SECONDS = 30.0
NICE = -10
"""Nice value of the agent, as in its systemd unit."""

POLICIES: Mapping[str, Mapping[str, str] | None] = {
    'stock': None,
    'balance': {'slice_policy': 'none', 'pinning_policy': 'balance'},
    'fixed': {'slice_policy': 'fixed', 'pinning_policy': 'none'},
    'dss': {'slice_policy': 'dss', 'pinning_policy': 'none'},
    'vslicer': {'slice_policy': 'vslicer', 'pinning_policy': 'none'},
    'atc': {
        'slice_policy': 'atc',
        'pinning_policy': 'none',
        'atc_literal': 'true',
    },
    'default': {},
    'wait': None,
    'wait-windows': {},
}
"""Options in ``[vhpc_control]`` by policy; None for no agent."""

NAPPING = frozenset({'wait', 'wait-windows'})
"""Policies under which programs of MPI and OpenMP libraries nap."""


class AgentError(Exception):
    """The agent did not start, or did not restore all; holds its log's end."""


class Agent:
    """One ``nova-vhpc-agent`` process.

    :param root: directory for its files, created if missing.
    :param uri: libvirt's connection URI.
    :param options: options in ``[vhpc_control]``.
    :param cpus: host CPUs for ``cpu_shared_set``.
    :param group: directory of the control group that the agent joins, or
        None.
    """

    def __init__(
        self,
        root: Path,
        uri: str,
        options: Mapping[str, str],
        cpus: tuple[int, ...],
        group: Path | None = None,
    ) -> None:
        self.root = root
        self._uri = uri
        self._options = options
        self._cpus = cpus
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> 'Agent':
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the agent and wait for its first ticks.

        :raises AgentError: there are none within :data:`READY_SECONDS`.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        run = self.root / 'run'
        run.mkdir(exist_ok=True)
        config = self.root / 'agent.conf'
        config.write_text(self._config(run))
        with open(self.root / 'agent.log', 'ab') as log:
            self._process = subprocess.Popen(
                (
                    # If this process is killed, the agent gets SIGTERM,
                    # restores all guests and exits.
                    *('nice', '-n', str(NICE)),
                    *('setpriv', '--pdeathsig', 'TERM', '--'),
                    *(sys.executable, '-m', 'nova_vhpc.cli.agent'),
                    *('--config-file', str(config)),
                ),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if self._group is not None:
            (self._group / 'cgroup.procs').write_text(str(self._process.pid))
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            status = self.status()
            if status is not None and status['agent']['ticks'] > 2:
                return
            time.sleep(0.1)
        self.stop()
        raise AgentError(f'the agent does not tick: {self._log_end()}')

    def stop(self) -> None:
        """Stop the agent by SIGTERM, as systemd does.

        :raises AgentError: the agent could not restore all guests.
        """
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code != 0:
            raise AgentError(
                f'the agent ended with status {code}: {self._log_end()}'
            )

    def status(self) -> dict[str, Any] | None:
        """Return the agent's status; None if it does not answer."""
        answer = b''
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(socket.AF_UNIX) as connection,
        ):
            connection.settimeout(5)
            connection.connect(str(self.root / 'run' / 'agent.sock'))
            while chunk := connection.recv(65536):
                answer += chunk
            status: dict[str, Any] = json.loads(answer)
            return status
        return None

    def _config(self, run: Path) -> str:
        cpus = ','.join(str(cpu) for cpu in self._cpus)
        lines = [
            '[vhpc_agent]',
            f'libvirt_uri = {self._uri}',
            f'state_path = {self.root / "state"}',
            f'run_path = {run}',
            f'cpu_shared_set = {cpus}',
            'host = lab',
            'metrics_port = 0',
            'reconcile_period = 2',
            '[vhpc_topology]',
            'publish = false',
            '[vhpc_control]',
            *(f'{key} = {value}' for key, value in self._options.items()),
        ]
        return '\n'.join(lines) + '\n'

    def _log_end(self) -> str:
        log = self.root / 'agent.log'
        return log.read_text()[-2000:] if log.exists() else 'no log'
