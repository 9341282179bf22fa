# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read virtual clusters from Nova's API.

Only servers of the project of the asking server are read, so a tenant learns
nothing about other projects, whatever it writes into its metadata.
"""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from keystoneauth1 import adapter

from nova_vhpc.clients import failures, openstack
from nova_vhpc.conf import nova_api
from nova_vhpc.scheduler.sources import host_places
from nova_vhpc.vendordata import model, nova_server, opaque_ids

MICROVERSION = '2.100'
"""The first with flavor extra specs and scheduler hints in the detail view of
servers."""

_PLACE = failures.Place.of_group(nova_api.GROUP)


class NotMember(Exception):
    """The server is in no virtual cluster, or belongs to another project."""


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Turn answers of another shape, such as a proxy's, into one error."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RuntimeError(
            f'the answer of Nova cannot be read: {error!r}'
        ) from None


class NovaClusterSource:
    """Reads virtual clusters from Nova's API.

    :param client: keystoneauth adapter of the compute service, whose user
        may list the servers of all projects.
    :param id_secret: secret of :mod:`.opaque_ids`; None for no IDs.
    :param tiers: metadata keys of aggregates for switch and rack.
    :param place: where the client's options are set.
    """

    def __init__(
        self,
        client: adapter.Adapter,
        id_secret: bytes | None,
        tiers: tuple[str, str] = ('vhpc:switch', 'vhpc:rack'),
        place: failures.Place = _PLACE,
    ) -> None:
        self._client = client
        self._shows_ids = id_secret is not None
        # Without IDs, which members share a host must be known all the same.
        self._id_secret = id_secret or secrets.token_bytes()
        self._place = place
        self._tiers = tiers
        self._orders = nova_server.NicOrders(client)
        self._sees_all = False

    @_reading()
    def group_of(self, server_uuid: str, project_id: str) -> str:
        """Return the UUID of the server group of a member.

        :param server_uuid: UUID of the server that asks.
        :param project_id: ID of its project.
        :raises NotMember: the server is in no virtual cluster, or not in the
            project.
        :raises RuntimeError: Nova does not answer, refuses to, its answer is
            not what its API describes, or the credentials cannot be used.
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

    @_reading()
    def cluster(self, group_uuid: str, project_id: str) -> model.Cluster:
        """Return the virtual cluster of a server group.

        :raises NotMember: Nova has no such server group in the project.
        :raises RuntimeError: as :meth:`group_of`.
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
        return model.Cluster(
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
            shows_ids=self._shows_ids,
        )

    def _check_rights(self) -> None:
        """Check once that Nova shows us the servers of all projects.

        To a user without that right, every server of a tenant is unknown.

        :raises RuntimeError: it does not.
        """
        if not self._sees_all:
            self._get('/servers?all_tenants=1&limit=1')
            self._sees_all = True

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
                    failures.refusal(response.status_code, self._place)
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
