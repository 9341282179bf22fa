# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which virtual clusters have members on a host.

Nova's host states list the servers of a host, but not their server groups.
Nova adds a server to its group before it looks for a host, and never to
another one. So what was read once stays true: each worker asks the API
database about servers that it has not seen before, and no thread renews
anything.

All server groups count. Nova's host states do not say which of their servers
have a parallel flavor, and to read that would cost far more than it is worth:
the clusters of hosts only decide between hosts of equal cost.
"""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.api import models
from oslo_log import log as logging

LOG = logging.getLogger(__name__)

MAX_READ = 20_000
"""Most servers that one request looks up. Those beyond count as in no group
until the next request, so that the first request to a worker of a large cloud
is not held up for long."""

QUERY_SIZE = 1000
"""Servers per query of the database."""

MAX_REMEMBERED = 200_000
"""Servers that a process remembers, about 150 bytes each, before it forgets
those that are not on the hosts of the present request."""

Read = Callable[[Collection[str]], Mapping[str, str]]
"""Returns the uuid of the server group by the uuid of the server, for those
of the servers that are in one."""


class ServerGroups:
    """The server groups of the servers that a process has seen.

    :param read: function that asks the database.
    """

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or _read
        # An empty name for a server without a group.
        self._group_of: dict[str, str] = {}

    def of_hosts(
        self, servers: Sequence[Mapping[str, object]], without: str
    ) -> list[frozenset[str]]:
        """Return the groups that have members on each of some hosts.

        :param servers: ``HostState.instances`` of each host.
        :param without: uuid of a group to leave out.
        :returns: uuids of groups. If the database did not answer, which is
            logged, those of servers that were seen before.
        """
        found = self._found(servers)
        if any(None in groups for groups in found):
            self._look_up(servers)
            found = self._found(servers)
        return [
            frozenset([name for name in groups if name and name != without])
            for groups in found
        ]

    def _found(
        self, servers: Sequence[Mapping[str, object]]
    ) -> list[set[str | None]]:
        """Return what is known of each host; None: something is not."""
        group_of = self._group_of.get
        return [set(map(group_of, here)) for here in servers]

    def _look_up(self, servers: Sequence[Mapping[str, object]]) -> None:
        known = self._group_of
        # A difference of sets would visit all known servers for each host.
        unknown = dict.fromkeys(
            [uuid for here in servers for uuid in here if uuid not in known]
        )
        if len(known) + len(unknown) > MAX_REMEMBERED:
            known = self._group_of = {
                uuid: known[uuid]
                for here in servers
                for uuid in here
                if uuid in known
            }
        wanted = list(itertools.islice(unknown, MAX_READ))
        try:
            for begin in range(0, len(wanted), QUERY_SIZE):
                uuids = wanted[begin : begin + QUERY_SIZE]
                group_of = self._read(uuids)
                known.update((uuid, group_of.get(uuid, '')) for uuid in uuids)
        except Exception:
            LOG.exception(
                'Cannot look up which virtual clusters are on the hosts; '
                'new ones are placed without regard to them'
            )


def _read(uuids: Collection[str]) -> Mapping[str, str]:
    context = nova_context.get_admin_context()
    # Nova's objects read one server's group per query.
    member, group = models.InstanceGroupMember, models.InstanceGroup
    with api_db.context_manager.reader.using(context) as session:
        return dict(
            session.query(member.instance_uuid, group.uuid)
            .join(group, group.id == member.group_id)
            .filter(member.instance_uuid.in_(uuids))
            .tuples()
        )


_server_groups = ServerGroups()


def for_process() -> ServerGroups:
    """Return the server groups that this process has seen."""
    return _server_groups


def install(server_groups: ServerGroups) -> None:
    """Make this process use the given ones; for tools and tests."""
    global _server_groups
    _server_groups = server_groups


def reset() -> None:
    """Forget all servers; for tests."""
    install(ServerGroups())
