# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read claims on uplinks, and the servers and migrations that hold them."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.explain import cloud
from nova_vhpc.explain.claim_choice import Allocations
from nova_vhpc.flavor import request_groups
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState
from nova_vhpc.topology import model

SERVERS_VERSION = '2.69'
"""First microversion that lists the servers of cells that do not answer."""

MIGRATIONS_VERSION = '2.59'
ALLOCATIONS_VERSION = '1.38'
CLAIMS_VERSION = '1.36'

HOST = 'OS-EXT-SRV-ATTR:host'
_NODE = 'OS-EXT-SRV-ATTR:hypervisor_hostname'


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A compute node.

    :ivar up: whether its nova-compute is up.
    """

    host: str
    root: str
    up: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """What Placement has allocated to one consumer.

    :ivar body: answer of Placement, with the generation of the consumer.
    :ivar uplinks: number of claimed slots by UUID of the uplink.
    """

    body: Mapping[str, Any]
    uplinks: Mapping[str, int]

    @property
    def allocations(self) -> Allocations:
        """What is allocated, as Placement takes it."""
        return {
            uuid: {'resources': allocation['resources']}
            for uuid, allocation in self.body['allocations'].items()
        }

    def without(self, uplinks: Iterable[str]) -> Allocations:
        """Return the allocations without the claims on some uplinks."""
        kept = {}
        for uuid, allocation in self.allocations.items():
            resources = dict(allocation['resources'])
            if uuid in uplinks:
                resources.pop(model.UPLINK, None)
            if resources:
                kept[uuid] = {'resources': resources}
        return kept


class ClaimReader:
    """What Nova and Placement say of claims on uplinks.

    :param connection: openstacksdk connection of an administrator.
    :ivar nodes: compute nodes by UUID of the root provider.
    :ivar topology: uplinks of each host by UUID of the root provider.
    :ivar encap_ips: whether any uplink of the cloud has an encap IP.
    :ivar uplinks: root provider and uplink by UUID of the uplink.
    :ivar migrations: status by UUID of the migration.
    :ivar unseen: number of servers of which Nova does not tell the flavor, as
        of those in cells that do not answer.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.nodes: dict[str, Node] = {}
        self.topology: Mapping[str, HostUplinks] = {}
        self.encap_ips = False
        self.uplinks: dict[str, tuple[str, UplinkState]] = {}
        self.migrations: dict[str, str] = {}
        self.unseen = 0
        self._by_name: dict[tuple[str, str], Node] = {}

    def suspects(self) -> list[str]:
        """Read the cloud, and return the consumers to look at one by one."""
        snapshot = cloud.uplinks(self.connection)
        self.topology = snapshot.hosts
        self.encap_ips = snapshot.has_tunnels
        self.uplinks = {
            uplink.uuid: (root, uplink)
            for root, host in snapshot.hosts.items()
            for uplink in host.uplinks
        }
        claims: dict[str, dict[str, int]] = {}
        for uuid, (root, uplink) in self.uplinks.items():
            if not uplink.used:
                continue
            for consumer, amount in self._claims_of(uuid).items():
                here = claims.setdefault(consumer, {})
                here[root] = here.get(root, 0) + amount
        # Nova after Placement: a claim of what Nova does not know is old.
        self.nodes = {}
        self._by_name = {}
        for hypervisor in cloud.hypervisors(self.connection):
            node = Node(
                openstack.text(hypervisor['service']['host']),
                openstack.text(hypervisor['id']),
                hypervisor['state'] == 'up',
            )
            self.nodes[node.root] = node
            name = openstack.text(hypervisor['hypervisor_hostname'])
            self._by_name[node.host, name] = node
        self.migrations = {
            openstack.text(migration['uuid']): openstack.text(
                migration['status']
            )
            for migration in self._pages(
                'migrations', '/os-migrations', MIGRATIONS_VERSION
            )
        }
        suspects = dict.fromkeys(claims)
        self.unseen = 0
        for server in self._pages(
            'servers', '/servers/detail?all_tenants=1', SERVERS_VERSION
        ):
            uuid = openstack.text(server['id'])
            wanted = wanted_by(server)
            if server['status'] == 'UNKNOWN' or wanted is None:
                self.unseen += 1
            elif uuid not in suspects:
                if wanted and server.get(HOST):
                    suspects[uuid] = None
            elif claims[uuid] == {self.root_of(server): wanted}:
                del suspects[uuid]
        return list(suspects)

    def held(self, consumer: str) -> Held:
        """Return what a consumer holds now."""
        body = openstack.get(
            self.connection.placement,
            f'/allocations/{consumer}',
            ALLOCATIONS_VERSION,
        )
        return Held(
            body,
            {
                uuid: allocation['resources'][model.UPLINK]
                for uuid, allocation in body['allocations'].items()
                if uuid in self.uplinks
                and model.UPLINK in allocation['resources']
            },
        )

    def _claims_of(self, uplink: str) -> dict[str, int]:
        """Return the number of slots of an uplink by consumer."""
        body = openstack.get(
            self.connection.placement,
            f'/resource_providers/{uplink}/allocations',
            CLAIMS_VERSION,
        )
        return {
            consumer: openstack.count(allocation['resources'][model.UPLINK])
            for consumer, allocation in body['allocations'].items()
            if model.UPLINK in allocation['resources']
        }

    def server(self, uuid: str) -> Mapping[str, Any] | None:
        """Return a server of any project, None if Nova has none."""
        try:
            body = openstack.get(
                self.connection.compute, f'/servers/{uuid}', SERVERS_VERSION
            )
        except openstack.GoneError:
            return None
        server: Mapping[str, Any] = body['server']
        return server

    def migrations_of(self, server: str) -> Iterator[Mapping[str, Any]]:
        """Yield the migrations of one server."""
        path = f'/os-migrations?instance_uuid={server}'
        return self._pages('migrations', path, MIGRATIONS_VERSION)

    def _pages(
        self, key: str, path: str, version: str
    ) -> Iterator[Mapping[str, Any]]:
        return cloud.pages(self.connection.compute, path, key, version)

    def root_of(self, server: Mapping[str, Any]) -> str | None:
        """Return the root provider of a server's compute node, if known."""
        node = self._by_name.get(
            (server.get(HOST) or '', server.get(_NODE) or '')
        )
        return None if node is None else node.root

    def hosts(self, uplinks: Iterable[str]) -> str:
        """Return the names of the hosts of some uplinks."""
        roots = sorted({self.uplinks[uuid][0] for uuid in uplinks})
        return ', '.join(
            self.nodes[root].host if root in self.nodes else root
            for root in roots
        )

    def names(self, uplinks: Iterable[str]) -> str:
        """Return what operators call some uplinks."""
        return ' and '.join(
            sorted(str(self.uplinks[uuid][1]) for uuid in uplinks)
        )


def wanted_by(server: Mapping[str, Any]) -> int | None:
    """Return the uplinks that a server's flavor requests, None if unknown."""
    specs = (server.get('flavor') or {}).get('extra_specs')
    return None if specs is None else request_groups.requested_uplinks(specs)
