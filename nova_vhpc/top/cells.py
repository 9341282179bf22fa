# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values of servers and clusters as text and style. Pure.

Styles are only a help: each cell says the same without colour.
"""

from typing import NamedTuple

from nova_vhpc.top import cpu_lists
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
    """Return a time, given in microseconds, in milliseconds."""
    return UNKNOWN if value_us is None else Cell(f'{value_us / 1000:g}')


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
    return Cell(cpu_lists.union(sets)) if sets else UNKNOWN


def size(cluster: Cluster) -> str:
    """Return how large a cluster is, in words."""
    servers, hosts = len(cluster.servers), cluster.hosts
    vcpus = sum(server.vcpus for server in cluster.servers)
    where = hosts[0] if len(hosts) == 1 else f'{len(hosts)} hosts'
    return f'{_count(servers, "server")}, {_count(vcpus, "vCPU")} on {where}'


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' + ('' if number == 1 else 's')
