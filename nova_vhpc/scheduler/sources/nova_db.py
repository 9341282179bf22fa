# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read Nova's databases for what a scheduling request does not contain.

A request lists the members of its server group and the hosts that they are
on, but not which member is on which host. Host states contain that, and the
aggregates of the host, but only for hosts that Placement offers.
"""

from collections.abc import Callable, Collection, Iterable, Set
from typing import Any, NamedTuple

from nova import context as nova_context
from nova import objects, servicegroup
from nova.compute import vm_states
from oslo_log import log as logging

from nova_vhpc.flavor import cpu_policy
from nova_vhpc.scheduler.planner.model import one_of

LOG = logging.getLogger(__name__)

TIMEOUT_S = 5.0
"""Time, in seconds, in which the cells of one query must answer."""

MAX_REMEMBERED = 10_000
"""Number of members without a host that a process remembers, at most. Each
takes about 100 bytes."""

_STARTING = (vm_states.BUILDING, vm_states.SHELVED_OFFLOADED)

_MOVING = (
    'accepted',
    'queued',
    'preparing',
    'running',
    'running (post-copy)',
    'pre-migrating',
    'migrating',
    'post-migrating',
)
"""States of an evacuation, of a live migration or of a cold one whose server
does not run at its destination yet."""

# Members that will not get a host: deleted ones, which stay in their group
# until Nova's database is archived, and those whose boot failed. Without this
# memory, each boot into such a group would query the API database and the
# group's cells: 6 ms for three members, with both on SQLite in memory.
_without_host: dict[str, None] = {}


class InstanceLocations(NamedTuple):
    """Which hosts the members of a server group are on.

    :ivar hosts: host name by the uuid of each member that has a host.
    :ivar gone: uuids of members that have no host and that no request will
        place: deleted (also soft-deleted) or failed.
    """

    hosts: dict[str, str]
    gone: frozenset[str]


def locate(uuids: Collection[str]) -> InstanceLocations | None:
    """Look up the hosts of members, by one query per database.

    The API database and the members' cells are queried.

    :param uuids: uuids of the members.
    :returns: None if one of the databases did not answer, which is logged.
    """
    context = nova_context.get_admin_context()
    try:
        mappings = objects.InstanceMappingList.get_by_instance_uuids(
            context, list(uuids)
        )
        cells = {
            mapping.cell_mapping.uuid: mapping.cell_mapping
            for mapping in mappings
            if mapping.cell_mapping is not None
        }
        answers = nova_context.scatter_gather_cells(
            context, list(cells.values()), TIMEOUT_S, _servers, list(uuids)
        )
    except Exception:
        LOG.exception('Cannot look up the members of a server group')
        return None
    servers: dict[str, _Server] = {}
    for cell, answer in answers.items():
        if nova_context.is_cell_failure_sentinel(answer):
            LOG.warning(
                'Cell %s did not answer where the members of a server group '
                'are; the number of members per host is estimated',
                cell,
            )
            return None
        servers.update(answer)
    booting = {m.instance_uuid for m in mappings if m.cell_mapping is None}
    gone = set(uuids) - booting - servers.keys()
    gone.update(uuid for uuid, server in servers.items() if server.failed)
    _remember(gone)
    # Not remembered: a soft-deleted server may be restored on its host.
    gone.update(uuid for uuid, server in servers.items() if server.deleted)
    return InstanceLocations(
        {
            uuid: server.host
            for uuid, server in servers.items()
            if server.host and uuid not in gone
        },
        frozenset(gone),
    )


class MoveSource(NamedTuple):
    """The host that a moved server is on, and its vCPUs there.

    :ivar host: host name of its nova-compute.
    :ivar node: name of its hypervisor node.
    :ivar shared: number of its vCPUs that share the host's CPUs.
    :ivar dedicated: number of its vCPUs with a dedicated CPU each.
    """

    host: str
    node: str
    shared: int
    dedicated: int = 0


def move_source(spec_obj: Any) -> MoveSource | None:
    """Look up where a moved server is.

    Host states do not show it reliably: once a resize on the same host is
    confirmed, Nova's host state no longer lists the server there.

    :param spec_obj: Nova's RequestSpec of the move.
    :returns: None if the server has no host, or if its cell did not answer.
    """
    uuid = spec_obj.instance_uuid
    server = _ask(
        spec_obj.requested_destination.cell,
        f'which flavor and host server {uuid} has now; if it stays on its '
        'host, its vCPUs count twice there',
        _with_flavor,
        uuid,
    )
    if server is None or not server.host:
        return None
    flavor = server.flavor
    dedicated = cpu_policy.dedicated(flavor.vcpus, flavor.extra_specs)
    return MoveSource(
        server.host, server.node, flavor.vcpus - dedicated, dedicated
    )


def network_metadata(spec_obj: Any) -> Any:
    """Look up the networks of a moved server; Nova keeps them with its NICs.

    :param spec_obj: Nova's RequestSpec of the move.
    :returns: Nova's NetworkMetadata; None if its cell did not answer.
    """
    uuid = spec_obj.instance_uuid
    nics = _ask(
        spec_obj.requested_destination.cell,
        f'which networks server {uuid} is on; those of its ports with minimum '
        'bandwidth count',
        _nics,
        uuid,
    )
    if nics is None:
        return None
    networks = [nic['network'] for nic in nics]
    physnets = {n.get_meta('physical_network') for n in networks}
    return objects.NetworkMetadata(
        physnets=physnets - {None},
        tunneled=any(n.get_meta('tunneled') for n in networks),
    )


def must_leave(cell: Any, host: str) -> bool:
    """Return whether all servers are to leave a host.

    They are if the host is down (Nova decides: its nova-compute was forced
    down, or has not reported for ``[DEFAULT] service_down_time``), or if its
    nova-compute is disabled, as before a host is drained.

    :param cell: Nova's CellMapping of the host.
    :returns: False also if the cell did not answer.
    """
    service = _ask(
        cell,
        f'whether host {host} is down or disabled; it counts as up',
        objects.Service.get_by_compute_host,
        host,
    )
    return service is not None and (
        bool(service.disabled) or not servicegroup.API().service_is_up(service)
    )


def move_destinations(cell: Any, source: str) -> dict[str, str]:
    """Look up where the servers of a host are moved to.

    Until an evacuated or migrated server runs at its destination, which may
    take minutes, Nova's database still lists it on its former host.

    :param cell: Nova's CellMapping of the host.
    :param source: name of the host that the servers leave.
    :returns: destination host by server uuid, without servers that have no
        destination yet; empty if the cell did not answer.
    """
    migrations = _ask(
        cell,
        f'where the servers of host {source} are moved to',
        objects.MigrationList.get_by_filters,
        {'source_compute': source, 'status': list(_MOVING)},
    )
    return {
        migration.instance_uuid: migration.dest_compute
        for migration in migrations or ()
        if migration.dest_compute
    }


def _ask(
    cell: Any, question: str, function: Callable[..., Any], *args: Any
) -> Any:
    """Return what a function reads in a cell, None if it did not answer.

    That is logged. Nova, too, limits the wait for a cell when it builds its
    host states.

    :param question: what is to be looked up, and what counts without it.
    """
    try:
        answer = nova_context.scatter_gather_cells(
            nova_context.get_admin_context(),
            [cell],
            TIMEOUT_S,
            function,
            *args,
        )[cell.uuid]
    except Exception:
        LOG.exception('Cannot look up %s', question)
        return None
    if nova_context.is_cell_failure_sentinel(answer):
        LOG.warning('Cell %s did not answer %s', cell.uuid, question)
        return None
    return answer


def _with_flavor(context: Any, uuid: str) -> Any:
    """Return one server of a cell, with its flavor."""
    return objects.Instance.get_by_uuid(
        context, uuid, expected_attrs=['flavor']
    )


def _nics(context: Any, uuid: str) -> Any:
    """Return the NICs of one server of a cell."""
    cache = objects.InstanceInfoCache.get_by_instance_uuid(context, uuid)
    return cache.network_info or ()


def may_have_host(uuids: Iterable[str]) -> bool:
    """Return whether any of these members may have a host by now.

    It is False only if all are known to be deleted or failed, so that these
    do not cost a query at every boot into their group.
    """
    return any(uuid not in _without_host for uuid in uuids)


def _remember(uuids: Set[str]) -> None:
    if len(_without_host) + len(uuids) > MAX_REMEMBERED:
        _without_host.clear()
    _without_host.update(dict.fromkeys(uuids))


def racks(hosts: Set[str], key: str) -> dict[str, str]:
    """Look up the racks of hosts, by one query of the API database.

    :param hosts: host names.
    :param key: key of the aggregates' metadata that names the rack.
    :returns: rack by host name, without hosts in no rack; empty if the
        database did not answer, which is logged.
    """
    try:
        aggregates = objects.AggregateList.get_by_metadata_key(
            nova_context.get_admin_context(), key, hosts=hosts
        )
        rack_by_host: dict[str, str] = {}
        for aggregate in aggregates:
            rack = aggregate.metadata[key]
            for host in hosts & set(aggregate.hosts):
                if name := one_of(rack_by_host.get(host), rack):
                    rack_by_host[host] = name
        return rack_by_host
    except Exception:
        LOG.exception('Cannot look up the racks of a server group')
        return {}


class _Server(NamedTuple):
    host: str | None
    failed: bool
    deleted: bool


def _servers(context: Any, uuids: Collection[str]) -> dict[str, _Server]:
    """Return those of the servers that one cell has not deleted for good."""
    servers = objects.InstanceList.get_by_filters(
        context,
        {'uuid': uuids, 'deleted': False, 'soft_deleted': True},
        expected_attrs=[],
    )
    return {
        server.uuid: _Server(
            server.host,
            # A server that boots or is unshelved may still get a host.
            not server.host and server.vm_state not in _STARTING,
            server.vm_state == vm_states.SOFT_DELETED,
        )
        for server in servers
    }
