# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read the servers of this host, and their virtual clusters, from Nova."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg

from nova_vhpc.agent.clusters import names
from nova_vhpc.clients import credentials, failures
from nova_vhpc.conf import nova_api
from nova_vhpc.flavor import extra_specs

MICROVERSION = '2.100'

METADATA_KEY = 'vhpc:cluster'

_MAX_CALLS = 16
"""Servers that are asked for at a time."""


class NovaError(Exception):
    """Nova is away, refused the request, or gave an invalid answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Membership:
    """Cluster membership of one server with ``vhpc:`` extra specs.

    :ivar server: UUID of the server.
    :ivar group: UUID of the server group that the server was booted into;
        None without one.
    :ivar named: cluster name from metadata or flavor, with its project;
        None without one.
    :ivar migrating: whether Nova is migrating the server to another host, or
        is about to.
    :ivar project: the server's project; None if unknown.
    """

    server: str
    group: str | None = None
    named: str | None = None
    migrating: bool = False
    project: str | None = None


def scoped(name: str, project: str | None) -> str:
    """Return a cluster name that is unique between projects.

    Tenants write the metadata, and many tenants use the same flavor, so the
    same name in two projects means two clusters.

    :param name: name from the server's metadata or flavor.
    :param project: the server's project; None if unknown.
    """
    return name if project is None else f'{project}/{name}'


def read_server(server: Mapping[str, Any]) -> Membership | None:
    """Return the membership of one entry of ``GET /servers/detail``.

    Needs microversion 2.100, which has the scheduler hints.

    :returns: None for a server without ``vhpc:`` extra specs, and for the
        stub that Nova returns for a server of a cell that is down.
    """
    flavor = server.get('flavor') or {}
    specs = flavor.get('extra_specs') or {}
    if not extra_specs.requested(specs):
        return None
    hint = (server.get('scheduler_hints') or {}).get('group')
    if isinstance(hint, list):
        hint = hint[0] if hint else None
    metadata = server.get('metadata') or {}
    name = extra_specs.parse(
        {METADATA_KEY: metadata[METADATA_KEY]}
        if METADATA_KEY in metadata
        else {METADATA_KEY: specs[METADATA_KEY]}
        if METADATA_KEY in specs
        else {}
    ).cluster
    project = server.get('tenant_id')
    return Membership(
        server=server['id'],
        group=_name_or_none(hint),
        named=_name_or_none(name and scoped(name, project)),
        migrating=server.get('OS-EXT-STS:task_state') == 'migrating',
        project=project,
    )


def _name_or_none(text: Any) -> str | None:
    is_name = isinstance(text, str) and names.is_name(text)
    return text if is_name else None


def clusters(
    memberships: Iterable[Membership], deleted_groups: frozenset[str]
) -> dict[str, str]:
    """Return the virtual cluster by server.

    :param deleted_groups: server groups that were deleted; a server that was
        booted into one is in no cluster, unless one is named.
    """
    cluster_by_server = {}
    for member in memberships:
        group = member.group
        if group in deleted_groups:
            group = None
        cluster = group or member.named
        if cluster is not None:
            cluster_by_server[member.server] = cluster
    return cluster_by_server


@dataclasses.dataclass(frozen=True, slots=True)
class Unlisted:
    """Servers that run here and that Nova's answer does not list.

    Nova answers with an empty list, and reports success, for a host that it
    does not know and for a cell whose database is away.

    :ivar host: the host of which Nova was asked.
    :ivar servers: the servers that Nova does not list.
    :ivar running: number of servers that run here.
    :ivar was_listed: whether an earlier answer had any of the servers.
    """

    host: str
    servers: frozenset[str]
    running: int
    was_listed: bool

    def reason(self, host_of: Callable[[str], str | None]) -> str:
        """Return what is wrong and what to do.

        :param host_of: returns the host that Nova has a server on, or None.
        """
        count = len(self.servers)
        if self.was_listed:
            return (
                f'Nova does not list {count} of {self.running} servers that '
                "run here; is their cell's database away?"
            )
        server = min(self.servers)
        host = host_of(server)
        if count < self.running or host == self.host:
            where = '' if host is None else f' (it has {server} on {host})'
            return (
                f'Nova does not list {count} of {self.running} servers that '
                f'run here{where}; were they moved to another host?'
            )
        question = (
            f'Nova names none of the {count} servers that run here among the '
            f'servers of host {self.host}'
        )
        if host is not None:
            return (
                f'{question}: it has {server} on {host}; set [vhpc_agent]host '
                f"to that name, which is nova-compute's [DEFAULT]host"
            )
        return (
            f"{question}; is [vhpc_agent]host what nova-compute's "
            '[DEFAULT]host is (openstack compute service list)?'
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What Nova's API listed in one query.

    :ivar servers: UUIDs of this host's servers with ``vhpc:`` extra specs.
    :ivar clusters: virtual cluster by server; a server may have none.
    :ivar migrating: servers that Nova is about to migrate away.
    :ivar listed: UUIDs of all servers of this host in the answer.
    :ivar projects: project by server group.
    """

    servers: frozenset[str] = frozenset()
    clusters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    migrating: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    projects: dict[str, str] = dataclasses.field(default_factory=dict)

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
        kept = {
            server: cluster
            for server, cluster in previous.clusters.items()
            if server in missing
        }
        projects = {
            cluster: project
            for cluster, project in previous.projects.items()
            if cluster in kept.values()
        }
        return (
            dataclasses.replace(
                self,
                servers=self.servers | missing,
                clusters={**self.clusters, **kept},
                migrating=self.migrating | (previous.migrating & missing),
                projects=projects | self.projects,
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
            clusters(members, deleted_groups),
            frozenset(member.server for member in members if member.migrating),
            frozenset(servers),
            {
                member.group: member.project
                for member in members
                if member.group is not None and member.project is not None
            },
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
                if (found := read_server(server)) is not None
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

    def _servers(self, nova: Any) -> Iterator[tuple[str, Membership | None]]:
        """Yield the UUID of every server of this host, and its

        The membership is None for a server without ``vhpc:`` extra specs.
        """
        for server in self._listed(nova, host=self._host):
            yield server['id'], read_server(server)

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
