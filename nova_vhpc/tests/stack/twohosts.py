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


"""Two compute hosts of one Nova, between which servers can be moved."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nova_vhpc.testbed import guest, image
from nova_vhpc.tests.stack import cloud, config, guard, host


class _Both:
    """What Cloud takes for its libvirt."""

    def __init__(self, hosts: tuple[host.Host, ...]) -> None:
        self._hosts = hosts

    def start(self) -> None:
        for one in self._hosts:
            one.start()

    def stop(self) -> None:
        for one in self._hosts:
            one.stop()


class TwoHosts(cloud.Cloud):
    """A cloud whose compute nodes are two hosts of this machine.

    They share the directory of instances, as by NFS.
    """

    def __init__(
        self,
        say: Callable[[str], None] = lambda text: None,
        root: Path | None = None,
    ) -> None:
        super().__init__((), say, root)
        self.hosts = tuple(
            host.Host(self.root / f'{self.tag}{one}', self.logs)
            for one in 'ab'
        )
        self.libvirt: Any = _Both(self.hosts)

    def write_computes(self) -> None:
        (self.root / 'instances').mkdir()
        for one, other in zip(self.hosts, reversed(self.hosts), strict=True):
            special = config.libvirt_compute(one.uri)
            self.config.write_compute(
                one.name,
                {
                    'DEFAULT': {
                        **special['DEFAULT'],
                        'host': one.name,
                        'instances_path': self.root / 'instances',
                        'shutdown_timeout': 1,
                    },
                    'libvirt': {
                        **special['libvirt'],
                        # Nova wants a place for the other host's name.
                        'live_migration_uri': f'{other.uri}&host=%s',
                        'live_migration_inbound_addr': '127.0.0.1',
                        # Not to be had for TCG guests on a busy machine.
                        'live_migration_downtime': 2000,
                    },
                },
            )

    def start_computes(self) -> int:
        for one in self.hosts:
            one.spawn(
                'compute',
                self.program('python'),
                '-m',
                'nova_vhpc.tests.stack.compute',
                '--config-file',
                self.config.etc / f'{one.name}.conf',
                env=cloud.ENVIRONMENT,
            )
        return len(self.hosts)

    def add_guest_image(self, workload: str) -> str:
        """A blank disk, with kernel and initramfs of our own making."""
        built = image.build_image()
        blank = self.root / 'blank.raw'
        with blank.open('wb') as disk:
            disk.truncate(1 << 20)
        return self.add_image(
            workload,
            blank,
            kernel_id=self.add_image('kernel', built.kernel),
            ramdisk_id=self.add_image('ramdisk', built.initrd),
            os_command_line=guest.kernel_cmdline(workload, workload),
        )

    def start_agent(self, one: host.Host, **control: Any) -> None:
        """Start nova-vhpc-agent, which hears of migrations from nobody.

        :param control: options of ``[vhpc_control]``.
        """
        conf = config.write(
            self.config.etc / f'{one.name}-vhpc.conf',
            {
                'DEFAULT': {'transport_url': self.config.transport_url},
                'vhpc_agent': {
                    'host': one.name,
                    'libvirt_uri': one.uri,
                    'state_path': one.state_path,
                    'run_path': one.run_path,
                    'metrics_port': 0,
                    'reconcile_period': 5,
                },
                'vhpc_control': control,
            },
        )
        one.start_agent(self.program('nova-vhpc-agent'), conf)

    def restore_one(self, one: host.Host, server: str) -> None:
        """``nova-vhpc-ctl restore``, as an operator before a migration.

        :raises subprocess.CalledProcessError: it is not put back.
        """
        subprocess.run(
            (
                self.program('nova-vhpc-ctl'),
                '--config-file',
                self.config.etc / f'{one.name}-vhpc.conf',
                'restore',
                '--host',
                one.name,
                '--server',
                server,
            ),
            check=True,
            capture_output=True,
            timeout=60,
        )

    def move(self, server: str, to: host.Host) -> None:
        """Have Nova migrate a server live.

        :raises ApiError: it fails.
        """
        admin = self.client('admin')
        # Or Nova refuses it without the fault that put it into ERROR.
        admin.wait_active([server])
        body = {'host': to.name, 'block_migration': 'auto'}
        admin.compute(
            'POST', f'/servers/{server}/action', {'os-migrateLive': body}
        )
        admin.wait_active([server])
        found = admin.server(server)['OS-EXT-SRV-ATTR:host']
        if found != to.name:
            daemons = [d.last_error() for d in self._computes()]
            raise cloud.StackError(
                f'{server} is on {found}, not on {to.name}; nova-compute: '
                + '; '.join(daemons)
            )

    def _computes(self) -> list[guard.Daemon]:
        return [
            guard.Daemon(path.stem, 0, path)
            for path in self.logs.glob('*-compute-*.log')
        ]
