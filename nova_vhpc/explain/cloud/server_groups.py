# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read a server group of a cloud for ``nova-vhpc-explain``."""

import concurrent.futures
import contextlib
import dataclasses
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from nova_vhpc import close_match
from nova_vhpc.clients import openstack
from nova_vhpc.explain.request import ExplainRequest

VERSION = '2.64'

SERVERS_VERSION = '2.69'
"""First microversion that shows servers and services of cells that do not
answer."""

_MOST_NAMES = 4

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
    group = find(connection, name)
    existing: dict[str, int] = {}
    running: list[str] = []
    unlocated = 0
    for key, server in servers(connection, group, SERVERS_VERSION).items():
        host = server.get('OS-EXT-SRV-ATTR:host')
        if server.get('status') == 'UNKNOWN':
            unlocated += 1
        elif host:
            existing[openstack.text(host)] = existing.get(host, 0) + 1
            running.append(openstack.text(key))
    most = group['rules'].get('max_server_per_host')
    return dataclasses.replace(
        request,
        policy=openstack.text(group['policy']),
        max_server_per_host=None if most is None else openstack.count(most),
        existing=existing,
        running_members=tuple(running),
        unlocated=unlocated,
    )


def servers(
    connection: Any, group: Mapping[str, Any], version: str
) -> dict[str, Mapping[str, Any]]:
    """Return the servers of a group that the user may see, by UUID.

    :param version: microversion of the answers.
    """

    def read(key: str) -> dict[str, Mapping[str, Any]]:
        try:
            answer = openstack.get(
                connection.compute, f'/servers/{key}', version
            )
        except openstack.GoneError:
            # It was deleted after the group was read, or is of a project that
            # the user may not see.
            return {}
        return {key: answer['server']}

    with concurrent.futures.ThreadPoolExecutor(_MOST_CALLS) as pool:
        return {
            key: server
            for found in pool.map(read, group['members'])
            for key, server in found.items()
        }


def find(
    connection: Any, name: str, all_projects: bool = True
) -> Mapping[str, Any]:
    """Return the server group with an ID, else the only one with the name.

    Tenants choose the names, so one can be another group's ID.

    :param all_projects: look among those of all projects. An ID is found in
        any project that the user may see.
    :raises CloudError: there is none, or several have the name.
    """
    named, names = [], []
    for group in every(connection, all_projects):
        if group['id'] == name:
            return group
        if group['name'] == name:
            named.append(group)
        names.append(openstack.text(group['name']))
    if len(named) > 1:
        raise openstack.CloudError(
            f"{len(named)} server groups have the name '{name}'; give the ID "
            'of one: ' + ', '.join(sorted(group['id'] for group in named))
        )
    if named:
        return named[0]
    if not all_projects and _is_uuid(name):
        with contextlib.suppress(openstack.GoneError, openstack.RefusedError):
            answer = openstack.get(
                connection.compute, f'/os-server-groups/{name}', VERSION
            )
            found: Mapping[str, Any] = answer['server_group']
            return found
    scope = 'any project' if all_projects else 'your project'
    more = '' if all_projects else ', and --all-projects those of others'
    raise openstack.CloudError(
        f"no server group '{name}' in {scope}"
        + (
            close_match.hint(name, names)
            or '; openstack vhpc cluster list shows those with virtual '
            f'clusters{more}'
        )
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


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
        with cells(connection.compute):
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


@contextlib.contextmanager
def cells(compute: Any) -> Iterator[None]:
    """Name the cell that does not answer if Nova fails because of it.

    Nova lists no hypervisors and no server groups then: it answers 500.

    :param compute: adapter of Nova's API.
    :raises CloudError: a request of the block failed.
    """
    try:
        yield
    except openstack.RefusedError:
        raise
    except openstack.CloudError as error:
        hosts = _dark_hosts(compute)
        if not hosts:
            raise
        raise openstack.CloudError(
            f'a cell of Nova does not answer, that of {", ".join(hosts)}: '
            'until it does, Nova does not tell all hosts and server groups '
            f'({error})'
        ) from None


def _dark_hosts(compute: Any) -> list[str]:
    """Return some hosts of cells that do not answer."""
    try:
        services = openstack.get(
            compute, '/os-services?binary=nova-compute', SERVERS_VERSION
        )['services']
    except openstack.CloudError:
        return []
    dark = {s['host'] for s in services if s['status'] == 'UNKNOWN'}
    return sorted(dark)[:_MOST_NAMES]
