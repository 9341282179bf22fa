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

"""Write ``cpu_shares`` directly to the file of a domain's control group."""

import contextlib
import pathlib
from typing import Any

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.linux import cgroup

SHARES_OF_IDLE = {'cpu.shares': 3, 'cpu.weight': 0}
"""``cpu_shares`` that libvirt reports of a group that is idle, by the name of
the weight file (kernel/sched/core.c: ``sched_group_set_idle``)."""


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
    """

    __slots__ = ('_path', 'proven')

    def __init__(self, path: pathlib.Path | None) -> None:
        self._path = path
        self.proven = False

    def write(self, domain: Any, shares: int) -> str:
        """Write the weight, or make the group idle.

        :param shares: ``cpu_shares``, or :data:`.model.IDLE_SHARES`.
        :returns: why the weight was not written, and then the file is not
            used again; empty if it was written.
        :raises libvirt.libvirtError: libvirt cannot report the weight, so
            the file could not be proven.
        """
        if self._path is None:
            return 'it is in no control group that the agent can write'
        try:
            if self.proven:
                put(self._path, shares)
                return ''
            before = read(self._path)
            if is_idle(self._path):
                return 'its control group is idle, which the agent did not set'
            put(self._path, shares)
        except (OSError, ValueError) as error:
            path, self._path = self._path, None
            self.proven = False
            reason = error.strerror if isinstance(error, OSError) else None
            return f'{path}: {reason or error}'
        written = reported(self._path, shares)
        is_read = False
        try:
            parameters = domain.schedulerParametersFlags(cputune.LIVE)
            is_read = parameters.get(cputune.SHARES) == written
        finally:
            if not is_read:
                with contextlib.suppress(OSError):
                    put(self._path, before)
        if is_read:
            # A value that was in the file before proves nothing.
            self.proven = before != written
            return ''
        path, self._path = self._path, None
        return f'{path} is not what libvirt reads'

    def end_idle(self) -> None:
        """Make a group that the agent made idle ready for libvirt's writes.

        Never raises: what the kernel refuses, libvirt reports next.
        """
        if self._path is not None and self.proven:
            with contextlib.suppress(OSError):
                end_idle(self._path)


def reported(path: pathlib.Path, shares: int) -> int:
    """Return what libvirt reports of a weight that was put."""
    if shares == model.IDLE_SHARES:
        return SHARES_OF_IDLE[path.name]
    return shares
