# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read virtual clusters with the rights of the user who asks.

Whoever may not see hosts or Placement gets the clusters without them, and a
sentence that says so.
"""

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from nova_vhpc.cli.cluster_model import UNKNOWN, Cluster, Host, Member
from nova_vhpc.clients import openstack
from nova_vhpc.explain import cloud
from nova_vhpc.explain.cloud import server_groups
from nova_vhpc.flavor import request_groups
from nova_vhpc.scheduler.sources import claimed_rails, host_places
from nova_vhpc.scheduler.sources.snapshot import HostUplinks
from nova_vhpc.topology import model
from nova_vhpc.vendordata import nova, nova_server

_MOST_CALLS = 16
"""Members whose claims are read at a time."""

_NO_STATE = 0
"""Nova's power state of a server whose host does not say."""

_Value = TypeVar('_Value')

HOSTS_UNSEEN = (
    'Not shown: the hosts, switches, racks and uplinks of members, how full '
    'the hosts are, and the CPU time that members receive. Only an '
    'administrator may see them; ask the operator of the cloud.'
)
UPLINKS_UNSEEN = (
    'Not shown: the uplinks of hosts, and where agents run. Placement tells '
    'only users with the role admin or service, by a token of a project.'
)
CLAIMS_UNSEEN = (
    'Not shown: which uplinks members have claimed. Placement tells only '
    'users with the role admin or service, by a token of a project.'
)


class ClusterReader:
    """Reads virtual clusters from Nova and Placement.

    :param connection: openstacksdk connection of the user.
    :param tiers: metadata keys of aggregates for switch and rack.
    :ivar unseen: what the user may not see, a sentence each.
    """

    def __init__(
        self,
        connection: Any,
        tiers: tuple[str, str] = ('vhpc:switch', 'vhpc:rack'),
    ) -> None:
        self._connection = connection
        self._tiers = tiers
        self.unseen: list[str] = []

    def every(self, all_projects: bool) -> list[Cluster]:
        """Return all clusters, by name.

        :param all_projects: of all projects, instead of the user's own.
        :raises CloudError: the cloud does not answer, or the user may not see
            all projects.
        """
        with openstack.read():
            try:
                groups = list(
                    server_groups.every(self._connection, all_projects)
                )
                servers = {
                    server['id']: server
                    for server in self._servers(all_projects)
                }
            except openstack.RefusedError:
                raise _explained(self._connection, all_projects) from None
            found = [_cluster(group, servers) for group in groups]
            clusters = self._completed(one for one in found if one.members)
        return sorted(clusters, key=lambda one: (one.name, one.uuid))

    def one(self, name: str, all_projects: bool) -> Cluster:
        """Return one cluster.

        :param name: ID or name of the server group; an ID wins.
        :param all_projects: look among those of all projects.
        :raises CloudError: there is no such cluster, or several have the
            name, or the cloud does not answer.
        """
        with openstack.read():
            try:
                group = server_groups.find(
                    self._connection, name, all_projects
                )
            except openstack.RefusedError:
                raise _explained(self._connection, all_projects) from None
            servers = server_groups.servers(
                self._connection, group, nova.MICROVERSION
            )
            cluster = _cluster(group, servers)
            if not cluster.members:
                raise openstack.CloudError(
                    f"server group '{name}' is no virtual cluster: it has no "
                    'server whose flavor has vhpc: extra specs; see '
                    'openstack vhpc flavor set'
                )
            return self._completed([cluster])[0]

    def hosts(self) -> dict[str, Host] | None:
        """Return all compute hosts by name; None if they may not be seen."""
        aggregates = self._permitted(
            lambda: self._compute('/os-aggregates', cloud.AGGREGATES_VERSION)[
                'aggregates'
            ]
        )
        hypervisors = self._permitted(
            lambda: list(cloud.hypervisors(self._connection))
        )
        if aggregates is None or hypervisors is None:
            return None
        snapshot = self._permitted(lambda: cloud.uplinks(self._connection))
        if snapshot is None:
            self.unseen.append(UPLINKS_UNSEEN)
        uplinks = {} if snapshot is None else snapshot.hosts
        places = host_places.places(aggregates, *self._tiers)
        found = {}
        for hypervisor in hypervisors:
            name = openstack.text(hypervisor['service']['host'])
            switch, rack = places.get(name, (None, None))
            published = uplinks.get(hypervisor['id'])
            found[name] = Host(
                name=name,
                cpus=openstack.count(hypervisor['vcpus'] or 0),
                used_vcpus=openstack.count(hypervisor['vcpus_used'] or 0),
                state=openstack.text(hypervisor['state']),
                switch=switch,
                rack=rack,
                uplinks=published,
                silent_minutes=_silent_minutes(published),
                published_known=snapshot is not None,
            )
        return found

    def _completed(self, clusters: Iterable[Cluster]) -> list[Cluster]:
        """Return clusters with hosts and claims, if they may be seen."""
        found = list(clusters)
        if not found:
            return found
        hosts = self.hosts()
        if hosts is None:
            self.unseen.append(HOSTS_UNSEEN)
            return found
        claims = self._claims(
            [
                member.uuid
                for cluster in found
                for member in cluster.members
                if _may_claim(member)
            ]
        )
        return [_joined(cluster, hosts, claims) for cluster in found]

    def _claims(self, uuids: list[str]) -> dict[str, tuple[str, ...]] | None:
        """Return the uplinks that servers have claimed, by server.

        :returns: None if the user may not see them.
        """
        if not uuids:
            return {}

        def read(uuid: str) -> tuple[str, ...]:
            answer = openstack.get(
                self._connection.placement,
                f'/allocations/{uuid}',
                claimed_rails.VERSION,
            )
            return model.uplinks_in(answer['allocations'])

        try:
            # The first alone: it tells whether the user may read the others.
            first = read(uuids[0])
        except openstack.RefusedError:
            self.unseen.append(CLAIMS_UNSEEN)
            return None
        with concurrent.futures.ThreadPoolExecutor(_MOST_CALLS) as pool:
            return dict(
                zip(uuids, (first, *pool.map(read, uuids[1:])), strict=True)
            )

    def _servers(self, all_projects: bool) -> Iterator[Mapping[str, Any]]:
        """Yield servers, page by page.

        Servers of cells that are down come first, with little but their ID.
        Nova cannot go on from one of them.
        """
        path = '/servers/detail?' + ('all_tenants=1&' if all_projects else '')
        marker = ''
        while page := self._compute(path + marker)['servers']:
            yield from page
            if 'name' not in page[-1]:
                return
            marker = f'marker={page[-1]["id"]}'

    def _compute(self, path: str, version: str = nova.MICROVERSION) -> Any:
        return openstack.get(self._connection.compute, path, version)

    def _permitted(self, read: Callable[[], _Value]) -> _Value | None:
        """Return what a reader returns; None if the user may not read it."""
        try:
            return read()
        except openstack.RefusedError:
            return None


