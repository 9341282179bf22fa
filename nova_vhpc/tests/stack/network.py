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


"""A stand-in for Neutron, sufficient to give guests NICs on bridges.

Ports have the vif_type ``tap``: Nova creates the tap, and a network agent
attaches it to a bridge. :class:`Network` does the agent's work, too: it
attaches the tap to the bridge of the uplink that the server has claimed in
Placement.
"""

import itertools
import json
import re
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

Query = dict[str, list[str]]
Response = tuple[int, dict[str, Any]]

_FILTERS = (
    'id',
    'name',
    'device_id',
    'device_owner',
    'network_id',
    'tenant_id',
)


class Network:
    """State and routes of the stand-in; callers hold the server's lock.

    :param claims: returns the UUIDs of the providers that a server has
        allocations from.
    """

    def __init__(self, claims: Callable[[str], set[str]]) -> None:
        self._claims = claims
        self.networks: dict[str, dict[str, Any]] = {}
        self.subnets: dict[str, dict[str, Any]] = {}
        self.ports: dict[str, dict[str, Any]] = {}
        self._addresses = itertools.count(10)

    def serve(
        self, method: str, path: str, query: Query, body: Any
    ) -> Response:
        """Return status and body of the response to a request."""
        match = re.fullmatch('/v2.0/([a-z-]+)(?:/([^/]+))?(/.*)?', path)
        if match is None:
            return 200, {'versions': [_VERSION]}
        kind, key, _ = match.groups()
        if kind == 'networks' and method == 'POST':
            return self._make_network(body['network'])
        if kind == 'ports' and method != 'GET':
            return self._change_port(method, key, body.get('port', {}))
        if kind in ('networks', 'subnets', 'ports'):
            return self._show(kind, key, query)
        if kind == 'quotas':
            return 200, {'quota': {'port': -1, 'network': -1}}
        if kind == 'extensions':
            return 200, {
                'extensions': [
                    {'alias': alias, 'name': alias, 'description': alias}
                    for alias in ('binding', 'port-security')
                ]
            }
        if kind == 'security-groups':
            return 200, {'security_groups': []}
        return 200, {kind.replace('-', '_'): []}

    def _show(self, kind: str, key: str | None, query: Query) -> Response:
        resources = getattr(self, kind)
        if key is not None:
            if key not in resources:
                return 404, _not_found(kind, key)
            return 200, {kind[:-1]: resources[key]}
        filters = {k: v for k, v in query.items() if k in _FILTERS}
        if kind == 'networks':
            filters.pop('tenant_id', None)
        return 200, {
            kind: [
                resource
                for resource in resources.values()
                if all(resource.get(k) in v for k, v in filters.items())
            ]
        }

    def _make_network(self, fields: dict[str, Any]) -> Response:
        key, subnet = str(uuid.uuid4()), str(uuid.uuid4())
        number = len(self.networks)
        self.networks[key] = {
            'id': key,
            'name': fields['name'],
            'tenant_id': 'admin',
            'shared': True,
            'router:external': False,
            'admin_state_up': True,
            'status': 'ACTIVE',
            'subnets': [subnet],
            'port_security_enabled': False,
            'mtu': 1500,
            'vhpc:bridges': fields['vhpc:bridges'],
        }
        self.subnets[subnet] = {
            'id': subnet,
            'network_id': key,
            'tenant_id': 'admin',
            'name': fields['name'],
            'cidr': f'10.99.{number}.0/24',
            'ip_version': 4,
            'enable_dhcp': False,
            'gateway_ip': None,
            'dns_nameservers': [],
            'host_routes': [],
            'allocation_pools': [],
        }
        return 201, {'network': self.networks[key]}

    def _change_port(
        self, method: str, key: str | None, fields: dict[str, Any]
    ) -> Response:
        if method == 'POST':
            key = str(uuid.uuid4())
            self.ports[key] = self._new_port(key, fields['network_id'])
        elif key not in self.ports:
            return 404, _not_found('ports', key)
        if method == 'DELETE':
            del self.ports[key]
            return 204, {}
        port = self.ports[key]
        port.update(fields)
        if fields.get('binding:host_id'):
            bridges = self.networks[port['network_id']]['vhpc:bridges']
            threading.Thread(
                target=self._attach,
                args=(f'tap{key[:11]}', port['device_id'], bridges),
                daemon=True,
            ).start()
        return (201 if method == 'POST' else 200), {'port': port}

    def _attach(self, tap: str, server: str, bridges: dict[str, str]) -> None:
        claimed = self._claims(server)
        own = [
            bridge
            for provider, bridge in bridges.items()
            if provider in claimed
        ]
        attach(tap, own[0] if own else next(iter(bridges.values())))

    def _new_port(self, key: str, network: str) -> dict[str, Any]:
        address = next(self._addresses)
        subnet = self.networks[network]['subnets'][0]
        prefix = self.subnets[subnet]['cidr'].rpartition('.')[0]
        return {
            'id': key,
            'network_id': network,
            'name': '',
            'status': 'ACTIVE',
            'admin_state_up': True,
            'mac_address': f'fa:16:3e:99:00:{address % 256:02x}',
            'fixed_ips': [
                {'subnet_id': subnet, 'ip_address': f'{prefix}.{address}'}
            ],
            'device_id': '',
            'device_owner': '',
            'tenant_id': 'admin',
            'security_groups': [],
            'port_security_enabled': False,
            'binding:vif_type': 'tap',
            'binding:vnic_type': 'normal',
            'binding:vif_details': {'port_filter': False},
            'binding:profile': {},
        }


def claims_in(placement: str, token: str, server: str) -> set[str]:
    """Return the UUIDs of the providers that a server has allocations from.

    :param placement: URL of Placement.
    """
    request = urllib.request.Request(
        f'{placement}/allocations/{server}', headers={'X-Auth-Token': token}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return set(json.load(response)['allocations'])


def attach(tap: str, bridge: str, timeout_s: float = 60) -> None:
    """Attach a tap to a bridge, like a Neutron agent, once Nova made it."""
    deadline = time.monotonic() + timeout_s
    while not Path('/sys/class/net', tap).exists():
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)
    for setting in (('master', bridge), ('up',)):
        subprocess.run(('ip', 'link', 'set', tap, *setting), check=False)


def _not_found(kind: str, key: str | None) -> dict[str, Any]:
    name = kind[:-1].capitalize()
    return {
        'NeutronError': {
            'type': f'{name}NotFound',
            'message': f'{name} {key} could not be found.',
            'detail': '',
        }
    }


_VERSION = {'id': 'v2.0', 'status': 'CURRENT', 'links': []}
