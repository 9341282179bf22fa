# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The host CPUs that guests may be pinned to, followed at run time.

A host may lose CPUs while it runs, as by ``echo off`` into
``/sys/devices/system/cpu/smt/control``, or get them back. The kernel refuses
a pin to an offline CPU, and all values that are written with it.

The agent's own affinity does not count. systemd's ``CPUAffinity=`` and
``AllowedCPUs=``, or a container's cpuset, keep services on a few CPUs; guests
run elsewhere, where libvirt put them. What confines one guest (its ``cpuset``
in the XML, its control group) is in :class:`~.guests.guest.Guest`.
"""

import logging
import pathlib
import time
from collections.abc import Iterable

from nova_vhpc.agent import errors
from nova_vhpc.control import model
from nova_vhpc.linux import cpus

LOG = logging.getLogger(__name__)

OPTION = '[vhpc_agent]cpu_shared_set'

LOOK_S = 1.0
"""Time between two checks, in seconds. A check takes about 60 us."""


class SharedCpus:
    """The CPUs of ``cpu_shared_set`` that are online and not isolated.

    :param shared_set: ``[vhpc_agent]cpu_shared_set``.
    :param sys_root: mount point of sysfs.
    :param cgroup_root: mount point of the cgroup file systems.
    :raises ConfigError: the option is wrong, or no CPU is left.
    """

    def __init__(
        self,
        shared_set: str | None,
        sys_root: str = '/sys',
        cgroup_root: str = '/sys/fs/cgroup',
    ) -> None:
        self._sys_root = sys_root
        self._cgroup_root = cgroup_root
        self._usable = usable_cpus(shared_set, sys_root, cgroup_root)
        self._wanted = cpus.parse_cpu_set(shared_set) if shared_set else None
        self._described = host_cpus(self._usable, sys_root)
        self._looked_s = time.monotonic()
        self._off = cpus.switched_off_cpus(sys_root)
        self._isolated = cpus.isolated_cpus(sys_root, cgroup_root)
        if shared_set:
            self._log_unusable(shared_set)
        self._log_nohz_full()

    def off(self) -> frozenset[int]:
        """Return the numbers of all offline CPUs of the host."""
        return self._off

    def missing(self) -> frozenset[int]:
        """Return the offline CPUs that may be used once they are online."""
        wanted = self._off if self._wanted is None else self._wanted
        return self._off & wanted - self._isolated

    def usable(self) -> frozenset[int]:
        """Return the numbers of the CPUs that guests may be pinned to."""
        return self._usable

    def described(self) -> tuple[model.Cpu, ...]:
        """Return the usable CPUs with their topology.

        Called each tick; returns the same object until a CPU comes or goes.
        If no CPU would be left, the last known CPUs are returned: without
        any CPU the controller could decide nothing.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._off = cpus.switched_off_cpus(self._sys_root)
            self._isolated = cpus.isolated_cpus(
                self._sys_root, self._cgroup_root
            )
            found = cpus.online_cpus(self._sys_root) - self._isolated
            if self._wanted is not None:
                found &= self._wanted
            if found and found != self._usable:
                self._take(found)
        return self._described

    def _take(self, found: frozenset[int]) -> None:
        LOG.warning(
            'CPUs that VMs may be pinned to: %s from now on, %s before',
            cpus.format_cpu_set(found),
            cpus.format_cpu_set(self._usable),
        )
        self._described = host_cpus(found, self._sys_root)
        self._usable = found

    def _log_unusable(self, shared_set: str) -> None:
        """Log the CPUs of the option to which no VM is pinned now."""
        if self.missing():
            LOG.warning(
                "%s = '%s': CPUs %s are switched off; VMs may be pinned to %s "
                'until they are on',
                OPTION,
                shared_set,
                cpus.format_cpu_set(self.missing()),
                cpus.format_cpu_set(self._usable),
            )
        isolated = self._isolated & (self._wanted or frozenset())
        if isolated:
            LOG.warning(
                "%s = '%s': CPUs %s are isolated (isolcpus, or a cpuset "
                'partition); VMs are pinned to %s only. Isolated CPUs are for '
                'dedicated CPUs ([compute]cpu_dedicated_set)',
                OPTION,
                shared_set,
                cpus.format_cpu_set(isolated),
                cpus.format_cpu_set(self._usable),
            )

    def _log_nohz_full(self) -> None:
        """Log the usable CPUs whose kernel option suits dedicated CPUs."""
        tickless = self._usable & cpus.nohz_full_cpus(self._sys_root)
        if tickless:
            LOG.warning(
                'CPUs %s have nohz_full, which makes CPUs that several VMs '
                'share slower; VMs may be pinned to them. To keep VMs off '
                'them, leave them out of %s',
                cpus.format_cpu_set(tickless),
                OPTION,
            )


