# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read virtual clusters from Nova's API.

Only servers of the project of the asking server are read, so a tenant learns
nothing about other projects, whatever it writes into its metadata.
"""

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

from keystoneauth1 import adapter

from nova_vhpc.clients import failures, openstack
from nova_vhpc.conf import nova_api
from nova_vhpc.scheduler.sources import host_places
from nova_vhpc.vendordata import model, nova_server, opaque_ids

MICROVERSION = '2.100'
"""The first with flavor extra specs and scheduler hints in the detail view of
servers."""

_Value = TypeVar('_Value')
_PLACE = failures.Place.of_group(nova_api.GROUP)


class NotMember(Exception):
    """The server is in no virtual cluster, or belongs to another project."""


class SharedReads(Generic[_Value]):
    """The reads that are under way, by key.

    Threads that want the same at the same time share one: a cache alone does
    not help them, because it is empty until the first read has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, concurrent.futures.Future[_Value]] = {}

    def get(self, key: Hashable, read: Callable[[], _Value]) -> _Value:
        """Return what a read returns that is under way, or else a new one.

        A read that is under way may have begun before the caller knew of
        what it wants to read.

        :param key: equal for callers that want the same.
        :param read: reads, in the thread of the first caller.
        :raises Exception: what the read raised, in all threads.
        """
        with self._lock:
            future = self._under_way.get(key)
            is_first = future is None
            if future is None:
                future = self._under_way[key] = concurrent.futures.Future()
        if is_first:
            try:
                future.set_result(read())
            except BaseException as error:
                future.set_exception(error)
            finally:
                with self._lock:
                    del self._under_way[key]
        return future.result()


