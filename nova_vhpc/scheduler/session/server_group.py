# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The server group of a request, and the members of the virtual cluster."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from oslo_log import log as logging

from nova_vhpc.flavor import extra_specs
from nova_vhpc.scheduler.session.host_fit import HostInfo
from nova_vhpc.scheduler.sources import nova_db

LOG = logging.getLogger(__name__)

HINT = extra_specs.MEMBERS_HINT
"""Scheduler hint with the size of the whole virtual cluster."""

_KEY = extra_specs.BY_NAME['members']

_MOST_CHARACTERS = 40
"""Most characters of a wrong hint that are logged; tenants write hints."""


def for_request(spec_obj: Any) -> Any:
    """Return the request's server group, or None.

    The field is None in Nova's own requests without a group, and may be
    unset in those of an old release.
    """
    return spec_obj.instance_group if 'instance_group' in spec_obj else None


def cluster_size(spec_obj: Any, specs: extra_specs.ExtraSpecs) -> int:
    """Return how many members the virtual cluster will have in the end.

    The hint :data:`HINT` comes before the flavor's ``vhpc:members``. Nova's
    API passes every hint through: a wrong one is ignored with a warning, and
    so is one of a server without a server group.

    :param spec_obj: Nova's RequestSpec.
    :param specs: the flavor's ``vhpc:*`` extra specs.
    :returns: 0 if neither hint nor flavor says.
    """
    hint = spec_obj.get_scheduler_hint(HINT)
    if for_request(spec_obj) is None:
        if hint is not None:
            LOG.warning(
                'Ignoring scheduler hint %s: the server is in no server '
                'group, so the other members are unknown',
                HINT,
                instance_uuid=spec_obj.instance_uuid,
            )
        return 0
    if hint is not None:
        try:
            return int(_KEY.parse(hint))
        except ValueError:
            text = str(hint)
            LOG.warning(
                'Ignoring scheduler hint %s=%r: not %s',
                HINT,
                text[:_MOST_CHARACTERS],
                _KEY.allowed,
                instance_uuid=spec_obj.instance_uuid,
            )
    return specs.members or 0


class Members:
    """The members of a request's server group before its first plan.

    Members also run on hosts that are not among the request's, because
    Placement does not offer a full host.

    :param member_count: members that the request is for.
    :param is_move: whether the request moves a server that exists.
    :param host_infos: the hosts that may take the next member.
    :param placed: hosts on which members of this request were placed
        before the first plan, one entry per member.
    :param cluster_size: number of members that the cluster will have, 0 if
        unknown. A move ignores it: the cluster has been complete since.
    :ivar running: number of members by host name, without the one to place.
    :ivar remaining: number of members to plan for: those to place in this
        request, and :attr:`expected`.
    :ivar expected: number of members for which further requests will follow.
        If this request boots members, they are those that ``cluster_size``
        says are to come; if it unshelves the first member of a shelved
        cluster, they are all other members; if it moves a member from a host
        that is down or disabled, they are the other members that still have
        to leave it.
    """

    def __init__(
        self,
        spec_obj: Any,
        member_count: int,
        is_move: bool,
        host_infos: Collection[HostInfo],
        placed: Sequence[HostInfo],
        cluster_size: int = 0,
    ) -> None:
        self.running: dict[str, int] = {}
        self.remaining = max(0, member_count - len(placed))
        self.expected = 0
        group = for_request(spec_obj)
        if group is None:
            return
        if group.hosts or is_move:
            self._count(spec_obj, group, is_move, host_infos, placed)
        if not is_move:
            known = sum(self.running.values()) + self.remaining
            self.expected = max(0, cluster_size - known)
        self.remaining += self.expected

    def _count(
        self,
        spec_obj: Any,
        group: Any,
        is_move: bool,
        host_infos: Collection[HostInfo],
        placed: Sequence[HostInfo],
    ) -> None:
        """Count running members by host, and those that a move expects."""
        members = set(group.members or ())
        others = members - {spec_obj.instance_uuid}
        # For a move, Nova lists the hosts of one cell only.
        everywhere = frozenset(group.hosts or ())
        not_offered = set(everywhere)
        # Other workers' host states list a member only once nova-compute has
        # started it; the group's hosts have it at once.
        seen: dict[str, str] = {}
        doubtful = False
        for host_info in dict.fromkeys(host_infos):
            host = host_info.state.host
            if host in everywhere:
                here = members.intersection(host_info.state.instances)
                if here:
                    not_offered.discard(host)
                # A member that moved may still be listed on its former host.
                doubtful = doubtful or any(
                    seen.get(uuid, host) != host for uuid in here
                )
                seen.update(dict.fromkeys(here & others, host))
        locations = None
        # Another member may be starting on a host where one runs.
        if (
            not_offered
            or doubtful
            or nova_db.may_have_host(others - seen.keys())
        ):
            locations = nova_db.locate(members)
            if locations is None:
                # Each host that is not offered has at least one member.
                self._add(not_offered)
        if locations is not None:
            self._add(
                host_info.state.host
                for host_info in placed
                # The databases do not have this member yet.
                if host_info.state.host in not_offered
            )
            seen.update(locations.hosts)
            # A member whose boot failed may still be listed on that host.
            for uuid in locations.gone | (seen.keys() - others):
                seen.pop(uuid, None)
            if is_move:
                stranded = _stranded(spec_obj, locations, seen)
                for uuid, host in stranded.items():
                    if host is None:
                        del seen[uuid]
                        self.expected += 1
                    else:
                        seen[uuid] = host
        self._add(seen.values())
        if is_move and not self.running and locations is not None:
            self.expected = len(others - locations.gone)

    def _add(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            self.running[host] = self.running.get(host, 0) + 1


def _stranded(
    spec_obj: Any,
    locations: nova_db.InstanceLocations,
    seen: Mapping[str, str],
) -> dict[str, str | None]:
    """Return the members left on a host that all members have to leave.

    :param locations: hosts of all members, the one that is moved included.
    :param seen: host by uuid of the other members.
    :returns: by uuid the host that the member is being moved to, or None.
    """
    source = locations.hosts.get(spec_obj.instance_uuid)
    beside = [uuid for uuid, host in seen.items() if host == source]
    # Nova ignores the source host, except for a resize on the same host.
    avoided = ('ignore_hosts' in spec_obj and spec_obj.ignore_hosts) or ()
    if source is None or not beside or source not in avoided:
        return {}
    cell = spec_obj.requested_destination.cell
    if not nova_db.must_leave(cell, source):
        return {}
    # Operators move all servers of a host at the same time.
    destinations = nova_db.move_destinations(cell, source)
    return {uuid: destinations.get(uuid) for uuid in beside}
