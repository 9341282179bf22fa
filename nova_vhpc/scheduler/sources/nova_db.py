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

"""Where Nova's databases have the members of a server group.

The request names the group's members and their hosts, but not who is where;
host states tell that, and which aggregates a host is in, of the hosts only
that Placement offers.
"""

from collections.abc import Collection, Iterable, Set
from typing import Any, NamedTuple

from nova import context as nova_context
from nova import objects, servicegroup
from nova.compute import vm_states
from nova.objects import fields
from oslo_log import log as logging

from nova_vhpc.flavor import cpu_policy
from nova_vhpc.scheduler.planner.model import one_of

LOG = logging.getLogger(__name__)

TIMEOUT_S = 5.0
"""For all cells together; without an answer the numbers are estimated."""

MAX_REMEMBERED = 10_000
"""Members on no host that a process remembers; some 100 bytes each."""

_STARTING = (vm_states.BUILDING, vm_states.SHELVED_OFFLOADED)

_EVACUATING = ('accepted', 'pre-migrating')
"""States of an evacuation until its server runs again."""

# Deleted ones, which stay in their group until Nova's database is archived,
# and those whose boot has failed.
_without_host: dict[str, None] = {}


class InstanceLocations(NamedTuple):
    """What the databases have of some members.

    :ivar hosts: host by member, of those that are on one.
    :ivar gone: those that are on none and will not come to one by a request
        of their own: deleted, also softly, or failed.
    """

    hosts: dict[str, str]
    gone: frozenset[str]


