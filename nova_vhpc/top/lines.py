# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The lines above and below the table. Pure."""

from collections.abc import Iterable, Iterator

from nova_vhpc.top import cells, cpu_lists
from nova_vhpc.top.cells import Cell
from nova_vhpc.top.model import Cluster, Host, Server, Snapshot, State

MOST_NAMES = 6
"""Names that a line has before it only counts the others."""


def head(snapshot: Snapshot) -> list[Cell]:
    """Return the state of the hosts, in one or two lines."""
    hosts = snapshot.hosts
    if len(hosts) == 1 and not snapshot.missing:
        return [_title(hosts[0]), _parts(hosts[0])]
    found = [Cell(_count(len(hosts), 'host answers', 'hosts answer'), 'bold')]
    if snapshot.cluster is not None:
        found.insert(0, Cell(f'cluster {snapshot.cluster}', 'bold'))
    return found


def problems(snapshot: Snapshot) -> list[Cell]:
    """Return what is wrong or missing, a line each, the worst first."""
    many = len(snapshot.hosts) + len(snapshot.missing) > 1
    found = [
        Cell(f'{host} is missing: {_without(host, reason)}', 'bold red')
        for host, reason in sorted(snapshot.missing.items())
    ]
    for host in snapshot.hosts:
        if many and host.marks:
            marks = ', '.join(host.marks)
            found.append(Cell(f'{host.name}: {marks}', 'bold yellow'))
        found += [
            Cell(f'{host.name}: {text}' if many else text, 'yellow')
            for text in host.problems
        ]
    return found + [Cell(text, 'yellow') for text in snapshot.remarks]


def hosts(snapshot: Snapshot) -> list[Cell]:
    """Return two lines for each host."""
    return [
        line
        for host in snapshot.hosts
        for line in (_title(host), Cell(f'  {_parts(host).text}'))
    ]


def detail(one: Server | Cluster) -> list[Cell]:
    """Return all that is known of a server or a cluster."""
    if isinstance(one, Cluster):
        return list(_cluster_detail(one))
    return list(_server_detail(one))


def notes(clusters: Iterable[Cluster]) -> list[Cell]:
    """Return the notes of servers that are not well, equal ones together."""
    names: dict[tuple[State, str], list[str]] = {}
    for cluster in clusters:
        for server in cluster.servers:
            if server.state is not State.OK and server.note:
                key = server.state, server.note
                names.setdefault(key, []).append(server.name)
    return [
        Cell(f'{_names(found)}: {note}', cells.STATE_STYLES[state])
        for (state, note), found in names.items()
    ]


def _title(host: Host) -> Cell:
    tick = '-' if host.tick_us is None else f'{host.tick_us / 1000:.1f}'
    words = [
        f'{host.name}: CPUs {host.cpus}',
        f'tick {tick} of {host.period_us / 1000:g} ms',
        f'missed {host.missed}',
        *host.marks,
    ]
    return Cell(', '.join(words), 'bold yellow' if host.marks else 'bold')


def _parts(host: Host) -> Cell:
    return Cell(
        f'uplinks {host.uplinks}; gang windows {host.windows}; message bus '
        f'{host.bus}'
    )


def _without(host: str, reason: str) -> str:
    """Return a reason without the host's name, which stands before it."""
    return reason.removeprefix(f'host {host}: ')


def _cluster_detail(cluster: Cluster) -> Iterator[Cell]:
    label = cells.cluster_label(cluster.uuid)
    uuid = cluster.uuid
    same = uuid is None or uuid == label
    yield Cell(label if same else f'{label}: cluster {uuid}', 'bold')
    where = f': {_names(cluster.hosts)}' if len(cluster.hosts) > 1 else ''
    yield Cell(f'{cells.size(cluster)}{where}')
    slow = [one for one in cluster.servers if one.received is not None]
    if slow:
        least = min(slow, key=lambda one: one.received or 0.0)
        cell = cells.received(least)
        yield Cell(
            f'{least.name} receives least: {cell.text}% of the CPU time that '
            'stock Linux would give',
            cell.style,
        )
    yield from notes([cluster])


def _server_detail(server: Server) -> Iterator[Cell]:
    cluster = server.cluster or 'none'
    yield Cell(
        f'{server.name} ({server.domain}, {server.uuid}) on {server.host}',
        'bold',
    )
    if server.note:
        yield Cell(server.note, cells.STATE_STYLES[server.state])
    yield Cell(
        f'cluster {cluster}, {server.workload}, {server.vcpus} vCPUs on CPUs '
        f'{cpu_lists.by_vcpu(server.pins)}'
    )
    yield Cell(
        f'slice {cells.milliseconds(server.slice_us).text} ms, period '
        f'{cells.milliseconds(server.period_us).text} ms, quota '
        f'{cells.quota(server.quota_us).text}, shares '
        f'{cells.number(server.shares).text}, window '
        f'{cells.milliseconds(server.window_us).text} ms'
    )
    yield Cell(
        f'received {cells.received(server).text}%, CPU '
        f'{cells.percent(server.cpu).text}%, latency '
        f'{cells.number(server.latency_us).text} us, I/O '
        f'{cells.number(server.io_events).text}, writes {server.writes}, '
        f'moves {server.moves}'
    )


def _names(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    if len(found) <= MOST_NAMES:
        return ', '.join(found)
    rest = len(found) - MOST_NAMES
    return f'{", ".join(found[:MOST_NAMES])} and {rest} more'


def _count(number: int, one: str, more: str) -> str:
    return f'{number} {one if number == 1 else more}'
