# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Commands to this host's ovs-vswitchd, as ``ovs-appctl`` sends them."""

import errno
import os
import pathlib
import time
from typing import NamedTuple

from ovs import jsonrpc, poller, stream

from nova_vhpc.agent import errors

RUN_DIR = pathlib.Path('/run/openvswitch')
"""Directory of the control socket, unless the database is elsewhere."""

_NAME = 'ovs-vswitchd'


class VswitchdError(Exception):
    """ovs-vswitchd is away, does not answer, or refuses a command."""


class Refused(VswitchdError):
    """ovs-vswitchd answers that it cannot do what a command asks."""


class Identity(NamedTuple):
    """One run of ovs-vswitchd: each makes the socket anew.

    The process ID would not do: in a container, each run may have the same.
    """

    inode: int
    created_ns: int


class Vswitchd:
    """The control socket of ovs-vswitchd.

    Connecting to it takes write permission: that of ovs-vswitchd's user, or
    of root with CAP_DAC_OVERRIDE. Its group has it under some umasks only.

    :param run_dir: directory of ``ovs-vswitchd.pid`` and of the socket.
    :param timeout_s: longest time that a command takes, in seconds.
    """

    def __init__(self, run_dir: pathlib.Path, timeout_s: float = 1.0) -> None:
        self._run_dir = run_dir
        self._timeout_s = timeout_s

    def identity(self) -> Identity | None:
        """Return which run the socket belongs to; None if there is none."""
        try:
            status = self._socket().stat()
        except OSError:
            return None
        return Identity(status.st_ino, status.st_mtime_ns)

    def call(self, *words: str) -> str:
        """Send a command, and return its output.

        Each command has a connection of its own, so that none is left to an
        earlier run.

        :param words: name of the command, and its arguments.
        :raises Refused: the command failed.
        :raises VswitchdError: there is no answer.
        """
        socket = self._socket()
        deadline_ms = time.monotonic() * 1000 + self._timeout_s * 1000
        error, opened = stream.Stream.open_block(
            stream.Stream.open(f'unix:{socket}'),
            int(self._timeout_s * 1000),
        )
        if error:
            raise VswitchdError(_reason(socket, error))
        connection = jsonrpc.Connection(opened)
        try:
            return self._answer(connection, socket, words, deadline_ms)
        finally:
            connection.close()

    def _answer(
        self,
        connection: jsonrpc.Connection,
        socket: pathlib.Path,
        words: tuple[str, ...],
        deadline_ms: float,
    ) -> str:
        """Send a command, and wait for its answer.

        The library's own client would wait for ever.
        """
        request = jsonrpc.Message.create_request(words[0], list(words[1:]))
        error = connection.send(request)
        while not error:
            error, message = connection.recv()
            if message is not None and message.id == request.id:
                if message.error is not None:
                    raise Refused(str(message.error).strip())
                return str(message.result)
            if error == errno.EAGAIN:
                remaining_ms = deadline_ms - time.monotonic() * 1000
                if remaining_ms <= 0:
                    error = errno.ETIMEDOUT
                    break
                connection.run()
                wait = poller.Poller()
                connection.wait(wait)
                connection.recv_wait(wait)
                wait.timer_wait(int(remaining_ms) + 1)
                wait.block()
                error = connection.get_status()
        raise VswitchdError(_reason(socket, error))

    def _socket(self) -> pathlib.Path:
        """Return the path of the socket.

        It has the process ID in its name, unless ovs-vswitchd was started
        with ``--unixctl``.
        """
        try:
            pid = int((self._run_dir / f'{_NAME}.pid').read_text())
        except (OSError, ValueError):
            pid = 0
        with_pid = self._run_dir / f'{_NAME}.{pid}.ctl'
        if os.path.exists(with_pid):
            return with_pid
        return self._run_dir / f'{_NAME}.ctl'


def _reason(socket: pathlib.Path, error: int) -> str:
    """Return why there is no answer, in one sentence.

    :param error: negative at the end of the connection; else an errno.
    """
    if error in (errno.ENOENT, errno.ECONNREFUSED):
        return f'ovs-vswitchd is not running (no answer at {socket})'
    if error == errno.EACCES:
        return (
            f'the agent may not open {socket}, which belongs to a user of '
            'Open vSwitch; give its unit CapabilityBoundingSet='
            'CAP_DAC_OVERRIDE'
        )
    text = os.strerror(error) if error > 0 else 'connection closed'
    return f'ovs-vswitchd at {socket}: {text}'


def run_dir(option: str, ovsdb_connection: str) -> pathlib.Path:
    """Return the directory of ovs-vswitchd's control socket.

    :param option: ``[vhpc_agent] ovs_run_dir``; may be empty.
    :param ovsdb_connection: ``[vhpc_topology] ovsdb_connection``.
    :raises ConfigError: the option is no absolute path.
    """
    scheme, _, path = ovsdb_connection.partition(':')
    if option and not os.path.isabs(option):
        raise errors.ConfigError(
            f"[vhpc_agent] ovs_run_dir: '{option}' is no absolute path, such "
            f'as {RUN_DIR}'
        )
    if option:
        return pathlib.Path(option)
    return pathlib.Path(path).parent if scheme == 'unix' else RUN_DIR