def _explained(connection: Any, all_projects: bool) -> openstack.CloudError:
    """Return what to say of a refusal."""
    wrong_scope = openstack.wrong_scope(connection)
    if wrong_scope:
        return openstack.CloudError(f'Nova refuses this: {wrong_scope}')
    if not all_projects:
        return openstack.CloudError(
            'Nova does not let this user see the servers and server groups of '
            'the project: by default, that takes the role reader or member in '
            'it, and a token of that project'
        )
    return openstack.CloudError(
        'only an administrator may see the clusters of all projects: leave '
        'out --all-projects to see those of your own'
    )


def _cluster(
    group: Mapping[str, Any], servers: Mapping[str, Mapping[str, Any]]
) -> Cluster:
    members = [
        _member(servers[uuid])
        for uuid in group['members']
        if uuid in servers and nova_server.opted_in(servers[uuid])
    ]
    return Cluster(
        uuid=openstack.text(group['id']),
        name=openstack.text(group['name']),
        project_id=openstack.text(group['project_id']),
        policy=openstack.text(group['policy']),
        members=tuple(sorted(members, key=lambda m: (m.name, m.uuid))),
    )


def _member(server: Mapping[str, Any]) -> Member:
    """Return the member for a server; in a cell that is down it has only
    its ID."""
    flavor = server.get('flavor') or {}
    specs = flavor.get('extra_specs')
    vcpus, name = flavor.get('vcpus'), flavor.get('original_name')
    return Member(
        uuid=openstack.text(server['id']),
        name=openstack.text(server.get('name') or server['id']),
        status=openstack.text(server.get('status') or UNKNOWN),
        running=_is_running(server),
        vcpus=None if vcpus is None else openstack.count(vcpus),
        flavor=None if name is None else openstack.text(name),
        specs=None if specs is None else dict(specs),
        host_id=server.get('hostId') or None,
        host=server.get('OS-EXT-SRV-ATTR:host') or None,
        project_id=openstack.text(server.get('tenant_id', '')),
        hostname=nova_server.hostname_of(server),
    )


def _is_running(server: Mapping[str, Any]) -> bool | None:
    """Return whether a server runs; None if Nova does not know."""
    if server.get('status', UNKNOWN) == UNKNOWN:
        return None
    is_running = nova_server.is_running(server)
    if (
        not is_running
        and server.get('OS-EXT-STS:power_state') == _NO_STATE
        and nova_server.is_running({**server, 'OS-EXT-STS:power_state': 1})
    ):
        return None
    return is_running


def _silent_minutes(published: HostUplinks | None) -> int | None:
    """Return the minutes since an agent last published; None if unknown."""
    if published is None or published.stamp_minutes is None:
        return None
    return max(0, model.stamp(time.time()) - published.stamp_minutes)


def _may_claim(member: Member) -> bool:
    """Return whether the flavor of a member requests uplinks, or may."""
    specs = member.specs
    return specs is None or request_groups.requested_uplinks(specs) > 0


def _joined(
    cluster: Cluster,
    hosts: Mapping[str, Host],
    claims: Mapping[str, tuple[str, ...]] | None,
) -> Cluster:
    """Return a cluster with its hosts and the claims of its members."""
    names = sorted({m.host for m in cluster.members if m.host})
    members = tuple(
        dataclasses.replace(
            member,
            claims=None if claims is None else claims.get(member.uuid, ()),
        )
        for member in cluster.members
    )
    return dataclasses.replace(
        cluster,
        members=members,
        hosts={name: hosts[name] for name in names if name in hosts},
    )
