# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ensure that only one agent runs per host."""

import contextlib
import fcntl
import logging
import os
import pathlib
import urllib.parse

from nova_vhpc.agent import errors
from nova_vhpc.linux import private_path

LOG = logging.getLogger(__name__)

MODE = 0o600
"""A user who can open the file could lock it, and so keep agents from starting
and guests from being restored."""


class Lock:
    """A locked file; the kernel releases the lock when the process ends.

    The journal's directory is locked, too: files in ``/run`` may be removed
    while an agent runs. systemd does so when another agent, started as a
    service, has ended.

    :param run_path: ``[vhpc_agent]run_path``.
    :param journal: the journal's directory; None if it is not used.
    :param libvirt_uri: URI of libvirt, whose domains no two agents may write
        to; None if nothing is written.
    """

    def __init__(
        self,
        run_path: str,
        journal: pathlib.Path | None = None,
        libvirt_uri: str | None = None,
    ) -> None:
        self.path = pathlib.Path(run_path, 'agent.lock')
        self._journal = journal
        self._libvirt = libvirt_directory(libvirt_uri or '')
        self._descriptors: list[int] = []

    def acquire(self) -> None:
        """Take the lock.

        :raises AgentError: another agent holds it, or the directory cannot
            be written, or can be written by other users.
        """
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            problem = private_path.problem(self.path.parent)
            if problem:
                raise errors.AgentError(f'[vhpc_agent]run_path: {problem}')
            descriptor = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE
            )
        except OSError as error:
            raise errors.AgentError(
                f'{self.path}: {error.strerror}; [vhpc_agent]run_path must '
                'be a directory that the agent may write'
            ) from None
        owner = os.pread(descriptor, 32, 0).decode(errors='replace').strip()
        self._lock(
            descriptor,
            f'{self.path}: another nova-vhpc-agent (process {owner}) runs on '
            'this host; stop it first',
        )
        self._acquire_journal()
        self._acquire_libvirt()
        # Only for the message above: a full file system must not prevent the
        # restore of guests.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f'{os.getpid()}\n'.encode(), 0)

    def release(self) -> None:
        """Release the lock. The file stays.

        If it were removed, an agent that has just opened it and one that
        creates it again would lock different files.
        """
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def _acquire_journal(self) -> None:
        if self._journal is None:
            return
        try:
            descriptor = os.open(
                self._journal, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
        except OSError:
            # Without the directory no agent writes to a guest.
            return
        self._lock(
            descriptor,
            f'{self._journal}: another nova-vhpc-agent runs on this host, '
            f'though not by {self.path}; stop it first',
        )

    def _acquire_libvirt(self) -> None:
        """Lock a file beside libvirt's socket.

        A package and a container have paths of their own, but they share this
        directory.
        """
        directory = self._libvirt
        if directory is None or private_path.problem(directory):
            return
        path = directory / 'nova-vhpc-agent.lock'
        try:
            descriptor = os.open(
                path,
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                MODE,
            )
        except OSError as error:
            # There is no such directory, or it is not ours to write.
            LOG.debug('Not looking for agents with other paths: %s', error)
            return
        self._lock(
            descriptor,
            f'{path}: another nova-vhpc-agent, with another '
            '[vhpc_agent]run_path and state_path, uses the same libvirt; '
            'stop it first',
        )

    def _lock(self, descriptor: int, refusal: str) -> None:
        """Lock an open file, or release all that was locked.

        :param refusal: message if another process holds the lock.
        :raises AgentError: another process holds it.
        """
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise errors.AgentError(refusal) from None


def libvirt_directory(uri: str) -> pathlib.Path | None:
    """Return the directory of libvirt's socket; None if it is not local."""
    parts = urllib.parse.urlsplit(uri)
    if parts.netloc or not parts.scheme.startswith('qemu'):
        return None
    socket = urllib.parse.parse_qs(parts.query).get('socket')
    if socket:
        return pathlib.Path(socket[0]).parent
    return pathlib.Path('/run/libvirt') if parts.path == '/system' else None
