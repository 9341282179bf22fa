# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A private RabbitMQ with its own port, node name and directory.

It runs from Debian's package ``rabbitmq-server``. A broker that already runs
on the machine is not touched, nor is that broker's name daemon (epmd).
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from nova_vhpc_lab.testbed import patience

SERVER = Path('/usr/lib/rabbitmq/bin/rabbitmq-server')
START_S = 90.0 * patience.TIMES

CTL_S = 300.0
"""Longest time that ``rabbitmqctl`` may take: a minute on a busy host."""

_NOT_STARTED = 64
"""Exit status of ``rabbitmqctl`` until the broker has started, also of wrong
arguments."""

_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
log.file.level = warning
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.relative = 0.4
load_definitions = {definitions}
"""


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _end_with_parent() -> None:
    """End this child when its parent ends; called between fork and exec.

    A test that is killed must leave no process behind.
    """
    # Not SIGKILL: the broker's script would leave its Erlang child running.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class RabbitMQError(Exception):
    """RabbitMQ is not installed or did not start."""


class PrivateRabbitMQ:
    """A broker that lives as long as the ``with`` block.

    :param parent: directory in which the broker's own directory is created;
        by default the system's directory for temporary files.
    :param virtual_hosts: names of its virtual hosts.
    :ivar port: TCP port of the broker on 127.0.0.1.
    """

    def __init__(
        self, parent: Path | None = None, virtual_hosts: Sequence[str] = ('/',)
    ) -> None:
        self._parent = parent
        self._virtual_hosts = virtual_hosts
        self._root = Path()
        self._broker: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Transport URL of the broker, for oslo.messaging."""
        return f'rabbit://guest:guest@127.0.0.1:{self.port}/'

    def __enter__(self) -> Self:
        if not SERVER.exists():
            raise RabbitMQError(
                f'{SERVER} is not there; install the package rabbitmq-server'
            )
        self._root = Path(
            tempfile.mkdtemp(prefix='vhpc-rabbit-', dir=self._parent)
        )
        try:
            self.port, self._dist_port, self._epmd_port = _free_ports(3)
            definitions = self._root / 'definitions.json'
            definitions.write_text(json.dumps(self._definitions()))
            (self._root / 'rabbitmq.conf').write_text(
                _CONFIG.format(port=self.port, definitions=definitions)
            )
            (self._root / 'enabled_plugins').write_text('[].\n')
            self._epmd = subprocess.Popen(
                ['epmd', '-port', str(self._epmd_port)],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=_end_with_parent,
            )
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker and wait until it answers.

        :raises RabbitMQError: the broker ends or does not answer within
            :data:`START_S`; the message holds the end of its output.
        """
        log = self._root / 'output'
        with log.open('ab') as output:
            self._broker = subprocess.Popen(
                [str(SERVER)],
                env=self._environment(),
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        end_s = time.monotonic() + START_S
        while not self._answers():
            if self._broker.poll() is not None or time.monotonic() > end_s:
                output_end = log.read_text(errors='replace')[-2000:]
                raise RabbitMQError(f'RabbitMQ did not start: {output_end}')
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the broker, as a crash of its host would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut the broker down in an orderly way."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Freeze the broker: connections stay open, but it does not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a frozen broker."""
        self._signal(signal.SIGCONT)

    def ctl(self, *words: str) -> str:
        """Return the output of ``rabbitmqctl``, which takes a few seconds."""
        end_s = time.monotonic() + START_S
        while True:
            done = subprocess.run(
                [str(SERVER.with_name('rabbitmqctl')), '-q', *words],
                env=self._environment(),
                cwd=self._root,
                capture_output=True,
                text=True,
                timeout=CTL_S,
            )
            # The broker answers clients a moment before it counts as started.
            if done.returncode != _NOT_STARTED or time.monotonic() > end_s:
                done.check_returncode()
                return done.stdout

    def close(self) -> None:
        """Kill the broker and its epmd, and delete their directory."""
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        if self._root != Path():
            shutil.rmtree(self._root, ignore_errors=True)

    def _definitions(self) -> dict[str, object]:
        """Return the user and what it may do, in RabbitMQ's words."""
        everything = {'configure': '.*', 'write': '.*', 'read': '.*'}
        return {
            'users': [
                {'name': 'guest', 'password': 'guest', 'tags': 'administrator'}  # nosec B105
            ],
            'vhosts': [{'name': name} for name in self._virtual_hosts],
            'permissions': [
                {'user': 'guest', 'vhost': name, **everything}
                for name in self._virtual_hosts
            ],
        }

    def _environment(self) -> dict[str, str]:
        root = str(self._root)
        return {
            'PATH': os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin'),
            'HOME': root,
            'LANG': 'C.UTF-8',
            'ERL_EPMD_PORT': str(self._epmd_port),
            'ERL_EPMD_ADDRESS': '127.0.0.1',
            'RABBITMQ_NODENAME': f'vhpc{self.port}@localhost',
            'RABBITMQ_NODE_PORT': str(self.port),
            'RABBITMQ_DIST_PORT': str(self._dist_port),
            'RABBITMQ_BASE': root,
            'RABBITMQ_HOME': '/usr/lib/rabbitmq',
            'RABBITMQ_MNESIA_BASE': f'{root}/mnesia',
            'RABBITMQ_LOG_BASE': f'{root}/log',
            'RABBITMQ_CONF_ENV_FILE': '/dev/null',
            'RABBITMQ_CONFIG_FILE': f'{root}/rabbitmq',
            'RABBITMQ_ENABLED_PLUGINS_FILE': f'{root}/enabled_plugins',
            'RABBITMQ_PID_FILE': f'{root}/pid',
            # An idle Erlang VM would otherwise spin on the measured CPUs.
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': (
                '+sbwt none +sbwtdcpu none +sbwtdio none'
            ),
        }

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(('127.0.0.1', self.port), 1) as sock,
        ):
            sock.settimeout(2)
            sock.sendall(b'AMQP\x00\x00\x09\x01')
            # An AMQP method frame begins with 1.
            return sock.recv(1) == b'\x01'
        return False

    def _signal(self, number: int) -> None:
        if self._broker is not None and self._broker.poll() is None:
            os.killpg(self._broker.pid, number)

    def _end(self, number: int) -> None:
        if self._broker is None:
            return
        self._signal(number)
        try:
            self._broker.wait(30)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._broker.wait()
        # Helpers of the Erlang VM (inet_gethost, erl_child_setup) are in the
        # same process group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._broker.pid, signal.SIGKILL)
        self._broker = None


def _free_ports(count: int) -> list[int]:
    """Return TCP ports that are free now."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(('127.0.0.1', 0))
        return [sock.getsockname()[1] for sock in socks]
