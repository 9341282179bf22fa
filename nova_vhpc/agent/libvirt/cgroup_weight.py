# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write ``cpu_shares`` directly to the file of a domain's control group."""

import contextlib
import pathlib
from typing import Any

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.linux import cgroup

SHARES_OF_IDLE = {'cpu.shares': (3,), 'cpu.weight': (0, 1)}
"""``cpu_shares`` that libvirt may report of a group that is idle, by the name
of the weight file. ``cpu.weight`` is 0 until Linux 6.11, and 1 since 6.12
(kernel/sched/core.c: ``sched_weight_to_cgroup``)."""


def read(path: pathlib.Path) -> int:
    """Return the weight in force, as libvirt reports it.

    :raises OSError, ValueError: it cannot be read.
    """
    return int(path.read_text())


def put(path: pathlib.Path, shares: int) -> None:
    """Set the weight of a group, or make the group idle.

    While a group is idle, the kernel refuses weights with EINVAL. After that
    it has the kernel's default weight, whatever weight it had before.

    :param path: path of ``cpu.weight`` or ``cpu.shares``.
    :param shares: ``cpu_shares``, or :data:`.model.IDLE_SHARES`.
    :raises OSError: the kernel refused it.
    """
    if shares == model.IDLE_SHARES:
        path.with_name(cgroup.IDLE_FILE).write_text('1')
        return
    end_idle(path)
    path.write_text(str(shares))


def is_idle(path: pathlib.Path) -> bool:
    """Return whether a group is idle.

    Its weight does not tell: 3 may be a weight that somebody set.

    :raises OSError: it cannot be read.
    """
    with contextlib.suppress(FileNotFoundError):
        # Older kernels have no such file.
        return path.with_name(cgroup.IDLE_FILE).read_text().strip() != '0'
    return False


def end_idle(path: pathlib.Path) -> None:
    """Make a group no longer idle; it then has the kernel's default weight.

    :raises OSError: the kernel refused it.
    """
    if is_idle(path):
        path.with_name(cgroup.IDLE_FILE).write_text('0')


class WeightFile:
    """The weight file of one run of a domain.

    :param path: path of ``cpu.weight`` or ``cpu.shares``; None if the agent
        cannot write one.
    :ivar proven: libvirt has reported a value that was written to the file,
        so the file is the one that libvirt reads.
    :ivar in_force: ``cpu_shares`` that libvirt reports of the last write.
    """

    __slots__ = ('_path', 'in_force', 'proven')

    def __init__(self, path: pathlib.Path | None) -> None:
        self._path = path
        self.proven = False
        self.in_force = 0

    def write(self, domain: Any, shares: int) -> str:
        """Write the weight, or make the group idle.

        :param shares: ``cpu_shares``, or :data:`.model.IDLE_SHARES`.
        :returns: why the weight was not written, and then the file is not
            used again; empty if it was written.
        :raises libvirt.libvirtError: libvirt cannot report the weight, so
            the file could not be proven.
        """
        path = self._path
        if path is None:
            return 'it is in no control group that the agent can write'
        if self.proven:
            return self._put(path, shares)
        try:
            before = read(path)
            if is_idle(path):
                return 'its control group is idle, which the agent did not set'
        except (OSError, ValueError) as error:
            return self._give_up(path, error)
        problem = self._put(path, shares)
        is_read = False
        try:
            if not problem:
                parameters = domain.schedulerParametersFlags(cputune.LIVE)
                is_read = parameters.get(cputune.SHARES) == self.in_force
        finally:
            if not is_read:
                with contextlib.suppress(OSError):
                    put(path, before)
        if is_read:
            # A value that was in the file before proves nothing.
            self.proven = before != self.in_force
            return ''
        self._path = None
        return problem or f'{path} is not what libvirt reads'

    def _put(self, path: pathlib.Path, shares: int) -> str:
        """Write the weight; return why it was not written."""
        try:
            put(path, shares)
            self.in_force = _reported(path, shares)
        except (OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                end_idle(path)
            return self._give_up(path, error)
        return ''

    def _give_up(self, path: pathlib.Path, error: Exception) -> str:
        """Use the file no more; return why."""
        self._path = None
        self.proven = False
        reason = error.strerror if isinstance(error, OSError) else None
        return f'{path}: {reason or error}'

    def end_idle(self) -> None:
        """Make a group that the agent made idle ready for libvirt's writes.

        Never raises: what the kernel refuses, libvirt reports next.
        """
        if self._path is not None and self.proven:
            with contextlib.suppress(OSError):
                end_idle(self._path)


def _reported(path: pathlib.Path, shares: int) -> int:
    """Return what libvirt reports of a weight that was put.

    :raises OSError: it cannot be read.
    :raises ValueError: the kernel gives idle groups another weight than those
        in :data:`SHARES_OF_IDLE`.
    """
    if shares != model.IDLE_SHARES:
        return shares
    in_force = read(path)
    if in_force not in SHARES_OF_IDLE[path.name]:
        raise ValueError(f'{in_force} is no weight of an idle control group')
    return in_force