def locate(uuids: Collection[str]) -> InstanceLocations | None:
    """Find members: one query of the API database, one of each cell.

    :param uuids: of the members.
    :returns: None if not all of the databases answered; it is logged.
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
    found: dict[str, _Server] = {}
    for cell, answer in answers.items():
        if nova_context.is_cell_failure_sentinel(answer):
            LOG.warning(
                'Cell %s does not tell where the members of a server group '
                'are; their number is estimated',
                cell,
            )
            return None
        found.update(answer)
    booting = {m.instance_uuid for m in mappings if m.cell_mapping is None}
    gone = set(uuids) - booting - found.keys()
    gone.update(uuid for uuid, server in found.items() if server.failed)
    _remember(gone)
    # These may be restored where they are.
    gone.update(uuid for uuid, server in found.items() if server.deleted)
    return InstanceLocations(
        {
            uuid: server.host
            for uuid, server in found.items()
            if server.host and uuid not in gone
        },
        frozenset(gone),
    )


class MoveSource(NamedTuple):
    """A server where it runs, which it may be about to leave.

    :ivar shared: vCPUs that share the host's CPUs.
    :ivar dedicated: vCPUs with a dedicated CPU each.
    """

    host: str
    node: str
    shared: int
    dedicated: int = 0


def move_source(spec_obj: Any) -> MoveSource | None:
    """What a server that is moved has where it is: one query of its cell.

    Host states do not say it: Nova forgets there that a server is on its
    host once a resize on it is confirmed.

    :returns: None where it is on no host, or the database does not answer;
        that is logged.
    """
    cell = spec_obj.requested_destination.cell
    try:
        # Nova waits for no cell without end either, when it makes its host
        # states.
        server = nova_context.scatter_gather_cells(
            nova_context.get_admin_context(),
            [cell],
            TIMEOUT_S,
            _with_flavor,
            spec_obj.instance_uuid,
        )[cell.uuid]
        if nova_context.is_cell_failure_sentinel(server):
            LOG.warning(
                'Cell %s does not tell what server %s has now; its vCPUs '
                'count twice where it is',
                cell.uuid,
                spec_obj.instance_uuid,
            )
            return None
        flavor = server.flavor
    except Exception:
        LOG.exception(
            'Cannot look up what server %s has now', spec_obj.instance_uuid
        )
        return None
    if not server.host:
        return None
    dedicated = cpu_policy.dedicated(flavor.vcpus, flavor.extra_specs)
    return MoveSource(
        server.host, server.node, flavor.vcpus - dedicated, dedicated
    )


def is_down(cell: Any, host: str) -> bool:
    """Whether servers have to be evacuated from a host: one query.

    As Nova sees it: its nova-compute was forced down, or has been silent.

    :param cell: of the host, as Nova's CellMapping.
    :param host: name.
    :returns: False where the database does not answer, which is logged.
    """
    try:
        service = nova_context.scatter_gather_cells(
            nova_context.get_admin_context(),
            [cell],
            TIMEOUT_S,
            objects.Service.get_by_compute_host,
            host,
        )[cell.uuid]
        if not nova_context.is_cell_failure_sentinel(service):
            return not servicegroup.API().service_is_up(service)
        LOG.warning(
            'Cell %s does not tell whether host %s is down', cell.uuid, host
        )
    except Exception:
        LOG.exception('Cannot look up whether host %s is down', host)
    return False


def evacuation_destinations(cell: Any, source: str) -> dict[str, str]:
    """Where servers that are being evacuated go to: one query.

    Nova says of a server that it is where it was until it runs again, which
    may take minutes.

    :param cell: of the host, as Nova's CellMapping.
    :param source: name of the host that they leave.
    :returns: host by server, of those that have arrived at one; of none
        where the database does not answer, which is logged.
    """
    try:
        migrations = nova_context.scatter_gather_cells(
            nova_context.get_admin_context(),
            [cell],
            TIMEOUT_S,
            objects.MigrationList.get_by_filters,
            {
                'source_compute': source,
                'migration_type': fields.MigrationType.EVACUATION,
                'status': list(_EVACUATING),
            },
        )[cell.uuid]
        if not nova_context.is_cell_failure_sentinel(migrations):
            return {
                migration.instance_uuid: migration.dest_compute
                for migration in migrations
                if migration.dest_compute
            }
        LOG.warning(
            'Cell %s does not tell where the servers of host %s go to',
            cell.uuid,
            source,
        )
    except Exception:
        LOG.exception('Cannot look up where servers of host %s go to', source)
    return {}


def _with_flavor(context: Any, uuid: str) -> Any:
    """One server of a cell, with its flavor."""
    return objects.Instance.get_by_uuid(
        context, uuid, expected_attrs=['flavor']
    )


def may_have_host(uuids: Iterable[str]) -> bool:
    """Whether members may be on a host by now, as far as remembered.

    So that a group's deleted members do not cost a query at every boot.
    """
    return any(uuid not in _without_host for uuid in uuids)


def _remember(nowhere: Set[str]) -> None:
    if len(_without_host) + len(nowhere) > MAX_REMEMBERED:
        _without_host.clear()
    _without_host.update(dict.fromkeys(nowhere))


def racks(hosts: Set[str], key: str) -> dict[str, str]:
    """Racks of hosts: one query of the API database.

    :param hosts: names.
    :param key: of the aggregates' metadata.
    :returns: rack by host, of those that are in one; of none where the
        database does not answer, which is logged.
    """
    try:
        aggregates = objects.AggregateList.get_by_metadata_key(
            nova_context.get_admin_context(), key, hosts=hosts
        )
        found: dict[str, str] = {}
        for aggregate in aggregates:
            rack = aggregate.metadata[key]
            for host in hosts & set(aggregate.hosts):
                if name := one_of(found.get(host), rack):
                    found[host] = name
        return found
    except Exception:
        LOG.exception('Cannot look up the racks of a server group')
        return {}


class _Server(NamedTuple):
    host: str | None
    failed: bool
    deleted: bool


def _servers(context: Any, uuids: Collection[str]) -> dict[str, _Server]:
    """What one cell has of servers that are not deleted for good."""
    found = objects.InstanceList.get_by_filters(
        context,
        {'uuid': uuids, 'deleted': False, 'soft_deleted': True},
        expected_attrs=[],
    )
    return {
        server.uuid: _Server(
            server.host,
            # Of those on no host a boot or an unshelving may still end on one.
            not server.host and server.vm_state not in _STARTING,
            server.vm_state == vm_states.SOFT_DELETED,
        )
        for server in found
    }
