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

"""One agent per host."""

import contextlib
import fcntl
import os
import pathlib

from nova_vhpc.agent import errors

MODE = 0o600
"""Whoever can open the file can lock it, and keep agents from starting and
VMs from being put back."""


class Lock:
    """A locked file; the kernel lets go of it when the process ends.

    And the journal's directory, if somebody has one: what is in ``/run`` may
    be removed under an agent that runs, as systemd does when another one that
    was started as a service has ended.

    :param run_path: ``[vhpc_agent]run_path``.
    :param journal: the directory; None for who neither writes nor reads it.
    """

    def __init__(
        self, run_path: str, journal: pathlib.Path | None = None
    ) -> None:
        self.path = pathlib.Path(run_path, 'agent.lock')
        self._journal = journal
        self._descriptors: list[int] = []

    def acquire(self) -> None:
        """Take the lock.

        :raises AgentError: another agent has it, or the directory is not
            ours to write.
        """
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            descriptor = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE
            )
            # Of an older agent it may have another one.
            os.fchmod(descriptor, MODE)
        except OSError as error:
            raise errors.AgentError(
                f'{self.path}: {error.strerror}; [vhpc_agent]run_path must '
                'be a directory that the agent may write'
            ) from None
        if not self._lock(descriptor):
            owner = os.pread(descriptor, 32, 0).decode().strip()
            os.close(descriptor)
            raise errors.AgentError(
                f'{self.path}: another nova-vhpc-agent (process {owner}) '
                'runs on this host; stop it first'
            )
        self._acquire_journal()
        # Only for the message above: a file system that is full must not keep
        # VMs from being put back.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f'{os.getpid()}\n'.encode(), 0)

    def release(self) -> None:
        """Let go. The file stays: removing it would race."""
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
            # Nobody writes to a VM without it.
            return
        if not self._lock(descriptor):
            os.close(descriptor)
            self.release()
            raise errors.AgentError(
                f'{self._journal}: another nova-vhpc-agent runs on this '
                f'host, though not by {self.path}; stop it first'
            )

    def _lock(self, descriptor: int) -> bool:
        """Whether nobody else has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._descriptors.append(descriptor)
        return True
