# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Reads the servers of this host and their groups from Nova's API."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg

from nova_vhpc.agent.clusters import membership
from nova_vhpc.clients import credentials, failures
from nova_vhpc.conf import nova_api

MICROVERSION = '2.100'

_MAX_CALLS = 16
"""Servers that are asked for at a time."""


class NovaError(Exception):
    """Nova is away, refused the request, or gave an invalid answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What Nova's API listed in one query.

    :ivar servers: UUIDs of this host's servers with ``vhpc:`` extra specs.
    :ivar clusters: virtual cluster by server; a server may have none.
    :ivar migrating: servers that Nova is about to migrate away.
    :ivar listed: UUIDs of all servers of this host in the answer.
    """

    servers: frozenset[str] = frozenset()
    clusters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    migrating: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()

    def keep_missing(
        self, previous: 'Answer', running: Collection[str]
    ) -> tuple['Answer', frozenset[str]]:
        """Add running servers that only the previous answer has.

        Nova leaves out the servers of a cell whose database is away, and
        reports success.

        :param running: servers that run on this host; only they are added.
        :returns: the completed answer, and the servers that were added.
        """
        missing = (previous.servers - self.listed).intersection(running)
        return (
            dataclasses.replace(
                self,
                servers=self.servers | missing,
                clusters={
                    **self.clusters,
                    **{
                        server: cluster
                        for server, cluster in previous.clusters.items()
                        if server in missing
                    },
                },
                migrating=self.migrating | (previous.migrating & missing),
            ),
            missing,
        )


class NovaServers:
    """Queries Nova for the servers of one host.

    :param conf: with the group ``vhpc_nova``.
    :param host: name of this host as Nova knows it (``[DEFAULT] host``).
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str) -> None:
        self._conf = conf
        self._host = host
        self._adapter: Any = None

    def fetch(self) -> Answer:
        """Query Nova once.

        :raises NovaError: Nova is away or refuses the query.
        """
        with self._translated():
            nova = self._nova()
            servers = dict(self._servers(nova))
            members = [one for one in servers.values() if one is not None]
            deleted_groups = frozenset(
                group
                for group in {member.group for member in members}
                if group is not None and self._is_deleted(nova, group)
            )
        return Answer(
            frozenset(member.server for member in members),
            membership.clusters(members, deleted_groups),
            frozenset(member.server for member in members if member.migrating),
            frozenset(servers),
        )

    def host_of(self, server: str) -> str | None:
        """Return the host on which Nova has a server; None if unknown."""
        try:
            with self._translated():
                return self._host_of(server)
        except NovaError:
            return None

    def members_of(self, cluster: str) -> dict[str, str | None]:
        """Return the hosts of a cluster's servers, by UUID.

        :param cluster: UUID of a server group, or the name that flavor or
            metadata give, with its project.
        :returns: None for a server without a host, or whose host is not
            told, as in a cell that is down.
        :raises NovaError: Nova is away, refuses the query, or knows no such
            server group.
        """
        project, _, name = cluster.rpartition('/')
        if not project:
            return self._members_of_group(name)
        with self._translated():
            return {
                server['id']: server.get('OS-EXT-SRV-ATTR:host')
                for server in self._listed(self._nova(), project_id=project)
                if (found := membership.read_server(server)) is not None
                and found.group is None
                and found.named == cluster
            }

    def _members_of_group(self, group: str) -> dict[str, str | None]:
        with self._translated():
            try:
                body = self._nova().get(f'/os-server-groups/{group}').json()
            except ksa_exceptions.NotFound:
                raise NovaError(f'Nova has no server group {group}') from None
            members = [str(one) for one in body['server_group']['members']]
            with concurrent.futures.ThreadPoolExecutor(_MAX_CALLS) as pool:
                return {
                    server: host
                    for found in pool.map(self._host_if_any, members)
                    for server, host in found.items()
                }

    def _host_if_any(self, server: str) -> dict[str, str | None]:
        """Return a server's host by its UUID; nothing if it was deleted."""
        try:
            return {server: self._host_of(server)}
        except ksa_exceptions.NotFound:
            return {}

    def _host_of(self, server: str) -> str | None:
        body = self._nova().get(f'/servers/{server}').json()
        host = body['server'].get('OS-EXT-SRV-ATTR:host')
        return host if isinstance(host, str) else None

    def disconnect(self) -> None:
        """Drop the session; the next query logs in again."""
        self._adapter = None

    def _nova(self) -> Any:
        if self._adapter is None:
            try:
                self._adapter = credentials.adapter(
                    self._conf,
                    nova_api.GROUP,
                    default_microversion=MICROVERSION,
                )
            except credentials.UnusableError as error:
                raise NovaError(str(error)) from error
        return self._adapter

    def _servers(
        self, nova: Any
    ) -> Iterator[tuple[str, membership.Membership | None]]:
        """Yield the UUID of every server of this host, and its membership.

        The membership is None for a server without ``vhpc:`` extra specs.
        """
        for server in self._listed(nova, host=self._host):
            yield server['id'], membership.read_server(server)

    @staticmethod
    def _listed(nova: Any, **query: str) -> Iterator[Mapping[str, Any]]:
        """Yield the servers of all projects that a query finds."""
        params = {**query, 'all_tenants': '1'}
        while True:
            body = nova.get('/servers/detail', params=params).json()
            for server in body['servers']:
                # Servers of a cell that is down may be stubs without flavor.
                if server.get('flavor') is not None:
                    yield server
            links = body.get('servers_links') or []
            if not body['servers'] or not any(
                link.get('rel') == 'next' for link in links
            ):
                return
            params['marker'] = body['servers'][-1]['id']

    @staticmethod
    def _is_deleted(nova: Any, group: str) -> bool:
        try:
            nova.get(f'/os-server-groups/{group}')
        except ksa_exceptions.NotFound:
            return True
        except ksa_exceptions.Forbidden:
            # Without permission to see the group, the server's scheduler
            # hint is trusted.
            return False
        return False

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except NovaError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise NovaError(f'the answer is invalid: {error!r}') from error
        except Exception as error:
            if not failures.is_connection_error(error):
                raise
            raise NovaError(
                failures.reason(
                    error,
                    credentials.place(self._conf, nova_api.GROUP),
                    self._adapter,
                )
            ) from error
