# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A cloud with real compute hosts, on which guests run and migrate."""

import concurrent.futures
import functools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nova_vhpc_lab.ovn import lab
from nova_vhpc_lab.stack import (
    client,
    cloud,
    config,
    environment,
    guard,
    host,
    processes,
)
from nova_vhpc_lab.testbed import patience

UPLINKS = 2
"""Uplinks of each host."""

_RELAYED = ('keystone', 'placement', 'glance', 'neutron', 'nova', 'rabbit')
"""Services that the programs of a host use."""


class RealHosts(cloud.Cloud):
    """A cloud whose compute hosts are containers of this machine.

    Each has its own network, with Open vSwitch and OVN of :class:`lab.Lab`.
    The hosts share the directory of instances, as if by NFS. Ports get their
    addresses from Neutron and OVN.

    :param count: number of hosts with real guests, at most 26.
    :param last: environment of nova-compute and agent of the last of them.
    :ivar hosts: these hosts.
    """

    def __init__(
        self,
        fake_hosts: tuple[str, ...] = (),
        say: Callable[[str], None] = lambda text: None,
        root: Path | None = None,
        count: int = 2,
        last: environment.Environment = environment.HERE,
    ) -> None:
        super().__init__(fake_hosts, say, root)
        self.hosts = tuple(
            host.Host(
                self.root / f'{self.tag}{chr(ord("a") + number)}',
                self.logs,
                last if number == count - 1 else environment.HERE,
            )
            for number in range(count)
        )
        self._lab: lab.Lab | None = None

    def switch(self, compute_host: host.Host) -> lab.Host:
        """Return the network of a host: Open vSwitch and its uplinks."""
        assert self._lab is not None
        return self._lab.hosts[self.hosts.index(compute_host)]

    def encap_of(self, port: str) -> str:
        """Return the encap IP that OVN uses for a port; empty for none."""
        assert self._lab is not None
        return self._lab.encap_of(port)

    def settle_network(self) -> None:
        """Wait until all hosts know what OVN's databases say."""
        assert self._lab is not None
        self._lab.nbctl('--wait=hv', 'sync')

    def start_hosts(self) -> None:
        """Start fabric, Open vSwitch and libvirtd of each host."""
        self._lab = lab.Lab(self.tag, self.keeper, self.root / 'ovn')
        self._lab.setUp()
        for number, each in enumerate(self.hosts):
            switch = self._lab.add_host(
                f'h{number + 1}', UPLINKS, hostname=each.name
            )
            each.start(switch.place.namespace or '')
        self.spawn(
            'relay',
            self.program('python'),
            '-m',
            'nova_vhpc_lab.stack.relay',
            ','.join(str(self.ports[name]) for name in _RELAYED),
            *(switch.place.namespace or '' for switch in self._lab.hosts),
        )
        self.wait_log('relay', 'ready')

    def stop_hosts(self) -> None:
        for each in self.hosts:
            each.stop()
        network, self._lab = self._lab, None
        if network is not None:
            network.cleanUp()

    def start_network(self, hosts: concurrent.futures.Future[None]) -> None:
        """Start Neutron."""
        schema = self.spawn(
            'neutron-schema',
            self.program('neutron-db-manage'),
            '--config-file',
            self.config.etc / 'neutron' / 'neutron.conf',
            'upgrade',
            'heads',
        )
        self.await_end(schema, "Neutron's database schema", 'OK')
        # It connects to OVN's databases.
        hosts.result()
        self.run_wsgi(
            'neutron',
            OS_NEUTRON_CONFIG_FILES='neutron.conf',
            # Without it, Neutron takes the number of its processes for zero,
            # and no port becomes active.
            ASGI_WORKERS='1',
        )
        self.wait_http('neutron')

    def write_config(self) -> None:
        super().write_config()
        self.config.write_neutron(self.root / 'ovn')

    def write_computes(self) -> None:
        super().write_computes()
        instances = self.root / 'instances'
        instances.mkdir()
        for number, compute_host in enumerate(self.hosts):
            other = self.hosts[number - 1]
            ovsdb = f'unix:{self.root}/ovn/h{number + 1}/db.sock'
            special = config.libvirt_compute(compute_host.uri, ovsdb)
            self.config.write_compute(
                compute_host.name,
                {
                    **special,
                    'DEFAULT': {
                        **special['DEFAULT'],
                        'host': compute_host.name,
                        'instances_path': instances,
                        'shutdown_timeout': 1,
                    },
                    'libvirt': {
                        **special['libvirt'],
                        # Nova requires %s, the name of the other host.
                        'live_migration_uri': f'{other.uri}&host=%s',
                        'live_migration_inbound_addr': lab.MANAGEMENT.format(
                            host=number + 1
                        ),
                        # Milliseconds; Nova's default is too short for
                        # emulated guests on a busy machine.
                        'live_migration_downtime': 2000,
                    },
                },
                compute_host.programs,
            )

    def start_computes(self) -> int:
        count = 0
        for programs in self._oldest_first():
            if count:
                self._wait_for_computes(count)
            for each in self.hosts:
                if each.programs == programs:
                    self._start_compute(each)
                    count += 1
            if programs == environment.HERE:
                count += super().start_computes()
        return count

    def _oldest_first(self) -> list[environment.Environment]:
        """Return the environments of nova-compute, the oldest nova first.

        Nova accepts no new service that is older than all others of its kind.
        In an upgrade the older ones are there before.
        """
        found = {environment.HERE, *(each.programs for each in self.hosts)}
        if len(found) == 1:
            return list(found)
        return sorted(
            found, key=lambda each: int(each.versions('nova')[0].split('.')[0])
        )

    def _wait_for_computes(self, count: int) -> None:
        """Wait until some nova-computes have registered."""
        self.wait_http('nova')
        patience.wait(
            f'{count} of nova-compute',
            lambda: (
                len(
                    self.client('admin').compute(
                        'GET', '/os-services?binary=nova-compute'
                    )['services']
                )
                >= count
            ),
        )

    def _start_compute(self, compute_host: host.Host) -> None:
        compute_host.spawn(
            'compute',
            compute_host.programs.program('python'),
            '-m',
            'nova_vhpc_lab.stack.compute',
            '--config-file',
            self.config.etc / f'{compute_host.name}.conf',
            env=processes.ENVIRONMENT,
        )

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
        compute_host.start_agent(conf)

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
            timeout=patience.PATIENCE_S,
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
            raise processes.StackError(
                f'{server} is on {actual}, not on {to.name}; nova-compute: '
                + '; '.join(errors)
            )
        # The server is active before the old host is done.
        listed = admin.compute('GET', f'/os-migrations?instance_uuid={server}')
        for migration in listed['migrations']:
            patience.wait(
                f'the old host of {server} to be free of it',
                functools.partial(_holds_nothing, admin, migration['uuid']),
            )

    def _computes(self) -> list[guard.Daemon]:
        return [
            guard.Daemon(path.stem, 0, path)
            for path in self.logs.glob('*-compute-*.log')
        ]

    def daemons(self) -> list[guard.Daemon]:
        """Return all daemons of Nova."""
        return [*self.keeper.daemons.values(), *self._computes()]


def _holds_nothing(admin: client.Client, consumer: str) -> bool:
    return not admin.allocations(consumer)
