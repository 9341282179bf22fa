# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Processes of the embedded stack, and how to wait for them."""

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from nova_vhpc_lab.stack import config, environment, guard
from nova_vhpc_lab.testbed import patience

# Otherwise Nova's command line tools would monkey-patch eventlet, which its
# services do not use any more.
ENVIRONMENT = {'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true'}


class StackError(Exception):
    """A part did not start; the message has its name and end of log."""


def free_ports(count: int) -> list[int]:
    """Return TCP ports of the loopback device that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(('127.0.0.1', 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Processes:
    """Daemons that end with this process, their logs and ports.

    :param root: directory of all files.
    :param ports: TCP ports by service.
    :param tag: unique prefix of the stack's links, guests and nodes.
    """

    def __init__(self, root: Path, ports: Mapping[str, int], tag: str) -> None:
        self.root = root
        self.tag = tag
        self.ports = ports
        self.config = config.Config(root, ports, tag)
        self.logs = root / 'log'
        self._keeper: guard.Guard | None = None

    @property
    def keeper(self) -> guard.Guard:
        """Guard of all daemons; created at the first use."""
        if self._keeper is None:
            # mariadbd runs as another user and must reach its directory.
            self.root.chmod(0o755)
            self.logs.mkdir(parents=True, exist_ok=True)
            self._keeper = guard.Guard(self.logs)
        return self._keeper

    def daemon(self, name: str) -> guard.Daemon:
        """Return a daemon by its name.

        :raises KeyError: if it was never started.
        """
        return self.keeper.daemons[name]

    def spawn(
        self,
        name: str,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
    ) -> guard.Daemon:
        """Start a daemon that ends with the stack."""
        return self.keeper.start(name, argv, {**ENVIRONMENT, **(env or {})})

    def program(self, name: str) -> Path:
        """Return the path of a console script of this virtual environment."""
        return environment.HERE.program(name)

    def run_wsgi(self, name: str, **env: str) -> None:
        """Start a service of :mod:`nova_vhpc_lab.stack.wsgi`.

        :param env: further variables of its environment.
        """
        self.spawn(
            name,
            sys.executable,
            '-m',
            'nova_vhpc_lab.stack.wsgi',
            name,
            str(self.ports[name]),
            env={
                f'OS_{name.upper()}_CONFIG_DIR': str(self.config.etc / name),
                **env,
            },
        )

    def wait_port(self, port: str, daemon: str | None = None) -> None:
        """Wait until a part listens on its port.

        :param port: name of the port.
        :param daemon: name of the daemon, if it differs.
        :raises StackError: if the daemon has ended.
        :raises TooLongError: if the time is over.
        """

        def listens() -> bool:
            try:
                socket.create_connection(
                    ('127.0.0.1', self.ports[port]), 2
                ).close()
            except OSError:
                return False
            return True

        self._wait(daemon or port, listens)

    def wait_log(self, name: str, text: str) -> None:
        """Wait until a text is in a daemon's log.

        :raises StackError: if the daemon has ended.
        :raises TooLongError: if the time is over.
        """
        self._wait(name, lambda: text in self.daemon(name).tail(1000))

    def wait_http(self, name: str) -> None:
        """Wait until a service answers, with an error or not.

        :raises StackError: if the daemon has ended.
        :raises TooLongError: if the time is over.
        """

        def answers() -> bool:
            try:
                urllib.request.urlopen(self.config.url(name, '/'), timeout=30)
            except urllib.error.HTTPError:
                return True
            except OSError:
                return False
            return True

        self._wait(name, answers)

    def _wait(self, name: str, is_ready: Callable[[], bool]) -> None:
        """Wait until a daemon is ready, while it runs."""

        def ready_or_ended() -> bool:
            if is_ready():
                return True
            self._check(name)
            return False

        log = self.daemon(name).log
        patience.wait(f'{name} to be ready ({log})', ready_or_ended)

    def _check(self, name: str) -> None:
        """Raise StackError if a daemon has ended."""
        daemon = self.daemon(name)
        if not daemon.alive():
            raise StackError(
                f'{name} did not start; the end of {daemon.log}:\n'
                + daemon.tail()
            )

    def await_end(
        self, daemon: guard.Daemon, what: str, last_line: str = 'done'
    ) -> None:
        """Wait until a program has done its work.

        :param last_line: last line of its output if it succeeds.
        :raises StackError: if it fails, or a part of Nova has ended.
        """
        computes = [n for n in self.keeper.daemons if 'nova-' in n]

        def has_ended() -> bool:
            if daemon.wait(0.5):
                return True
            # Not the program itself, which may end well between two checks.
            for name in computes:
                self._check(name)
            return False

        patience.wait(f'{what} ({daemon.log})', has_ended, 600)
        if daemon.tail(1).strip() != last_line:
            raise StackError(
                f'failed: {what}; the end of {daemon.log}:\n' + daemon.tail()
            )
