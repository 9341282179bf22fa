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


"""Which virtual cluster a server is in: pure reading of what Nova says."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.agent.clusters import protocol
from nova_vhpc.flavor import extra_specs

METADATA_KEY = 'vhpc:cluster'


@dataclasses.dataclass(frozen=True, slots=True)
class Membership:
    """What Nova's API says of one server with ``vhpc:`` extra specs.

    :ivar group: uuid of its server group, if it was booted into one.
    :ivar named: cluster name from metadata or flavor, within its project.
    :ivar migrating: Nova is about to send it to another host, or does.
    """

    server: str
    group: str | None = None
    named: str | None = None
    migrating: bool = False


def scoped(name: str, project: str | None) -> str:
    """A cluster name that tenants or flavors give, safe between tenants.

    Metadata is the tenant's to write, and one flavor serves many
    tenants: the same name in two projects means two clusters.
    """
    return name if project is None else f'{project}/{name}'


def read_server(server: Mapping[str, Any]) -> Membership | None:
    """Read one entry of ``GET /servers/detail`` at microversion 2.100.

    :returns: None for servers that did not opt in, and for the stubs that
        Nova gives of a cell that is down.
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
    memberships: Iterable[Membership], gone: frozenset[str]
) -> dict[str, str]:
    """Cluster by server.

    :param gone: server groups that were deleted; a server booted into one
        is in no cluster any more, unless one is named.
    """
    found = {}
    for membership in memberships:
        group = membership.group
        if group in gone:
            group = None
        cluster = group or membership.named
        if cluster is not None:
            found[membership.server] = cluster
    return found


def read_file(content: Any) -> dict[str, str]:
    """Cluster by server, from the content of a groups file.

    :raises ValueError: telling what is wrong.
    """
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError('it must map cluster names to lists of servers')
    found: dict[str, str] = {}
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
                # No word of what it is: YAML's aliases make it endless.
                raise ValueError(f"'{cluster}' has a server that is no text")
            if found.setdefault(server, str(cluster)) != str(cluster):
                raise ValueError(
                    f'server {server} is in {found[server]} and in {cluster}'
                )
    return found
