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

"""Which host CPUs the agent may pin to, and how they lie in the host."""

import os
import pathlib
from collections.abc import Iterable

from nova_vhpc.agent import errors
from nova_vhpc.control import model

MOST_CPUS = 65_536
"""More than any host has. A slip of the keyboard must not take its memory."""

OPTION = '[vhpc_agent]cpu_shared_set'
SYNTAX = "CPU numbers, ranges and exclusions such as '2-15,^8'"


def parse_cpu_set(text: str) -> frozenset[int]:
    """Read a CPU set in the syntax of Nova's ``[compute]cpu_shared_set``.

    :raises ValueError: if it is not in that syntax, or empty.
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
            # Nova takes single CPUs only after the caret.
            raise ValueError(f"'{part.strip()}' excludes a range")
        target.update(range(low, high + 1))
    cpus = frozenset(included - excluded)
    if not cpus:
        raise ValueError('it names no CPU')
    return cpus


def format_cpu_set(cpus: Iterable[int]) -> str:
    """Shortest text for a CPU set: ``0-3,8``."""
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
    """CPUs that are switched on."""
    path = pathlib.Path(sys_root, 'devices/system/cpu/online')
    try:
        return parse_cpu_set(path.read_text())
    except (OSError, ValueError):
        return frozenset(range(os.cpu_count() or 1))


def switched_off_cpus(sys_root: str = '/sys') -> frozenset[int]:
    """CPUs that are in the host, but off, as by ``smt/control``.

    Not those that the kernel thinks could still be plugged in (``possible``):
    mere slips of the keyboard would be among them.
    """
    path = pathlib.Path(sys_root, 'devices/system/cpu/present')
    try:
        return parse_cpu_set(path.read_text()) - online_cpus(sys_root)
    except (OSError, ValueError):
        return frozenset()


def usable_cpus(
    shared_set: str | None,
    sys_root: str = '/sys',
    affinity: frozenset[int] | None = None,
) -> frozenset[int]:
    """CPUs in ``cpu_shared_set`` that are on and that the process may use.

    :raises ConfigError: when the option is wrong or nothing is left.
    """
    if affinity is None:
        affinity = frozenset(os.sched_getaffinity(0))
    online = online_cpus(sys_root)
    if not shared_set:
        return affinity & online or affinity
    try:
        wanted = parse_cpu_set(shared_set)
    except ValueError as error:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': {error}; allowed: {SYNTAX} within "
            f'{format_cpu_set(online)}'
        ) from None
    existing = online | switched_off_cpus(sys_root)
    missing = wanted - existing
    if missing:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': this host has no CPU "
            f'{format_cpu_set(missing)}; allowed: CPUs within '
            f'{format_cpu_set(existing)}'
        )
    if not wanted & online:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': all of these CPUs are switched off; "
            'allowed: CPUs of which at least one is on, as of '
            f'{format_cpu_set(online)}'
        )
    usable = wanted & affinity & online
    if not usable:
        raise errors.ConfigError(
            f"{OPTION} = '{shared_set}': the agent itself may use none of "
            f'these CPUs; allowed: CPUs within {format_cpu_set(affinity)}'
        )
    return usable


def present_cpus(
    wanted: frozenset[int] | None, sys_root: str = '/sys'
) -> frozenset[int]:
    """Those of the wanted CPUs that can be used now; maybe none.

    :param wanted: None for all.
    """
    found = frozenset(os.sched_getaffinity(0)) & online_cpus(sys_root)
    return found if wanted is None else found & wanted


def host_cpus(
    usable: Iterable[int], sys_root: str = '/sys'
) -> tuple[model.Cpu, ...]:
    """Describe CPUs by socket, last-level cache and core."""
    base = pathlib.Path(sys_root, 'devices/system/cpu')
    return tuple(
        model.Cpu(
            id=cpu,
            socket=_number(base / f'cpu{cpu}/topology/physical_package_id'),
            llc=_last_level_cache(base / f'cpu{cpu}/cache'),
            core=_number(base / f'cpu{cpu}/topology/core_id', cpu),
        )
        for cpu in sorted(usable)
    )


def _number(path: pathlib.Path, default: int = 0) -> int:
    try:
        return max(0, int(path.read_text()))
    except (OSError, ValueError):
        return default


def _last_level_cache(cache: pathlib.Path) -> int:
    """Number of the first CPU that shares the last-level cache."""
    best = (0, 0)
    for index in cache.glob('index*'):
        try:
            level = int((index / 'level').read_text())
            shared = parse_cpu_set((index / 'shared_cpu_list').read_text())
        except (OSError, ValueError):
            continue
        if level > best[0]:
            best = (level, min(shared))
    return best[1]
