# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read a server group of a cloud for ``nova-vhpc-explain``."""

import concurrent.futures
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc import close_match
from nova_vhpc.clients import openstack
from nova_vhpc.explain.request_file import ExplainRequest

VERSION = '2.64'

_MOST_CALLS = 16
"""Servers of a group that are read at a time."""


def look_up(
    connection: Any, request: ExplainRequest, name: str
) -> ExplainRequest:
    """Return the request with policy and running members of a server group.

    :param connection: openstacksdk connection.
    :param name: name or ID of the server group.
    :raises CloudError: there is no such server group, or several have the
        name.
    """
    group = _find(connection, name)
    existing: dict[str, int] = {}
    running: list[str] = []
    for uuid, server in servers(connection, group, VERSION).items():
        host = server.get('OS-EXT-SRV-ATTR:host')
        if host:
            existing[openstack.text(host)] = existing.get(host, 0) + 1
            running.append(openstack.text(uuid))
    most = group['rules'].get('max_server_per_host')
    return dataclasses.replace(
        request,
        policy=openstack.text(group['policy']),
        max_server_per_host=None if most is None else openstack.count(most),
        existing=existing,
        running_members=tuple(running),
    )


def servers(
    connection: Any, group: Mapping[str, Any], version: str
) -> dict[str, Mapping[str, Any]]:
    """Return the servers of a group that the user may see, by UUID.

    :param version: microversion of the answers.
    """

    def read(uuid: str) -> dict[str, Mapping[str, Any]]:
        try:
            answer = openstack.get(
                connection.compute, f'/servers/{uuid}', version
            )
        except openstack.GoneError:
            # It was deleted after the group was read, or is of a project that
            # the user may not see.
            return {}
        return {uuid: answer['server']}

    with concurrent.futures.ThreadPoolExecutor(_MOST_CALLS) as pool:
        return {
            uuid: server
            for found in pool.map(read, group['members'])
            for uuid, server in found.items()
        }


def _find(connection: Any, name: str) -> Mapping[str, Any]:
    """Return the server group with an ID, else the only one with the name.

    Tenants choose the names, so one can be another group's ID.
    """
    named, names = [], []
    for group in every(connection):
        if group['id'] == name:
            return group
        if group['name'] == name:
            named.append(group)
        names.append(openstack.text(group['name']))
    if not named:
        raise openstack.CloudError(
            f"no server group '{name}'"
            + (
                close_match.hint(name, names)
                or '; openstack server group list --all-projects shows all'
            )
        )
    if len(named) > 1:
        raise openstack.CloudError(
            f"{len(named)} server groups have the name '{name}'; give the ID "
            'of one: ' + ', '.join(sorted(group['id'] for group in named))
        )
    return named[0]


def every(
    connection: Any, all_projects: bool = True
) -> Iterator[Mapping[str, Any]]:
    """Yield server groups, page by page.

    One answer has 1000 at most ([api] max_limit) and no link to the next.

    :param all_projects: those of all projects, which needs an administrator;
        else of the user's own.
    """
    scope = 'all_projects=True&' if all_projects else ''
    seen: set[str] = set()
    while True:
        body = openstack.get(
            connection.compute,
            f'/os-server-groups?{scope}offset={len(seen)}',
            VERSION,
        )
        groups = [g for g in body['server_groups'] if g['id'] not in seen]
        if not groups:
            return
        yield from groups
        seen.update(group['id'] for group in groups)
