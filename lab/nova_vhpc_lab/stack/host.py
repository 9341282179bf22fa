# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A compute host in a container, with libvirtd and the agent."""

import os
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc_lab.stack import container, environment, guard, guests
from nova_vhpc_lab.testbed import libvirtd

_HOOK = Path(__file__).parents[3] / 'etc/nova-vhpc/libvirt-qemu-hook'
_LIBVIRTD_CONF = """\
listen_tls = 0
listen_tcp = 0
unix_sock_dir = "{root}/sock"
unix_sock_rw_perms = "0700"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "3:file:{root}/libvirtd.log"
host_uuid = "{uuid}"
"""


class Host:
    """A compute host.

    :param root: directory of the host's files; its name is the host's name.
    :param logs: directory of the logs of the host's processes.
    :param programs: environment of the host's nova-compute and agent.
    :ivar agent: the agent if it was started and not stopped, else None.
    """

    def __init__(
        self,
        root: Path,
        logs: Path,
        programs: environment.Environment = environment.HERE,
    ) -> None:
        self.root = root
        self.name = root.name
        self.logs = logs
        self.programs = programs
        self.agent: guard.Daemon | None = None
        self._container: container.Container | None = None
        self._spawned = 0

    @property
    def uri(self) -> str:
        """libvirt's URI, valid inside and outside of the container."""
        return libvirtd.uri_of(self._socket)

    @property
    def virsh(self) -> guests.Virsh:
        """The program ``virsh``, connected to the host's libvirtd."""
        return guests.Virsh(self.uri)

    @property
    def _socket(self) -> Path:
        return self.root / 'sock' / 'libvirt-sock'

    def start(self, namespace: str) -> None:
        """Create the container and start libvirtd in it.

        :param namespace: name of its network namespace.
        :raises libvirtd.LibvirtdError: if libvirtd does not answer.
        """
        for name in ('sock', 'etc'):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        cache = libvirtd.PrivateLibvirtd(self.root).cache
        cache.mkdir(parents=True, exist_ok=True)
        (self.root / 'cache').symlink_to(cache)
        (self.root / 'libvirtd.conf').write_text(
            _LIBVIRTD_CONF.format(root=self.root, uuid=uuid.uuid4())
        )
        (self.root / 'etc' / 'qemu.conf').write_text(libvirtd.QEMU_CONF)
        self._install_hook()
        self.logs.mkdir(parents=True, exist_ok=True)
        self._container = container.Container(
            self.logs, self.root, self.name, namespace
        )
        self.spawn(
            'libvirtd',
            'libvirtd',
            '--config',
            self.root / 'libvirtd.conf',
            '--pid-file',
            self.root / 'libvirtd.pid',
        )
        libvirtd.wait_until_it_answers(
            self.uri, self._socket, [self.root / 'libvirtd.log']
        )

    def _install_hook(self) -> None:
        """Install the hook as documented, but not the program it calls.

        libvirtd looks for hooks at its start only. ``use_hook`` installs the
        program later.
        """
        hook = self.root / 'etc' / 'hooks' / 'qemu.d' / 'nova-vhpc'
        hook.parent.mkdir(parents=True)
        packaged = '/usr/bin/nova-vhpc-hook'
        text = _HOOK.read_text()
        if packaged not in text:
            raise RuntimeError(f'{_HOOK} does not call {packaged}')
        hook.write_text(text.replace(packaged, str(self._hook_program)))
        hook.chmod(0o755)

    @property
    def _hook_program(self) -> Path:
        return self.root / 'nova-vhpc-hook'

    def use_hook(self, program: Path) -> None:
        """Install the program that the hook calls."""
        self._hook_program.symlink_to(program)

    def use_no_hook(self) -> None:
        """Remove the program that the hook calls."""
        self._hook_program.unlink(missing_ok=True)

    def stop(self) -> None:
        """End all processes of the host; may be called again."""
        running, self._container = self._container, None
        if running is not None:
            running.close()

    def spawn(
        self,
        program: str,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
    ) -> guard.Daemon:
        """Start a daemon on the host.

        :param program: part of the daemon's name and of its log's.
        :raises RuntimeError: if the host was not started.
        """
        if self._container is None:
            raise RuntimeError(f'host {self.name} was not started')
        self._spawned += 1
        name = f'{self.name}-{program}-{self._spawned}'
        return self._container.start(name, argv, env)

    def start_agent(self, conf: Path, *options: str) -> None:
        """Start nova-vhpc-agent with a configuration file and options."""
        self.agent = self.spawn(
            'agent',
            self.programs.program('nova-vhpc-agent'),
            '--config-file',
            conf,
            *options,
            env=self.programs.variables,
        )

    def kill_agent(self) -> None:
        """Kill the agent with SIGKILL."""
        agent, self.agent = self.agent, None
        if agent is not None:
            agent.signal(signal.SIGKILL)
            agent.wait()

    def stop_agent(self, timeout_s: float = 30) -> bool:
        """Stop the agent as systemd does.

        :returns: whether SIGTERM was enough.
        """
        agent, self.agent = self.agent, None
        return agent is None or agent.stop(timeout_s)

    @property
    def run_path(self) -> Path:
        """The agent's ``run_path``."""
        return self.root / 'agent' / 'run'

    @property
    def state_path(self) -> Path:
        """The agent's ``state_path``."""
        return self.root / 'agent' / 'state'

    def journal(self) -> set[str]:
        """Return the UUIDs of the servers that have a journal record."""
        return {path.stem for path in self.state_path.glob('journal/*.json')}

    def vm(self, server: str) -> dict[str, Any]:
        """Return the agent's status of a server; empty if unmanaged."""
        try:
            status = status_socket.fetch(
                status_socket.socket_path(str(self.run_path)), 60
            )
        except OSError:
            return {}
        return next((vm for vm in status['vms'] if vm['uuid'] == server), {})

    def log(self) -> str:
        """Return the logs of all runs of the agent, oldest first."""
        paths = sorted(
            self.logs.glob(f'{self.name}-agent-*.log'), key=os.path.getmtime
        )
        return ''.join(path.read_text(errors='replace') for path in paths)
