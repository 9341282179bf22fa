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


"""One compute host in a container: libvirtd, nova-compute, the agent."""

import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nova_vhpc.agent.daemon import status_socket
from nova_vhpc.testbed import libvirtd
from nova_vhpc.tests.stack import container, guard, guests

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
    """Its processes, and what libvirt and the agent there say.

    :param root: a directory of its own; its name is the host's.
    :param logs: where the output of its processes goes.
    """

    def __init__(self, root: Path, logs: Path) -> None:
        self.root = root
        self.name = root.name
        self.logs = logs
        self.agent: guard.Daemon | None = None
        self._box: container.Container | None = None
        self._runs = 0

    @property
    def uri(self) -> str:
        """Of its libvirt, from everywhere on this machine."""
        return libvirtd.uri_of(self._socket)

    @property
    def virsh(self) -> guests.Virsh:
        return guests.Virsh(self.uri)

    @property
    def _socket(self) -> Path:
        return self.root / 'sock' / 'libvirt-sock'

    def start(self) -> None:
        """Make the container, and start libvirtd in it.

        :raises libvirtd.LibvirtdError: it does not answer.
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
        self._box = container.Container(self.logs, self.root, self.name)
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
        """As the documentation says, but without the program that it calls.

        libvirtd looks for hooks but once.
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
        """Have libvirtd ask nova-vhpc-hook from now on."""
        self._hook_program.symlink_to(program)

    def use_no_hook(self) -> None:
        self._hook_program.unlink(missing_ok=True)

    def stop(self) -> None:
        """End all that runs there. Idempotent."""
        box, self._box = self._box, None
        if box is not None:
            box.close()

    def spawn(
        self,
        what: str,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
    ) -> guard.Daemon:
        """Start a process there."""
        if self._box is None:
            raise RuntimeError(f'{self.name} is not up')
        self._runs += 1
        name = f'{self.name}-{what}-{self._runs}'
        return self._box.start(name, argv, env)

    def start_agent(self, program: Path, conf: Path) -> None:
        self.agent = self.spawn('agent', program, '--config-file', conf)

    def stop_agent(self, timeout_s: float = 30) -> bool:
        """Stop it as systemd does.

        :returns: whether SIGTERM sufficed.
        """
        agent, self.agent = self.agent, None
        return agent is None or agent.stop(timeout_s)

    @property
    def run_path(self) -> Path:
        """Of the agent."""
        return self.root / 'agent' / 'run'

    @property
    def state_path(self) -> Path:
        """Of the agent."""
        return self.root / 'agent' / 'state'

    def journal(self) -> set[str]:
        """Uuids of the VMs that the agent has records of."""
        return {path.stem for path in self.state_path.glob('journal/*.json')}

    def vm(self, server: str) -> dict[str, Any]:
        """What the agent says of a VM; nothing of one that it has not."""
        try:
            seen = status_socket.fetch(
                status_socket.socket_path(str(self.run_path)), 60
            )
        except OSError:
            return {}
        return next((vm for vm in seen['vms'] if vm['uuid'] == server), {})

    def log(self) -> str:
        """The agents' log there, of all runs."""
        found = sorted(
            self.logs.glob(f'{self.name}-agent-*.log'), key=os.path.getmtime
        )
        return ''.join(path.read_text(errors='replace') for path in found)


def wait(
    what: str, condition: Callable[[], Any], timeout_s: float = 60
) -> Any:
    """Until a condition gives something true.

    :raises TimeoutError: naming what was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f'{what}: not within {timeout_s:.0f} s')
        time.sleep(0.2)
    return found