def usable_cpus(
    shared_set: str | None,
    sys_root: str = '/sys',
    cgroup_root: str = '/sys/fs/cgroup',
) -> frozenset[int]:
    """Return the CPUs of ``cpu_shared_set`` that are online, not isolated.

    :raises ConfigError: the option is wrong, or no CPU is left.
    """
    online = cpus.online_cpus(sys_root)
    # Where all CPUs are isolated, isolation keeps nothing apart.
    balanced = online - cpus.isolated_cpus(sys_root, cgroup_root) or online
    if not shared_set:
        return balanced
    try:
        wanted = cpus.parse_cpu_set(shared_set)
    except ValueError as error:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': {error}; allowed: {cpus.SYNTAX} "
            f'within {cpus.format_cpu_set(online)}'
        ) from None
    existing = online | cpus.switched_off_cpus(sys_root)
    missing = wanted - existing
    if missing:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': this host has no CPU "
            f'{cpus.format_cpu_set(missing)}; allowed: CPUs within '
            f'{cpus.format_cpu_set(existing)}'
        )
    if not wanted & online:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': all of these CPUs are switched off; "
            'allowed: CPUs of which at least one is on, as of '
            f'{cpus.format_cpu_set(online)}'
        )
    usable = wanted & balanced
    if not usable:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': all of these CPUs are isolated "
            '(isolcpus, or a cpuset partition); allowed: CPUs of which at '
            'least one is not, as of '
            f'{cpus.format_cpu_set(balanced)}'
        )
    return usable


def host_cpus(
    usable: Iterable[int], sys_root: str = '/sys'
) -> tuple[model.Cpu, ...]:
    """Return the CPUs with their socket, last-level cache and core.

    Each of them is numbered by its lowest online CPU. The kernel's own
    numbers are not unique: ``core_id`` begins anew in each cluster (RISC-V)
    and book (s390), and differs between the threads of an AMD module.
    """
    base = pathlib.Path(sys_root, 'devices/system/cpu')
    return tuple(
        model.Cpu(
            id=cpu,
            socket=_socket(base / f'cpu{cpu}/topology', cpu),
            llc=_last_level_cache(base / f'cpu{cpu}/cache'),
            core=_lowest(
                base / f'cpu{cpu}/topology',
                # The second is the name before Linux 5.3.
                ('core_cpus_list', 'thread_siblings_list'),
                cpu,
                cpu,
            ),
        )
        for cpu in sorted(usable)
    )


def _socket(topology: pathlib.Path, cpu: int) -> int:
    """Return the number of a CPU's socket; 0 if the kernel knows none."""
    try:
        number = int((topology / 'physical_package_id').read_text())
    except (OSError, ValueError):
        return 0
    if number < 0:
        return 0
    return _lowest(
        topology, ('package_cpus_list', 'core_siblings_list'), cpu, number
    )


def _lowest(
    topology: pathlib.Path, names: Iterable[str], cpu: int, default: int
) -> int:
    """Return the lowest CPU in the first list that is there.

    :param names: files with a CPU list each.
    :param cpu: CPU that the list must contain.
    """
    for name in names:
        try:
            shared = cpus.parse_cpu_set((topology / name).read_text())
        except (OSError, ValueError):
            continue
        if cpu in shared:
            return min(shared)
    return default


def _last_level_cache(cache: pathlib.Path) -> int:
    """Return the lowest CPU number that shares the last-level cache."""
    best = (0, 0)
    for index in cache.glob('index*'):
        try:
            level = int((index / 'level').read_text())
            shared = cpus.parse_cpu_set(
                (index / 'shared_cpu_list').read_text()
            )
        except (OSError, ValueError):
            continue
        if level > best[0]:
            best = (level, min(shared))
    return best[1]
