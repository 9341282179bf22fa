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


"""The embedded OpenStack: real services as real processes, on one machine.

RabbitMQ, MariaDB, placement, nova-api, nova-conductor, nova-scheduler and
nova-compute are the released ones; identity, image and network are small
stand-ins. Everything lives below one directory and on free ports, so
several stacks run side by side, and ends with the owner.
"""

import concurrent.futures
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from nova_vhpc.testbed import libvirtd
from nova_vhpc.tests.stack import client, config, guard

# Nova's command line tools would patch eventlet in, and its services have
# left it.
ENVIRONMENT = {'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'}

_PORTS = ('standins', 'placement', 'nova', 'db', 'rabbit', 'epmd', 'dist')

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
"""What doc/source/install asks an operator to write into nova.conf."""


class StackError(Exception):
    """A part does not come up: names it, and shows the end of its log."""


def free_ports(count: int) -> list[int]:
    """TCP ports on the loopback that nothing listens on just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(('127.0.0.1', 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Cloud:
    """One embedded OpenStack, as a context manager.

    :param fake_hosts: names of further compute nodes, of Nova's fake
        driver, that can take servers but run no guests.
    :param say: called with a line for people when something is reached.
    """

    def __init__(
        self,
        fake_hosts: tuple[str, ...] = (),
        say: Callable[[str], None] = lambda text: None,
        root: Path | None = None,
    ) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix='vhpc-'))
        self.tag = f'v{secrets.token_hex(2)}'
        self.fake_hosts = fake_hosts
        self.say = say
        self.ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self.config = config.Config(self.root, self.ports, self.tag)
        self.logs = self.root / 'log'
        self.libvirt = libvirtd.PrivateLibvirtd(self.root / 'lv')
        self._keeper: guard.Guard | None = None

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
        """Everything, in parallel where one does not need the other.

        :raises StackError: naming the part, with the end of its log.
        """
        self.write_config()
        # Made here, before threads need it.
        self._keeper = self.keeper
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            libvirt = pool.submit(self.libvirt.start)
            rabbit = pool.submit(self._start_rabbitmq)
            standins = pool.submit(self._start_standins)
            database = pool.submit(self._start_database)
            for future in (database, standins):
                future.result()
            self._run_wsgi('placement', 'OS_PLACEMENT_CONFIG_DIR')
            schema = self.spawn(
                'schema',
                *self._manage('make'),
                self.config.database('nova_cell0'),
            )
            for future in (rabbit, libvirt):
                future.result()
            self.say('database, message bus, libvirt: up')
            self._await_end(schema, 'the database schemas')
            self.say('database schemas: made')
            self._start_nova()
            self.wait_http('placement')
            self.wait_http('nova')
        self.say('nova-api and placement: answer')
        self._await_end(self.daemon('discover'), 'the compute nodes')
        self.say('compute nodes: registered and mapped')

    def stop(self) -> None:
        """End everything and remove the directory, logs and all."""
        self.halt()
        shutil.rmtree(self.root, ignore_errors=True)

    def halt(self) -> None:
        """End everything; keep the directory, for its logs. Idempotent."""
        if self._keeper is not None:
            self._keeper.close()
        self.libvirt.stop()

    def client(self, user: str) -> client.Client:
        """A REST client with the rights of ``admin`` or ``tenant``."""
        return client.Client(self.config.credentials(user))

    @property
    def keeper(self) -> guard.Guard:
        """What ends all daemons; with the directory for their logs."""
        if self._keeper is None:
            # mariadbd runs as a user of its own and must get through.
            self.root.chmod(0o755)
            self.logs.mkdir(parents=True, exist_ok=True)
            self._keeper = guard.Guard(self.logs)
        return self._keeper

    def daemon(self, name: str) -> guard.Daemon:
        return self.keeper.daemons[name]

    def spawn(
        self,
        name: str,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
    ) -> guard.Daemon:
        """Start one more process that ends with the stack."""
        return self.keeper.start(name, argv, {**ENVIRONMENT, **(env or {})})

    def program(self, name: str) -> Path:
        """A console script of this virtual environment."""
        return Path(sys.executable).with_name(name)

    def write_config(self) -> None:
        """All configuration files, for these ports."""
        self.config.write_standins()
        self.config.write_placement()
        self.config.write_nova(SCHEDULER)
        self.write_computes()

    def write_computes(self) -> None:
        """nova.conf of each compute node."""
        self.config.write_compute(
            'compute', config.libvirt_compute(self.libvirt.uri)
        )
        for host in self.fake_hosts:
            self.config.write_compute(host, config.fake_compute(host))

    def start_computes(self) -> int:
        """Start nova-compute on each.

        :returns: how many there are.
        """
        names = ('compute', *self.fake_hosts)
        for name in names:
            self.spawn(
                f'nova-compute-{name}',
                self.program('nova-compute'),
                '--config-file',
                self.config.etc / f'{name}.conf',
            )
        return len(names)

    def add_image(self, name: str, path: Path, **properties: Any) -> str:
        """Put an image into the image stand-in.

        :returns: its id.
        """
        where = self.root / 'standins' / 'images.json'
        images = json.loads(where.read_text())
        key = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
        images[key] = {'name': name, 'path': str(path), **properties}
        fresh = where.with_suffix('.new')
        fresh.write_text(json.dumps(images))
        fresh.replace(where)
        return key

    def _manage(self, what: str) -> tuple[str | Path, ...]:
        conf = self.config.etc / 'nova' / 'nova.conf'
        return (
            sys.executable,
            '-m',
            'nova_vhpc.tests.stack.manage',
            what,
            conf,
        )

    def _start_nova(self) -> None:
        conf = self.config.etc / 'nova' / 'nova.conf'
        self._run_wsgi('nova', 'OS_NOVA_CONFIG_DIR')
        for name in ('nova-conductor', 'nova-scheduler'):
            self.spawn(name, self.program(name), '--config-file', conf)
        # A compute node that asks before the conductor listens waits for
        # ten seconds.
        self.wait_log('nova-conductor', 'Starting conductor node')
        count = self.start_computes()
        self.spawn('discover', *self._manage('discover'), str(count))

    def _run_wsgi(self, name: str, variable: str) -> None:
        self.spawn(
            name,
            sys.executable,
            '-m',
            'nova_vhpc.tests.stack.wsgi',
            name,
            str(self.ports[name]),
            env={variable: str(self.config.etc / name)},
        )

    def _start_standins(self) -> None:
        self.spawn(
            'standins',
            sys.executable,
            '-m',
            'nova_vhpc.tests.stack.standins',
            self.root / 'standins',
            str(self.ports['standins']),
        )
        self.wait_port('standins')

    def _start_database(self) -> None:
        data = self.root / 'db'
        data.mkdir()
        shutil.chown(data, 'mysql')
        made = subprocess.run(
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
        if made.returncode:
            raise StackError(f'mariadb-install-db: {made.stdout[-2000:]}')
        first = self.root / 'db.sql'
        first.write_text(
            ''.join(
                f'CREATE DATABASE {name};\n'
                for name in ('nova', 'nova_api', 'nova_cell0', 'placement')
            )
            + "CREATE USER 'vhpc'@'%' IDENTIFIED BY 'vhpc';\n"
            + "GRANT ALL ON *.* TO 'vhpc'@'%';\n"
        )
        # mariadbd reads it as a user of its own, whatever our umask.
        first.chmod(0o644)
        self.spawn(
            'db',
            'mariadbd',
            '--no-defaults',
            '--user=mysql',
            f'--datadir={data}',
            f'--socket={data}/socket',
            f'--port={self.ports["db"]}',
            '--bind-address=127.0.0.1',
            f'--init-file={first}',
            # Throw-away data: nothing of it must reach the disk.
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
        where = self.root / 'rabbit'
        where.mkdir()
        (where / 'rabbitmq.conf').write_text('log.file.level = warning\n')
        (where / 'plugins').write_text('[].\n')
        # A port mapper of our own: the machine's would stay behind, and
        # would know the names of our nodes.
        epmd = str(self.ports['epmd'])
        self.spawn('epmd', 'epmd', '-address', '127.0.0.1', '-port', epmd)
        self.wait_port('epmd')
        self.spawn(
            'rabbitmq',
            '/usr/lib/rabbitmq/bin/rabbitmq-server',
            env={
                'HOME': str(where),
                'ERL_EPMD_PORT': epmd,
                'ERL_EPMD_ADDRESS': '127.0.0.1',
                'RABBITMQ_NODENAME': f'{self.tag}@localhost',
                'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1',
                'RABBITMQ_NODE_PORT': str(self.ports['rabbit']),
                'RABBITMQ_DIST_PORT': str(self.ports['dist']),
                'RABBITMQ_CONF_ENV_FILE': '/dev/null',
                'RABBITMQ_CONFIG_FILE': str(where / 'rabbitmq.conf'),
                'RABBITMQ_ENABLED_PLUGINS_FILE': str(where / 'plugins'),
                'RABBITMQ_MNESIA_BASE': str(where / 'mnesia'),
                'RABBITMQ_LOG_BASE': str(where / 'log'),
                'RABBITMQ_PID_FILE': str(where / 'pid'),
                'RABBITMQ_GENERATED_CONFIG_DIR': str(where / 'config'),
                # One scheduler thread that sleeps when idle: there are
                # guests to be measured beside it.
                'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': (
                    '+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none'
                ),
            },
        )
        self.wait_port('rabbit', 'rabbitmq', 90)

    def wait_port(
        self, port: str, daemon: str | None = None, timeout_s: float = 240
    ) -> None:
        """Until a part listens.

        :raises StackError: it ended, or the time is up.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                socket.create_connection(
                    ('127.0.0.1', self.ports[port]), 2
                ).close()
                return
            except OSError:
                self._check(daemon or port, deadline)
            time.sleep(0.1)

    def wait_log(self, name: str, text: str, timeout_s: float = 240) -> None:
        """Until a daemon has logged something."""
        deadline = time.monotonic() + timeout_s
        while text not in self.daemon(name).tail(1000):
            self._check(name, deadline)
            time.sleep(0.1)

    def wait_http(self, name: str, timeout_s: float = 240) -> None:
        """Until a service answers anything at its root."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                urllib.request.urlopen(self.config.url(name, '/'), timeout=30)
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                self._check(name, deadline)
            time.sleep(0.2)

    def _check(self, name: str, deadline: float) -> None:
        daemon = self.daemon(name)
        if not daemon.alive() or time.monotonic() > deadline:
            raise StackError(
                f'{name} does not come up; the end of {daemon.log}:\n'
                + daemon.tail()
            )

    def _await_end(self, daemon: guard.Daemon, what: str) -> None:
        deadline = time.monotonic() + 150
        computes = [n for n in self.keeper.daemons if 'nova-' in n]
        while not daemon.wait(0.5):
            for name in (daemon.name, *computes):
                self._check(name, deadline)
        if daemon.tail(1) != 'done':
            raise StackError(
                f'{what} could not be made; the end of {daemon.log}:\n'
                + daemon.tail()
            )
