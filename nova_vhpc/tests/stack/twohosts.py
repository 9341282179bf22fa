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


"""A cloud with two compute hosts, between which servers can be migrated."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nova_vhpc.tests.stack import cloud, config, guard, host


class _Libvirts:
    """The libvirtd of both hosts, instead of the cloud's only one."""

    def __init__(self, hosts: tuple[host.Host, ...]) -> None:
        self._hosts = hosts

    def start(self) -> None:
        for each in self._hosts:
            each.start()

    def stop(self) -> None:
        for each in self._hosts:
            each.stop()


class TwoHosts(cloud.Cloud):
    """A cloud whose compute nodes are two containers of this machine.

    They share the directory of instances, as if by NFS.
    """

    def __init__(
        self,
        say: Callable[[str], None] = lambda text: None,
        root: Path | None = None,
    ) -> None:
        super().__init__((), say, root)
        self.hosts = tuple(
            host.Host(self.root / f'{self.tag}{letter}', self.logs)
            for letter in 'ab'
        )
        self.libvirt: Any = _Libvirts(self.hosts)

    def write_computes(self) -> None:
        (self.root / 'instances').mkdir()
        for compute_host, other in zip(
            self.hosts, reversed(self.hosts), strict=True
        ):
            special = config.libvirt_compute(compute_host.uri)
            self.config.write_compute(
                compute_host.name,
                {
                    'DEFAULT': {
                        **special['DEFAULT'],
                        'host': compute_host.name,
                        'instances_path': self.root / 'instances',
                        'shutdown_timeout': 1,
                    },
                    'libvirt': {
                        **special['libvirt'],
                        # Nova requires %s, the name of the other host.
                        'live_migration_uri': f'{other.uri}&host=%s',
                        'live_migration_inbound_addr': '127.0.0.1',
                        # Milliseconds; Nova's default is too short for
                        # emulated guests on a busy machine.
                        'live_migration_downtime': 2000,
                    },
                },
            )

    def start_computes(self) -> int:
        for each in self.hosts:
            each.spawn(
                'compute',
                self.program('python'),
                '-m',
                'nova_vhpc.tests.stack.compute',
                '--config-file',
                self.config.etc / f'{each.name}.conf',
                env=cloud.ENVIRONMENT,
            )
        return len(self.hosts)

    def start_agent(self, compute_host: host.Host, **control: Any) -> None:
        """Start nova-vhpc-agent without access to Nova.

        The agent is not notified of migrations.

        :param compute_host: host to start it on.
        :param control: options of ``[vhpc_control]``.
        """
        conf = config.write(
            self.config.etc / f'{compute_host.name}-vhpc.conf',
            {
                'DEFAULT': {'transport_url': self.config.transport_url},
                'vhpc_agent': {
                    'host': compute_host.name,
                    'libvirt_uri': compute_host.uri,
                    'state_path': compute_host.state_path,
                    'run_path': compute_host.run_path,
                    'metrics_port': 0,
                    'reconcile_period': 5,
                },
                'vhpc_control': control,
            },
        )
        compute_host.start_agent(self.program('nova-vhpc-agent'), conf)

    def restore_one(self, compute_host: host.Host, server: str) -> None:
        """Run ``nova-vhpc-ctl restore``, as operators do before a migration.

        :raises subprocess.CalledProcessError: if the server is not restored.
        """
        subprocess.run(
            (
                self.program('nova-vhpc-ctl'),
                '--config-file',
                self.config.etc / f'{compute_host.name}-vhpc.conf',
                'restore',
                '--host',
                compute_host.name,
                '--server',
                server,
            ),
            check=True,
            capture_output=True,
            timeout=60,
        )

    def move(self, server: str, to: host.Host) -> None:
        """Migrate a server live by Nova's API.

        :raises ApiError: if the migration fails.
        :raises StackError: if the server is still on its old host.
        """
        admin = self.client('admin')
        # Of a server in ERROR, this raises its fault; the migration would
        # be refused without it.
        admin.wait_active([server])
        body = {'host': to.name, 'block_migration': 'auto'}
        admin.compute(
            'POST', f'/servers/{server}/action', {'os-migrateLive': body}
        )
        admin.wait_active([server])
        actual = admin.server(server)['OS-EXT-SRV-ATTR:host']
        if actual != to.name:
            errors = [daemon.last_error() for daemon in self._computes()]
            raise cloud.StackError(
                f'{server} is on {actual}, not on {to.name}; nova-compute: '
                + '; '.join(errors)
            )

    def _computes(self) -> list[guard.Daemon]:
        return [
            guard.Daemon(path.stem, 0, path)
            for path in self.logs.glob('*-compute-*.log')
        ]
