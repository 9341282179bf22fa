# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""CPU sets as text, and the CPUs that are present and online."""

import os
import pathlib
from collections.abc import Iterable

MOST_CPUS = 65_536
"""More CPUs than any host has: a typing error must not exhaust memory."""

SYNTAX = "CPU numbers, ranges and exclusions such as '2-15,^8'"


def parse_cpu_set(text: str) -> frozenset[int]:
    """Parse a CPU set in the syntax of Nova's ``[compute]cpu_shared_set``.

    :raises ValueError: the text is not in that syntax, or names no CPU.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    for part in text.split(','):
        rule = part.strip()
        if not rule:
            continue
        target = included
        if rule.startswith('^'):
            target = excluded
            rule = rule[1:].strip()
        first, dash, last = rule.partition('-')
        if not first.strip().isdigit() or (
            dash and not last.strip().isdigit()
        ):
            raise ValueError(f"'{part.strip()}' is not {SYNTAX}")
        low = int(first)
        high = int(last) if dash else low
        if low > high:
            raise ValueError(f"'{part.strip()}' runs backwards")
        if high >= MOST_CPUS:
            raise ValueError(f"'{part.strip()}': no host has so many CPUs")
        if target is excluded and dash:
            # Nova accepts only single CPUs after the caret.
            raise ValueError(f"'{part.strip()}' excludes a range")
        target.update(range(low, high + 1))
    cpus = frozenset(included - excluded)
    if not cpus:
        raise ValueError('it names no CPU')
    return cpus


def format_cpu_set(cpus: Iterable[int]) -> str:
    """Return the shortest text for a CPU set, such as ``0-3,8``."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ','.join(
        str(low) if low == high else f'{low}-{high}' for low, high in parts
    )


def online_cpus(sys_root: str = '/sys') -> frozenset[int]:
    """Return the numbers of the online CPUs."""
    path = pathlib.Path(sys_root, 'devices/system/cpu/online')
    try:
        return parse_cpu_set(path.read_text())
    except (OSError, ValueError):
        return frozenset(range(os.cpu_count() or 1))


def switched_off_cpus(sys_root: str = '/sys') -> frozenset[int]:
    """Return the CPUs that are present but offline, as by ``smt/control``.

    CPUs that could only be plugged in later (``possible``) do not count:
    a mistyped CPU number would mostly be among them.
    """
    path = pathlib.Path(sys_root, 'devices/system/cpu/present')
    try:
        return parse_cpu_set(path.read_text()) - online_cpus(sys_root)
    except (OSError, ValueError):
        return frozenset()


def isolated_cpus(
    sys_root: str = '/sys', cgroup_root: str = '/sys/fs/cgroup'
) -> frozenset[int]:
    """Return the CPUs that are isolated, at boot or by a cpuset partition.

    ``isolcpus`` takes a CPU out of the kernel's load balancing: threads stay
    where they are, however long the queue is.
    """
    return _cpus_in(
        pathlib.Path(sys_root, 'devices/system/cpu/isolated')
    ) | _cpus_in(pathlib.Path(cgroup_root, 'cpuset.cpus.isolated'))


def nohz_full_cpus(sys_root: str = '/sys') -> frozenset[int]:
    """Return the CPUs on which the kernel stops its tick (``nohz_full``)."""
    return _cpus_in(pathlib.Path(sys_root, 'devices/system/cpu/nohz_full'))


def _cpus_in(path: pathlib.Path) -> frozenset[int]:
    """Return the CPUs in a file of the kernel; none if it names none.

    Empty is a line without text, or ``(null)`` for ``nohz_full``.
    """
    try:
        return parse_cpu_set(path.read_text())
    except (OSError, ValueError):
        return frozenset()
