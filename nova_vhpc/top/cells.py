# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values of servers and clusters as text and style.

Styles are only a help: each cell says the same without colour.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from rich import cells as terminal_cells

from nova_vhpc.linux import cpus
from nova_vhpc.top.model import (
    RECEIVED_ENOUGH,
    RECEIVED_LITTLE,
    Cluster,
    Server,
    State,
)

SHORT_ID = 8
"""Characters of a UUID that are shown."""

STATE_STYLES = {
    State.OK: 'green',
    State.WAITING: 'dim',
    State.SPINNING: 'yellow',
    State.ALONE: 'yellow',
    State.SHORT: 'yellow',
    State.FAILING: 'bold red',
}


class Cell(NamedTuple):
    """Text of a cell and its style."""

    text: str
    style: str = ''


UNKNOWN = Cell('-', 'dim')


def cluster_label(uuid: str | None) -> str:
    """Return a short name of a cluster.

    That is the first characters of the server group's UUID, or the name that
    flavor or metadata gives, without its project.
    """
    if uuid is None:
        return 'no cluster'
    _, _, name = uuid.rpartition('/')
    return name[:SHORT_ID] if _is_uuid(name) else name


def _is_uuid(text: str) -> bool:
    parts = text.split('-')
    return [len(part) for part in parts] == [8, 4, 4, 4, 12]


def state(one: Server | Cluster) -> Cell:
    """Return the state in a word."""
    return Cell(one.state.value, STATE_STYLES[one.state])


def phase(one: Server | Cluster) -> Cell:
    """Return the phase."""
    if one.phase is None:
        return UNKNOWN
    return Cell(one.phase, 'cyan' if one.phase == 'io' else '')


def received(one: Server | Cluster) -> Cell:
    """Return the CPU time received, in percent; of a cluster, the least."""
    part = one.received
    if part is None:
        return UNKNOWN
    style = ''
    if part < RECEIVED_LITTLE:
        style = 'bold red'
    elif part < RECEIVED_ENOUGH:
        style = 'yellow'
    return Cell(f'{100 * part:.0f}', style)


def percent(value: float | None) -> Cell:
    """Return a part in percent."""
    return UNKNOWN if value is None else Cell(f'{100 * value:.0f}')


def number(value: float | None) -> Cell:
    """Return a number without decimals."""
    return UNKNOWN if value is None else Cell(f'{value:.0f}')


def milliseconds(value_us: float | None) -> Cell:
    """Return a time in milliseconds, with three digits."""
    if value_us is None:
        return UNKNOWN
    value = value_us / 1000
    return Cell(f'{value:.0f}' if value >= 100 else f'{value:.3g}')


def quota(value_us: float | None) -> Cell:
    """Return a quota in milliseconds; ``none`` without a limit."""
    if value_us is None:
        return UNKNOWN
    return Cell('none') if value_us < 0 else milliseconds(value_us)


def pins(one: Server | Cluster) -> Cell:
    """Return all CPUs that the vCPUs are pinned to; of a cluster, none.

    The same CPU number is another CPU on each host.
    """
    if isinstance(one, Cluster):
        if len(one.hosts) > 1:
            return Cell('')
        sets = [pin for server in one.servers for pin in server.pins]
    else:
        sets = list(one.pins)
    return Cell(union_of_pins(sets)) if sets else UNKNOWN


def size(cluster: Cluster) -> str:
    """Return how large a cluster is, in words."""
    servers, hosts = len(cluster.servers), cluster.hosts
    vcpus = sum(server.vcpus for server in cluster.servers)
    where = hosts[0] if len(hosts) == 1 else f'{len(hosts)} hosts'
    return f'{_count(servers, "server")}, {_count(vcpus, "vCPU")} on {where}'


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' + ('' if number == 1 else 's')


def union_of_pins(pins: Sequence[str]) -> str:
    """Return all CPUs that a VM's vCPUs are pinned to, such as ``0-15``.

    :param pins: CPU set of each vCPU.
    :returns: empty without pins.
    """
    try:
        return cpus.format_cpu_set(
            cpu for pin in set(pins) for cpu in cpus.parse_cpu_set(pin)
        )
    except ValueError:
        return ' '.join(dict.fromkeys(pins))


def fit_cpu_set(text: str, width: int) -> str:
    """Return a CPU set in at most ``width`` characters.

    :param text: CPU set, such as ``0,2,4,6``.
    :returns: the set, with a stride (``0-6:2``), or the number of its CPUs.
    """
    if len(text) <= width:
        return text
    try:
        numbers = sorted(cpus.parse_cpu_set(text))
    except ValueError:
        return shorten(text, width)
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(steps) == 1:
        strided = f'{numbers[0]}-{numbers[-1]}:{steps.pop()}'
        if len(strided) <= width:
            return strided
    return shorten(f'{len(numbers)} CPUs', width)


def pins_by_vcpu(pins: Sequence[str]) -> str:
    """Return the CPU set of each vCPU, those of equal sets together.

    For instance ``vCPU 0: 3; vCPUs 1-3: 4-7``; only the set if all vCPUs have
    the same one.
    """
    vcpus: dict[str, list[int]] = {}
    for vcpu, pin in enumerate(pins):
        vcpus.setdefault(pin, []).append(vcpu)
    if len(vcpus) < 2:
        return next(iter(vcpus), '-')
    return '; '.join(
        f'vCPU{"s" if len(numbers) > 1 else ""} '
        f'{cpus.format_cpu_set(numbers)}: {pin}'
        for pin, numbers in vcpus.items()
    )


def length(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    return terminal_cells.cell_len(text)


def shorten(text: str, width: int) -> str:
    """Return a text in at most ``width`` cells, with an ellipsis if cut."""
    if length(text) <= width:
        return text
    return terminal_cells.set_cell_size(text, max(0, width - 1)).rstrip() + '…'


def pad(text: str, width: int, right: bool) -> str:
    """Return a text in ``width`` cells, aligned to the left or right."""
    blanks = ' ' * max(0, width - length(text))
    return blanks + text if right else text + blanks


def wrap(text: str, width: int, height: int) -> list[str]:
    """Return a text in lines of at most ``width`` cells.

    :param height: most lines; the last ends with an ellipsis if cut.
    """
    lines = ['']
    for word in text.split():
        for piece in terminal_cells.chop_cells(word, width):
            longer = f'{lines[-1]} {piece}'.lstrip()
            if length(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(piece)
    if len(lines) > height:
        lines[height - 1 :] = [' '.join(lines[height - 1 :])]
    return [shorten(line, width) for line in lines]
