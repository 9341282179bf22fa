# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find a domain's QEMU process, its threads and its control groups."""

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nova_vhpc.linux import cgroup, cpus, guest_group

VCPU_COMM = re.compile(r'^CPU (\d+)/(?:KVM|TCG|HVF|\w+)')
"""QEMU's thread names, set by libvirt's ``debug-threads=on``."""

THREAD_GROUP = re.compile(r'/(emulator|vcpu\d+)$')
"""Suffix of the groups that libvirt makes for a domain's threads."""

WEIGHT_FILES = ('cpu.weight', 'cpu.shares')
"""Weight files of cgroup v2 and v1; libvirt calls both ``cpu_shares``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """One run of a domain; another run has another identity.

    :ivar boot_id: ID of the host's boot.
    :ivar pid: process ID of QEMU; 0 if it was not found.
    :ivar start_ticks: start time of QEMU since boot, in clock ticks.
    :ivar domain_id: libvirt's domain ID of the run.
    """

    boot_id: str
    pid: int
    start_ticks: int
    domain_id: int

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> 'Identity':
        """Return the identity that ``dataclasses.asdict`` gave as JSON.

        :raises KeyError, TypeError, ValueError, OverflowError: the data is
            no identity.
        """
        return cls(
            str(data['boot_id']),
            int(data['pid']),
            int(data['start_ticks']),
            int(data['domain_id']),
        )

    def same_run(self, other: 'Identity') -> bool:
        """Return whether both are the same QEMU process of the same boot."""
        if self.boot_id != other.boot_id:
            return False
        if self.pid and other.pid:
            return (self.pid, self.start_ticks) == (
                other.pid,
                other.start_ticks,
            )
        return self.domain_id == other.domain_id


class _Qemu(NamedTuple):
    """A QEMU process of libvirt.

    :ivar start_ticks: as of :class:`Identity`.
    :ivar domain_id: libvirt's ID of the domain, as its control group says.
    """

    start_ticks: int
    pid: int
    domain_id: int


class Processes:
    """Reads QEMU processes below a ``/proc``.

    :param proc_root: mount point of proc.
    :param cgroup_root: mount point of the cgroup file systems.
    """

    def __init__(
        self, proc_root: str = '/proc', cgroup_root: str = '/sys/fs/cgroup'
    ) -> None:
        self.proc = pathlib.Path(proc_root)
        self.cgroup = pathlib.Path(cgroup_root)
        self._qemus: dict[str, list[_Qemu]] = {}

    def boot_id(self) -> str:
        """Return the ID of the host's boot; it changes with every boot."""
        try:
            path = self.proc / 'sys/kernel/random/boot_id'
            return path.read_text(errors='replace').strip()
        except OSError:
            return ''

    def identity(self, uuid: str, domain_id: int) -> Identity:
        """Return the identity of a domain's present run."""
        pid = self.find(uuid, domain_id)
        return Identity(
            self.boot_id(), pid, self.start_ticks(pid) if pid else 0, domain_id
        )

    def find(self, uuid: str, domain_id: int | None = None) -> int:
        """Return the process ID of a domain's QEMU; 0 if there is none.

        libvirt does not report process IDs. Every emulator is started with
        ``-uuid``, whatever its name is; that it is libvirt's, its control
        group says, see :mod:`.guest_group`.

        :param domain_id: libvirt's ID of the domain's run; None if libvirt
            does not know the domain.
        """
        pid = self._known(uuid, domain_id)
        if not pid:
            self._qemus = self._scan()
            pid = self._known(uuid, domain_id)
        return pid

    def _known(self, uuid: str, domain_id: int | None) -> int:
        """Return the process of a domain among those of the last scan."""
        for qemu in self._qemus.get(uuid, ()):
            if (
                domain_id in (None, qemu.domain_id)
                and self.start_ticks(qemu.pid) == qemu.start_ticks
                # Not of one that has ended and that nobody has waited for.
                and self._uuid_of(qemu.pid) == uuid
            ):
                return qemu.pid
        return 0

    def _scan(self) -> dict[str, list[_Qemu]]:
        """Return all QEMU processes of libvirt by UUID, oldest first.

        A process that QEMU forks has the same arguments until it executes
        another program.
        """
        found: dict[str, list[_Qemu]] = {}
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.proc):
                if not entry.name.isdigit():
                    continue
                pid = int(entry.name)
                uuid = self._uuid_of(pid)
                if uuid is None:
                    continue
                owner = guest_group.domain_id(
                    self._cgroup_text(self.proc / entry.name), self.cgroup
                )
                if owner is not None:
                    found.setdefault(uuid, []).append(
                        _Qemu(self.start_ticks(pid), pid, owner)
                    )
        for qemus in found.values():
            qemus.sort()
        return found

    def start_ticks(self, pid: int) -> int:
        """Return the start time, in clock ticks since boot; 0 if it is gone.

        Field 22 of ``/proc/PID/stat``.
        """
        try:
            # Bytes: the name in it need be no text.
            text = (self.proc / str(pid) / 'stat').read_bytes()
            return int(text.rpartition(b')')[2].split()[19])
        except (OSError, ValueError, IndexError):
            return 0

    def vcpu_threads(self, pid: int, vcpus: Sequence[int]) -> tuple[int, ...]:
        """Return the thread IDs of the vCPUs; empty if not all are found.

        Read from libvirt's own ``vcpuN`` cgroups, else by thread names.

        :param vcpus: numbers of its online vCPUs.
        """
        tids = self._threads_by_cgroup(pid, vcpus)
        return tids or self._threads_by_name(pid, vcpus)

    def vcpu_cgroups(
        self, pid: int, vcpus: Sequence[int]
    ) -> tuple[pathlib.Path, ...]:
        """Return the paths of the ``vcpuN`` groups; empty without them.

        :param vcpus: numbers of its online vCPUs.
        """
        for base in self._domain_cgroups(pid, 'cpu'):
            groups = tuple(base / f'vcpu{n}' for n in vcpus)
            if all(group.is_dir() for group in groups):
                return groups
        return ()

    def weight_file(self, pid: int, tid: int) -> pathlib.Path | None:
        """Return the file with the weight of a domain; None if not found.

        If systemd keeps a scope above libvirt's own group, the scope's file.

        :param tid: ID of a thread that the weight must cover, such as a
            vCPU's.
        """
        for base in self._domain_cgroups(pid, 'cpu', tid):
            group = base.parent if base.name == 'libvirt' else base
            for name in WEIGHT_FILES:
                path = group / name
                # Never the file of the group of all machines.
                if guest_group.NAME.match(group.name) and path.is_file():
                    return path
        return None

    def block_cgroup(self, pid: int) -> pathlib.Path | None:
        """Return the cgroup with the domain's own block I/O accounting."""
        for base in self._domain_cgroups(pid, 'blkio'):
            for name in ('io.stat', 'blkio.throttle.io_serviced'):
                # The root group's figures would be the whole host's.
                if (base / name).is_file() and self._is_machine(base):
                    return base
        return None

    def cpuset(self, pid: int) -> frozenset[int] | None:
        """Return the CPUs of the domain's own cpuset group; None if unknown.

        In cgroup v1 a vCPU's group accepts no other CPUs.
        """
        for base in self._domain_cgroups(pid, 'cpuset'):
            if self._is_machine(base):
                with contextlib.suppress(OSError, ValueError):
                    return cpus.parse_cpu_set(
                        (base / 'cpuset.cpus').read_text()
                    )
        return None

    def confined_to(self, pid: int) -> frozenset[int] | None:
        """Return the CPUs to which cgroup v2 confines a domain; None for all.

        For example by ``systemctl set-property machine.slice AllowedCPUs=``.
        libvirt does not know this set, and pins outside of it are refused.
        The configured set counts, not the effective one, which lacks offline
        CPUs.
        """
        for base in self._domain_cgroups(pid, 'cpuset'):
            if (base / 'cgroup.controllers').is_file():
                left: frozenset[int] | None = None
                for group in reversed((base, *base.parents)):
                    with contextlib.suppress(OSError, ValueError):
                        own = cpus.parse_cpu_set(
                            (group / 'cpuset.cpus').read_text()
                        )
                        # Without a common CPU, the parent's set is in force.
                        left = own if left is None else left & own or left
                return left
        return None

    def _threads_by_cgroup(
        self, pid: int, vcpus: Sequence[int]
    ) -> tuple[int, ...]:
        tids = []
        for group in self.vcpu_cgroups(pid, vcpus):
            text = ''
            for name in ('cgroup.threads', 'tasks'):
                with contextlib.suppress(OSError, ValueError):
                    text = (group / name).read_text()
                    break
            try:
                (tid,) = map(int, text.split())
            except ValueError:
                return ()
            tids.append(tid)
        if any(
            not (self.proc / str(pid) / 'task' / str(tid)).is_dir()
            for tid in tids
        ):
            return ()
        return tuple(tids)

    def _threads_by_name(
        self, pid: int, vcpus: Sequence[int]
    ) -> tuple[int, ...]:
        found: dict[int, int] = {}
        task = self.proc / str(pid) / 'task'
        with contextlib.suppress(OSError):
            for entry in os.scandir(task):
                with contextlib.suppress(OSError):
                    name = (task / entry.name / 'comm').read_text(
                        errors='replace'
                    )
                    match = VCPU_COMM.match(name)
                    if match:
                        found[int(match.group(1))] = int(entry.name)
        if any(vcpu not in found for vcpu in vcpus):
            return ()
        return tuple(found[vcpu] for vcpu in vcpus)

    def _domain_cgroups(
        self, pid: int, controller: str, tid: int | None = None
    ) -> tuple[pathlib.Path, ...]:
        """Return the possible paths of the domain's group in v1 and v2.

        :param tid: ID of a thread of the domain; QEMU's main one if None.
        """
        task = self.proc / str(pid)
        if tid not in (None, pid):
            task = task / 'task' / str(tid)
        bases = []
        for line in self._cgroup_text(task).splitlines():
            _, _, rest = line.partition(':')
            controllers, colon, path = rest.partition(':')
            if not colon:
                continue
            # Threads sit in <domain>[/libvirt]/{emulator,vcpuN}.
            group = THREAD_GROUP.sub('', path)
            if controllers == '':
                unified = cgroup.locate(self.cgroup, group)
                bases += [unified, unified / 'libvirt']
                bases += [cgroup.locate(self.cgroup / 'unified', group)]
            elif controller in controllers.split(','):
                for mount in (controllers, controller):
                    bases.append(cgroup.locate(self.cgroup / mount, group))
        return tuple(bases)

    @staticmethod
    def _cgroup_text(task: pathlib.Path) -> str:
        """Return the control groups of a task; empty if it is gone.

        Users may name their groups by any bytes.
        """
        try:
            return (task / 'cgroup').read_text(errors='surrogateescape')
        except OSError:
            return ''

    @staticmethod
    def _is_machine(base: pathlib.Path) -> bool:
        return any(guest_group.NAME.match(part) for part in base.parts)

    def _uuid_of(self, pid: int) -> str | None:
        """Return the ``-uuid`` argument of a process; None without it."""
        try:
            with open(self.proc / str(pid) / 'cmdline', 'rb') as file:
                words = file.read(65536).split(b'\0')
        except OSError:
            return None
        try:
            return words[words.index(b'-uuid') + 1].decode()
        except (ValueError, IndexError, UnicodeDecodeError):
            return None


def make_processes(conf: Any) -> Processes:
    """Return this host's QEMU processes, by the roots of ``[vhpc_agent]``."""
    options = conf.vhpc_agent
    return Processes(options.proc_root, options.cgroup_root)