class NovaClusterSource:
    """Reads virtual clusters from Nova's API, and caches them.

    :param client: keystoneauth adapter of the compute service, whose user
        may list the servers of all projects.
    :param id_secret: secret of :mod:`.opaque_ids`.
    :param ttl_s: time in seconds for which a cluster is cached, because all
        its members boot and ask at the same time.
    :param tiers: metadata keys of aggregates for switch and rack.
    :param place: where the client's options are set.
    """

    def __init__(
        self,
        client: adapter.Adapter,
        id_secret: bytes,
        ttl_s: float,
        tiers: tuple[str, str] = ('vhpc:switch', 'vhpc:rack'),
        place: failures.Place = _PLACE,
    ) -> None:
        self._client = client
        self._id_secret = id_secret
        self._place = place
        self._ttl_s = ttl_s
        self._tiers = tiers
        self._orders = nova_server.NicOrders(client)
        self._lock = threading.Lock()
        self._sees_all = False
        self._reads = SharedReads[model.Cluster]()
        self._cached: dict[str, tuple[float, str, model.Cluster]] = {}

    def cluster(self, server_uuid: str, project_id: str) -> model.Cluster:
        """Return the virtual cluster of a server.

        :param server_uuid: UUID of the server that asks.
        :param project_id: ID of its project.
        :raises NotMember: the server is in no virtual cluster, or not in the
            project.
        :raises RuntimeError: Nova does not answer, refuses to, its answer is
            not what its API describes, or the credentials cannot be used.
        """
        cached = self._find_cached(server_uuid, project_id)
        if cached is not None:
            return cached
        try:
            return self._read(server_uuid, project_id)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # For example the answer of a proxy.
            raise RuntimeError(
                f'the answer of Nova about server {server_uuid} cannot be '
                f'read: {error!r}'
            ) from None

    def _read(self, server_uuid: str, project_id: str) -> model.Cluster:
        group = self._group_of(server_uuid, project_id)
        # A read that was under way may have begun before Nova had the server,
        # but the one after it has not.
        for _ in range(2):
            cluster = self._reads.get(
                (project_id, group),
                lambda: self._read_cluster(group, project_id),
            )
            if cluster.rank(server_uuid) is not None:
                return cluster
        raise NotMember(f'server {server_uuid} left its server group')

    def _group_of(self, server_uuid: str, project_id: str) -> str:
        """Return the UUID of the server group of a member.

        :raises NotMember: the server is in no virtual cluster, or not in the
            project.
        """
        try:
            server = self._get(f'/servers/{server_uuid}', missing=NotMember)[
                'server'
            ]
        except NotMember:
            self._check_rights()
            raise
        if server['tenant_id'] != project_id:
            raise NotMember(f'server {server_uuid} is not of this project')
        if 'flavor' not in server:
            raise RuntimeError(f'the cell of server {server_uuid} is down')
        if not nova_server.opted_in(server):
            raise NotMember(
                f'the flavor of server {server_uuid} has no vhpc: extra specs'
            )
        groups = server.get('server_groups') or []
        if not groups:
            raise NotMember(f'server {server_uuid} is in no server group')
        return openstack.text(groups[0])

    def _read_cluster(self, group_uuid: str, project_id: str) -> model.Cluster:
        """Read a virtual cluster, and cache it.

        :raises NotMember: Nova has no such server group in the project.
        """
        group = self._get(
            f'/os-server-groups/{group_uuid}', missing=NotMember
        )['server_group']
        if group.get('project_id', project_id) != project_id:
            raise NotMember(f'group {group["id"]} is not of this project')
        servers = self._cluster_servers(set(group['members']), project_id)
        orders = self._orders.find(filter(nova_server.is_running, servers))
        tiers = host_places.places(
            self._get('/os-aggregates')['aggregates'], *self._tiers
        )
        ids = opaque_ids.OpaqueIds(project_id, self._id_secret)
        cluster = model.Cluster(
            uuid=openstack.text(group['id']),
            name=openstack.text(group['name']),
            members=model.ranked(
                nova_server.member_of(
                    each, ids, tiers, orders.get(each['id'], ())
                )
                for each in servers
            ),
            expected=max(
                map(nova_server.expected_members, servers), default=0
            ),
            host_names={
                openstack.text(each['id']): openstack.text(host)
                for each in servers
                if (host := each.get('OS-EXT-SRV-ATTR:host'))
            },
        )
        with self._lock:
            now = time.monotonic()
            self._cached = {
                uuid: entry
                for uuid, entry in self._cached.items()
                if entry[0] > now
            }
            self._cached[cluster.uuid] = (
                now + self._ttl_s,
                project_id,
                cluster,
            )
        return cluster

    def _check_rights(self) -> None:
        """Check once that Nova shows us the servers of all projects.

        To a user without that right, every server of a tenant is unknown.

        :raises RuntimeError: it does not.
        """
        if not self._sees_all:
            self._get('/servers?all_tenants=1&limit=1')
            self._sees_all = True

    def _find_cached(
        self, server_uuid: str, project_id: str
    ) -> model.Cluster | None:
        now = time.monotonic()
        with self._lock:
            for expiry, owner, cluster in self._cached.values():
                if (
                    expiry > now
                    and owner == project_id
                    and cluster.rank(server_uuid) is not None
                ):
                    return cluster
        return None

    def _cluster_servers(
        self, uuids: set[str], project_id: str
    ) -> list[Mapping[str, Any]]:
        """Return the servers of a group that are of the virtual cluster."""
        found: dict[str, Mapping[str, Any]] = {}
        missing = set(uuids)
        url = f'/servers/detail?all_tenants=1&project_id={project_id}'
        marker = ''
        while missing:
            # The length of a page is Nova's [api] max_limit.
            page = self._get(url + marker)['servers']
            if not page:
                break
            for server in page:
                if server['id'] in uuids and server['tenant_id'] == project_id:
                    found[server['id']] = server
            missing.difference_update(server['id'] for server in page)
            marker = f'&marker={page[-1]["id"]}'
        self._check_unlisted(missing, project_id)
        return list(filter(nova_server.opted_in, found.values()))

    def _check_unlisted(self, uuids: set[str], project_id: str) -> None:
        """Check servers of a group that the list of its project lacks.

        Those that were deleted meanwhile, or are of other projects, are no
        members. But Nova also leaves out the servers of a cell whose database
        is away, and says nothing of it.

        :raises RuntimeError: a server is of the project; the cluster without
            it would seem to be complete, and have other ranks.
        """
        for uuid in sorted(uuids):
            with contextlib.suppress(NotMember):
                server = self._get(f'/servers/{uuid}', missing=NotMember)
                if server['server']['tenant_id'] == project_id:
                    raise RuntimeError(
                        f'Nova does not list member {uuid}: its cell is down'
                    )

    def _get(
        self, url: str, missing: type[Exception] | None = None
    ) -> dict[str, Any]:
        try:
            response = self._client.get(
                url, microversion=MICROVERSION, raise_exc=False
            )
        except Exception as error:
            if not failures.is_connection_error(error):
                raise
            raise RuntimeError(
                failures.reason(error, self._place, self._client)
            ) from None
        if response.status_code == 404 and missing is not None:
            raise missing(f'Nova has no {url}')
        if response.status_code != 200:
            raise RuntimeError(
                f'Nova answered GET {url.split("?")[0]} with '
                f'{response.status_code}: '
                + (
                    failures.refusal(
                        response.status_code, self._place, self._client
                    )
                    or response.text[:200]
                )
            )
        try:
            body: dict[str, Any] = response.json()
        except ValueError as error:
            # For example the error page of a proxy.
            raise RuntimeError(
                f'Nova answered GET {url.split("?")[0]}, but not with JSON: '
                f'{error}'
            ) from None
        return body
