# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The embedded OpenStack: services of one cloud as processes of one machine.

RabbitMQ, MariaDB, Keystone, Placement, Glance, nova-api, nova-conductor,
nova-scheduler and nova-compute are the released programs. All files are in one
directory and all ports are free ones, so several stacks run side by side. All
processes end with the process that started the stack.
"""

import concurrent.futures
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

from nova_vhpc_lab.stack import client, config, guard, processes
from nova_vhpc_lab.stack.processes import StackError, free_ports
from nova_vhpc_lab.testbed import guest, image

_PORTS = (
    'keystone',
    'placement',
    'glance',
    'neutron',
    'nova',
    'db',
    'rabbit',
    'epmd',
    'dist',
)

_DATABASES = (
    'keystone',
    'placement',
    'glance',
    'neutron',
    'nova',
    'nova_api',
    'nova_cell0',
)

SCHEDULER: config.Sections = {
    'filter_scheduler': {
        'available_filters': [
            'nova.scheduler.filters.all_filters',
            'nova_vhpc.scheduler.filters.VirtualClusterFilter',
        ],
        'enabled_filters': config.FILTERS,
        'weight_classes': (
            'nova.scheduler.weights.all_weighers,'
            'nova_vhpc.scheduler.weights.VirtualClusterWeigher'
        ),
    },
    'DEFAULT': {
        'logging_debug_format_suffix': '',
        'default_log_levels': (
            'amqp=WARN,sqlalchemy=WARN,oslo.messaging=INFO,'
            'keystoneauth=WARN,stevedore=WARN,nova_vhpc=DEBUG'
        ),
    },
}
"""Options of nova.conf that doc/source/install asks an operator to set."""


class Cloud(processes.Processes):
    """An embedded OpenStack, which runs during a ``with`` block.

    :param fake_hosts: names of further compute nodes with Nova's fake driver,
        which accept servers but run no guests.
    :param say: called with a line of text when a step of the start is done.
    :param root: directory of all files; a new temporary one by default.
    :ivar tag: unique prefix of the stack's links, guests and nodes.
    """

    def __init__(
        self,
        fake_hosts: tuple[str, ...] = (),
        say: Callable[[str], None] = lambda text: None,
        root: Path | None = None,
    ) -> None:
        super().__init__(
            root or Path(tempfile.mkdtemp(prefix='vhpc-')),
            dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)),
            f'v{secrets.token_hex(2)}',
        )
        self.fake_hosts = fake_hosts
        self.say = say
        self._clients: dict[str, client.Client] = {}
        self._images: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all parts; those that are independent start in parallel.

        :raises StackError: if a part does not start.
        """
        self.write_config()
        # Made before the threads, which would each make one.
        self._keeper = self.keeper
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            hosts = pool.submit(self.start_hosts)
            rabbit = pool.submit(self._start_rabbitmq)
            self._start_database()
            keystone = self._start_keystone()
            schema = self.spawn(
                'schema',
                *self._manage('make'),
                self.config.database('nova_cell0'),
            )
            self.run_wsgi('placement')
            glance = pool.submit(self._start_glance)
            network = pool.submit(self.start_network, hosts)
            for future in (rabbit, hosts):
                future.result()
            self.say('database, message bus, hosts: up')
            self.await_end(schema, 'the database schemas')
            self.await_end(keystone, 'the users')
            self.wait_http('keystone')
            self.say('database schemas, users, service catalog: created')
            self._start_nova()
            for name in ('placement', 'nova'):
                self.wait_http(name)
            for future in (glance, network):
                future.result()
        self.say('all services: answer')
        self.await_end(self.daemon('discover'), 'the compute nodes')
        self.say('compute nodes: registered and mapped')

    def stop(self) -> None:
        """End all processes and remove the directory with the logs."""
        self.halt()
        shutil.rmtree(self.root, ignore_errors=True)

    def halt(self) -> None:
        """End all processes, keep the logs; may be called again."""
        self.stop_hosts()
        if self._keeper is not None:
            self._keeper.close()

    def client(self, user: str) -> client.Client:
        """Return the REST client of a user, like ``admin`` or ``tenant``."""
        if user not in self._clients:
            self._clients[user] = client.Client(self.config.credentials(user))
        return self._clients[user]

    def write_config(self) -> None:
        """Write all configuration files."""
        self.config.write_keystone()
        self.config.write_placement()
        self.config.write_glance()
        self.config.write_nova(SCHEDULER)
        self.write_computes()

    def write_computes(self) -> None:
        """Write the nova.conf of each compute node."""
        for host in self.fake_hosts:
            self.config.write_compute(host, config.fake_compute(host))

    def start_hosts(self) -> None:
        """Start the hosts of real guests, without nova-compute: none here."""

    def stop_hosts(self) -> None:
        """End all that :meth:`start_hosts` started; may be called again."""

    def start_network(self, hosts: concurrent.futures.Future[None]) -> None:
        """Start the network service that real guests need: none here.

        :param hosts: done when :meth:`start_hosts` is.
        """

    def start_computes(self) -> int:
        """Start nova-compute on each compute node.

        :returns: number of compute nodes.
        """
        for name in self.fake_hosts:
            self.spawn(
                f'nova-compute-{name}',
                self.program('nova-compute'),
                '--config-file',
                self.config.etc / f'{name}.conf',
            )
        return len(self.fake_hosts)

    def add_image(
        self, name: str, path: Path, kind: str = 'bare', **properties: str
    ) -> str:
        """Upload an image to Glance, unless one with this name was.

        :param path: file with the content.
        :param kind: ``bare`` for a raw disk, ``aki`` for a kernel, ``ari``
            for an initramfs.
        :param properties: further properties of the image.
        :returns: the image's ID.
        """
        if name not in self._images:
            self._images[name] = self.client('admin').add_image(
                name, path, kind, **properties
            )
        return self._images[name]

    def add_guest_image(self, workload: str) -> str:
        """Add an image that boots into a workload of the testbed.

        It is a blank disk with the testbed's kernel and initramfs. The guest
        gets its address by DHCP, and runs what is typed on its console.

        :returns: the image's ID.
        """
        built = image.build_image()
        blank = self.root / 'blank.raw'
        with blank.open('wb') as disk:
            disk.truncate(1 << 20)
        return self.add_image(
            workload,
            blank,
            kernel_id=self.add_image('kernel', built.kernel, 'aki'),
            ramdisk_id=self.add_image('ramdisk', built.initrd, 'ari'),
            os_command_line=guest.kernel_cmdline(
                workload, workload, {'net': 'dhcp', 'shell': 'console'}
            ),
        )

    def _manage(self, what: str) -> tuple[str | Path, ...]:
        conf = self.config.etc / 'nova' / 'nova.conf'
        return (
            sys.executable,
            '-m',
            'nova_vhpc_lab.stack.manage',
            what,
            conf,
        )

    def _start_nova(self) -> None:
        conf = self.config.etc / 'nova' / 'nova.conf'
        self.run_wsgi('nova')
        for name in ('nova-conductor', 'nova-scheduler'):
            self.spawn(name, self.program(name), '--config-file', conf)
        # A nova-compute that starts before the conductor listens waits for
        # 10 seconds.
        self.wait_log('nova-conductor', 'Starting conductor node')
        count = self.start_computes()
        self.spawn('discover', *self._manage('discover'), str(count))

    def _start_keystone(self) -> guard.Daemon:
        """Start Keystone.

        :returns: the process that creates schema, users and catalog.
        """
        folder = self.config.etc / 'keystone'
        setup = self.spawn(
            'identity',
            sys.executable,
            '-m',
            'nova_vhpc_lab.stack.identity',
            folder / 'keystone.conf',
            folder / 'endpoints.json',
        )
        self.run_wsgi('keystone')
        return setup

    def _start_glance(self) -> None:
        folder = self.config.etc / 'glance'
        schema = self.spawn(
            'glance-schema',
            self.program('glance-manage'),
            '--config-file',
            folder / 'glance-api.conf',
            'db_sync',
        )
        self.await_end(
            schema, "Glance's schema", 'Database is synced successfully.'
        )
        self.run_wsgi('glance')
        self.wait_http('glance')

    def _start_database(self) -> None:
        data, temporary = self.root / 'db', self.root / 'db-tmp'
        for folder in (data, temporary):
            folder.mkdir()
            shutil.chown(folder, 'mysql')
        result = subprocess.run(
            (
                'mariadb-install-db',
                '--no-defaults',
                '--user=mysql',
                f'--datadir={data}',
                '--auth-root-authentication-method=normal',
                '--skip-test-db',
            ),
            capture_output=True,
            text=True,
        )
        if result.returncode:
            raise StackError(f'mariadb-install-db: {result.stdout[-2000:]}')
        statements = self.root / 'db.sql'
        statements.write_text(
            ''.join(f'CREATE DATABASE {name};\n' for name in _DATABASES)
            + "CREATE USER 'vhpc'@'%' IDENTIFIED BY 'vhpc';\n"
            + "GRANT ALL ON *.* TO 'vhpc'@'%';\n"
        )
        # mariadbd reads it as another user, whatever this umask is.
        statements.chmod(0o644)
        self.spawn(
            'db',
            'mariadbd',
            '--no-defaults',
            '--user=mysql',
            f'--datadir={data}',
            # At its start a server removes all temporary tables of this
            # folder, those of another server that runs included, which then
            # fails or even crashes (MariaDB 10.11, seen in /tmp).
            f'--tmpdir={temporary}',
            f'--socket={data}/socket',
            f'--port={self.ports["db"]}',
            '--bind-address=127.0.0.1',
            f'--init-file={statements}',
            # The data is thrown away and need not survive a crash.
            '--innodb-flush-log-at-trx-commit=0',
            '--innodb-flush-method=nosync',
            '--innodb-doublewrite=0',
            '--skip-log-bin',
            '--skip-name-resolve',
            '--performance-schema=0',
            '--max-connections=300',
        )
        self.wait_port('db')

    def _start_rabbitmq(self) -> None:
        root = self.root / 'rabbit'
        root.mkdir()
        (root / 'rabbitmq.conf').write_text('log.file.level = warning\n')
        (root / 'plugins').write_text('[].\n')
        # A separate epmd: the machine's own would keep running after the
        # stack and know its nodes.
        epmd = str(self.ports['epmd'])
        self.spawn('epmd', 'epmd', '-address', '127.0.0.1', '-port', epmd)
        self.wait_port('epmd')
        self.spawn(
            'rabbitmq',
            '/usr/lib/rabbitmq/bin/rabbitmq-server',
            env={
                'HOME': str(root),
                'ERL_EPMD_PORT': epmd,
                'ERL_EPMD_ADDRESS': '127.0.0.1',
                'RABBITMQ_NODENAME': f'{self.tag}@localhost',
                'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1',
                'RABBITMQ_NODE_PORT': str(self.ports['rabbit']),
                'RABBITMQ_DIST_PORT': str(self.ports['dist']),
                'RABBITMQ_CONF_ENV_FILE': '/dev/null',
                'RABBITMQ_CONFIG_FILE': str(root / 'rabbitmq.conf'),
                'RABBITMQ_ENABLED_PLUGINS_FILE': str(root / 'plugins'),
                'RABBITMQ_MNESIA_BASE': str(root / 'mnesia'),
                'RABBITMQ_LOG_BASE': str(root / 'log'),
                'RABBITMQ_PID_FILE': str(root / 'pid'),
                'RABBITMQ_GENERATED_CONFIG_DIR': str(root / 'config'),
                # One scheduler thread that sleeps when idle, so that the
                # broker hardly disturbs guests that are measured.
                'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': (
                    '+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none'
                ),
            },
        )
        self.wait_port('rabbit', 'rabbitmq')
