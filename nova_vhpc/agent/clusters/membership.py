# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Reads the virtual cluster of servers from Nova's answer or a groups file.

Pure: no network, no clock.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.agent.clusters import protocol
from nova_vhpc.flavor import extra_specs

METADATA_KEY = 'vhpc:cluster'


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
    """

    server: str
    group: str | None = None
    named: str | None = None
    migrating: bool = False


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
    return Membership(
        server=server['id'],
        group=hint,
        named=None if name is None else scoped(name, server.get('tenant_id')),
        migrating=server.get('OS-EXT-STS:task_state') == 'migrating',
    )


def clusters(
    memberships: Iterable[Membership], deleted_groups: frozenset[str]
) -> dict[str, str]:
    """Return the virtual cluster by server.

    :param deleted_groups: server groups that were deleted; a server that was
        booted into one is in no cluster, unless one is named.
    """
    cluster_by_server = {}
    for membership in memberships:
        group = membership.group
        if group in deleted_groups:
            group = None
        cluster = group or membership.named
        if cluster is not None:
            cluster_by_server[membership.server] = cluster
    return cluster_by_server


def read_file(content: Any) -> dict[str, str]:
    """Return the virtual cluster by server from a groups file.

    :param content: content of the file, parsed as YAML.
    :raises ValueError: naming the invalid part.
    """
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError('it must map cluster names to lists of servers')
    cluster_by_server: dict[str, str] = {}
    for cluster, servers in content.items():
        if len(str(cluster)) > protocol.MAX_NAME:
            raise ValueError(
                f"'{str(cluster)[:32]}...' is no name of a cluster: it has "
                f'more than {protocol.MAX_NAME} characters'
            )
        if not isinstance(servers, list):
            raise ValueError(f"'{cluster}' must be a list of server uuids")
        for server in servers:
            if not isinstance(server, str):
                # Not printed: YAML's aliases can make it endless.
                raise ValueError(f"'{cluster}' has a server that is no text")
            first_cluster = cluster_by_server.setdefault(server, str(cluster))
            if first_cluster != str(cluster):
                raise ValueError(
                    f'server {server} is in {first_cluster} and in {cluster}'
                )
    return cluster_by_server
