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

"""Reads a virtual cluster from Nova, by the API alone.

Only servers of the asking server's own project are ever looked at, so a
tenant learns nothing about others whatever it writes into its metadata.
"""

import ipaddress
import threading
import time
from collections.abc import Mapping
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions

from nova_vhpc.flavor import extra_specs
from nova_vhpc.vendordata import model, nic_order

MICROVERSION = '2.100'
"""Flavor extra specs and scheduler hints in the servers' detail view."""


class NotMember(Exception):
    """The server is in no virtual cluster, or not the project's."""


class Nova:
    """Virtual clusters, as Nova's API tells them.

    :param client: keystoneauth adapter of the compute service, with the
        rights to list all projects' servers.
    :param ttl_s: how long one answer serves the other members: the whole
        cluster boots at once and asks at once.
    :param tiers: names of the aggregate metadata for switch and rack.
    """

    def __init__(
        self,
        client: adapter.Adapter,
        ttl_s: float,
        tiers: tuple[str, str] = ('vhpc:switch', 'vhpc:rack'),
    ) -> None:
        self._client = client
        self._ttl_s = ttl_s
        self._tiers = tiers
        self._orders = nic_order.NicOrders(client)
        self._lock = threading.Lock()
        self._cached: dict[str, tuple[float, str, model.Cluster]] = {}

    def cluster(self, server_uuid: str, project_id: str) -> model.Cluster:
        """The virtual cluster of one server.

        :raises NotMember: there is none, or the server is not in the
            project that asks.
        :raises keystoneauth1.exceptions.ClientException: Nova is away.
        """
        cached = self._find_cached(server_uuid, project_id)
        if cached is not None:
            return cached
        server = self._get(f'/servers/{server_uuid}', missing=NotMember)[
            'server'
        ]
        if server['tenant_id'] != project_id:
            raise NotMember(f'server {server_uuid} is not of this project')
        if 'flavor' not in server:
            raise RuntimeError(f'the cell of server {server_uuid} is down')
        if not _opted_in(server):
            raise NotMember(
                f'the flavor of server {server_uuid} has no vhpc: extra specs'
            )
        groups = server.get('server_groups') or []
        if not groups:
            raise NotMember(f'server {server_uuid} is in no server group')
        group = self._get(f'/os-server-groups/{groups[0]}', missing=NotMember)[
            'server_group'
        ]
        if group.get('project_id', project_id) != project_id:
            raise NotMember(f'group {group["id"]} is not of this project')
        members = self._members(set(group['members']), project_id)
        found = model.Cluster(
            uuid=group['id'],
            name=group['name'],
            members=model.ranked(members),
        )
        if found.rank(server_uuid) is None:
            raise NotMember(f'server {server_uuid} left its server group')
        with self._lock:
            now = time.monotonic()
            self._cached = {
                uuid: entry
                for uuid, entry in self._cached.items()
                if entry[0] > now
            }
            self._cached[found.uuid] = (
                now + self._ttl_s,
                project_id,
                found,
            )
        return found

    def _find_cached(
        self, server_uuid: str, project_id: str
    ) -> model.Cluster | None:
        now = time.monotonic()
        with self._lock:
            for expires, owner, found in self._cached.values():
                if (
                    expires > now
                    and owner == project_id
                    and found.rank(server_uuid) is not None
                ):
                    return found
        return None

    def _members(self, uuids: set[str], project_id: str) -> list[model.Member]:
        tiers = self._host_tiers()
        members: list[model.Member] = []
        seen = 0
        url = f'/servers/detail?all_tenants=1&project_id={project_id}'
        marker = ''
        while True:
            # Nova's own max_limit says how long a page is.
            page = self._get(url + marker)['servers']
            found = [
                server
                for server in page
                if server['id'] in uuids and server['tenant_id'] == project_id
            ]
            seen += len(found)
            found = [server for server in found if _opted_in(server)]
            orders = self._orders.find(found)
            members += [
                member_of(server, tiers, orders.get(server['id'], ()))
                for server in found
            ]
            if not page or seen >= len(uuids):
                return members
            marker = f'&marker={page[-1]["id"]}'

    def _host_tiers(self) -> dict[str, tuple[str | None, str | None]]:
        """Switch and rack by host name, from aggregate metadata."""
        found: dict[str, list[str | None]] = {}
        for aggregate in self._get('/os-aggregates')['aggregates']:
            for position, key in enumerate(self._tiers):
                value = aggregate['metadata'].get(key)
                if value is None:
                    continue
                for host in aggregate['hosts']:
                    found.setdefault(host, [None, None])[position] = value
        return {host: (tier[0], tier[1]) for host, tier in found.items()}

    def _get(
        self, url: str, missing: type[Exception] | None = None
    ) -> dict[str, Any]:
        try:
            response = self._client.get(
                url, microversion=MICROVERSION, raise_exc=False
            )
        except ks_exceptions.ClientException:
            raise
        except Exception as error:
            # A password that is not there is a bare one to keystoneauth.
            raise RuntimeError(
                f'[vhpc_nova] of the configuration is unusable: {error}'
            ) from None
        if response.status_code == 404 and missing is not None:
            raise missing(f'Nova has no {url}')
        if response.status_code != 200:
            raise RuntimeError(
                f'Nova answered GET {url.split("?")[0]} with '
                f'{response.status_code}: {response.text[:200]}'
            )
        try:
            body: dict[str, Any] = response.json()
        except ValueError as error:
            # Of a proxy in between, for one.
            raise RuntimeError(
                f'Nova answered GET {url.split("?")[0]} with no JSON: {error}'
            ) from None
        return body


def _opted_in(server: Mapping[str, Any]) -> bool:
    """Whether a server of a group is one of the virtual cluster.

    Believed where Nova does not show the flavor's extra specs: by its
    policy, or in a cell that is down.
    """
    specs = (server.get('flavor') or {}).get('extra_specs')
    return specs is None or extra_specs.requested(specs)


def member_of(
    server: Mapping[str, Any],
    tiers: Mapping[str, tuple[str | None, str | None]],
    order: nic_order.Order = (),
) -> model.Member:
    """A member from one server of Nova's detail view.

    A MAC address tells NICs on the same network apart. Of servers in a
    cell that is down Nova knows no more than the id: their cluster is not
    complete meanwhile.

    :param order: of the NICs, where the addresses do not tell it.
    """
    nics: dict[str, list[model.Address]] = {}
    for addresses in server.get('addresses', {}).values():
        for entry in addresses:
            if entry.get('OS-EXT-IPS:type', 'fixed') != 'fixed':
                continue
            nics.setdefault(entry.get(nic_order.MAC, ''), []).append(
                ipaddress.ip_address(entry['addr'])
            )
    macs = list(nics)
    # NICs that it lacks (such as a whole PCI function) could be anywhere.
    if {mac.lower() for mac in macs} <= set(order):
        macs.sort(key=lambda mac: order.index(mac.lower()))
    switch, rack = tiers.get(
        server.get('OS-EXT-SRV-ATTR:host') or '', (None, None)
    )
    flavor = server.get('flavor') or {}
    specs = extra_specs.parse(flavor.get('extra_specs') or {})
    return model.Member(
        uuid=server['id'],
        name=server.get('name', server['id']),
        vcpus=flavor.get('vcpus', 0),
        host=server.get('hostId') or None,
        switch=switch,
        rack=rack,
        nics=tuple(model.Nic(mac, tuple(nics[mac])) for mac in macs),
        network=specs.network,
        paradigm=specs.paradigm,
        uplink_nic=specs.uplink_nic,
    )
