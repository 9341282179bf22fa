# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A small REST client for Nova, Placement and Glance."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keystoneauth1 import session
from keystoneauth1.identity import v3

from nova_vhpc_lab.testbed import patience

COMPUTE = '2.100'
PLACEMENT = '1.39'


class ApiError(Exception):
    """A response with status 400 or above.

    :param message: the service's error message.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f'{status}: {message}')
        self.status = status
        self.message = message


class Client:
    """REST client with the rights of one user.

    :param credentials: keystoneauth's options.
    """

    def __init__(self, credentials: Mapping[str, Any]) -> None:
        options = {k: v for k, v in credentials.items() if k != 'auth_type'}
        self.session = session.Session(auth=v3.Password(**options))

    def request(
        self, service: str, method: str, path: str, body: Any = None
    ) -> Any:
        """Send a request and return the body of the response.

        :param service: service type in the catalog.
        :param body: body of the request, sent as JSON.
        :raises ApiError: if the status is 400 or above.
        """
        version = {'compute': COMPUTE, 'placement': PLACEMENT}.get(service)
        response = self.session.request(
            path,
            method,
            json=body,
            endpoint_filter={'service_type': service},
            headers=(
                {'OpenStack-API-Version': f'{service} {version}'}
                if version
                else {}
            ),
            raise_exc=False,
        )
        if response.status_code >= 400:
            raise ApiError(response.status_code, _message(response))
        return response.json() if response.content else None

    def compute(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to Nova and return the body of the response."""
        return self.request('compute', method, path, body)

    def placement(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to Placement and return the body of the response."""
        return self.request('placement', method, path, body)

    def add_image(
        self, name: str, path: Path, kind: str = 'bare', **properties: str
    ) -> str:
        """Upload a public image to Glance, and return its ID.

        :param path: file with the content.
        :param kind: ``bare`` for a raw disk, ``aki`` for a kernel, ``ari``
            for an initramfs.
        :param properties: further properties of the image.
        """
        body = {
            'name': name,
            'visibility': 'public',
            'container_format': kind,
            'disk_format': 'raw' if kind == 'bare' else kind,
            **properties,
        }
        key = self.request('image', 'POST', '/v2/images', body)['id']
        with path.open('rb') as content:
            response = self.session.put(
                f'/v2/images/{key}/file',
                data=content,
                endpoint_filter={'service_type': 'image'},
                headers={'Content-Type': 'application/octet-stream'},
                raise_exc=False,
            )
        if response.status_code >= 400:
            raise ApiError(response.status_code, _message(response))
        return str(key)

    def make_flavor(
        self,
        name: str,
        extra_specs: Mapping[str, str],
        vcpus: int = 2,
        ram: int = 128,
    ) -> str:
        """Create a flavor with extra specs.

        :returns: the flavor's ID.
        """
        body = {
            'flavor': {
                'name': name,
                'id': name,
                'vcpus': vcpus,
                'ram': ram,
                'disk': 1,
            }
        }
        self.compute('POST', '/flavors', body)
        if extra_specs:
            self.set_extra_specs(name, extra_specs)
        return name

    def set_extra_specs(
        self, flavor: str, extra_specs: Mapping[str, str]
    ) -> None:
        """Add extra specs to a flavor.

        :raises ApiError: if Nova refuses one.
        """
        self.compute(
            'POST',
            f'/flavors/{flavor}/os-extra_specs',
            {'extra_specs': dict(extra_specs)},
        )

    def make_group(self, name: str, policy: str = 'soft-affinity') -> str:
        """Create a server group and return its ID."""
        body = {'server_group': {'name': name, 'policy': policy}}
        response = self.compute('POST', '/os-server-groups', body)
        return response['server_group']['id']

    def boot(
        self,
        name: str,
        flavor: str,
        image: str,
        count: int = 1,
        group: str | None = None,
        networks: Any = 'none',
        **more: Any,
    ) -> list[dict[str, Any]]:
        """Create servers with one request.

        :param count: number of servers.
        :param group: ID of the server group.
        :param more: further fields of the request's ``server``.
        :returns: the servers as Nova shows them after the request.
        """
        server = {
            'name': name,
            'flavorRef': flavor,
            'imageRef': image,
            'networks': networks,
            'min_count': count,
            'max_count': count,
            'return_reservation_id': True,
            **more,
        }
        body: dict[str, Any] = {'server': server}
        if group:
            body['os:scheduler_hints'] = {'group': group}
        reservation = self.compute('POST', '/servers', body)['reservation_id']
        query = f'/servers/detail?reservation_id={reservation}'
        return self.compute('GET', query)['servers']

    def server(self, key: str) -> dict[str, Any]:
        """Return a server as Nova shows it."""
        return self.compute('GET', f'/servers/{key}')['server']

    def wait_active(self, keys: Iterable[str]) -> list[dict[str, Any]]:
        """Wait until all servers are ACTIVE, and return them.

        :raises ApiError: if a server is in ERROR, with Nova's fault.
        :raises TooLongError: if the time is over.
        """

        def active(key: str) -> dict[str, Any] | None:
            server = self.server(key)
            if server['status'] == 'ERROR':
                fault = server.get('fault', {}).get('message', '')
                raise ApiError(500, f'server {server["name"]}: {fault}')
            return server if server['status'] == 'ACTIVE' else None

        return [
            patience.wait(
                f'server {key} to be ACTIVE', functools.partial(active, key)
            )
            for key in keys
        ]

    def delete(
        self, keys: Iterable[str], timeout_s: float = patience.PATIENCE_S
    ) -> None:
        """Delete servers, and wait until they are gone.

        :raises TooLongError: if a server is still there after the time.
        """
        remaining = list(keys)
        for key in remaining:
            self.compute('DELETE', f'/servers/{key}')

        def all_gone() -> bool:
            try:
                while remaining:
                    self.server(remaining[-1])
                    return False
            except ApiError as error:
                if error.status != 404:
                    raise
                remaining.pop()
            return not remaining

        patience.wait(f'the end of servers {remaining}', all_gone, timeout_s)

    def providers(self) -> list[dict[str, Any]]:
        """Return all providers, with inventories, traits and usages."""
        response = self.placement('GET', '/resource_providers')
        providers = response['resource_providers']
        for provider in providers:
            for key in ('inventories', 'traits', 'usages'):
                path = f'/resource_providers/{provider["uuid"]}/{key}'
                provider[key] = self.placement('GET', path)[key]
        return providers

    def allocations(self, server: str) -> dict[str, dict[str, int]]:
        """Return a server's resources, by UUID of the provider."""
        response = self.placement('GET', f'/allocations/{server}')
        return {
            provider: allocation['resources']
            for provider, allocation in response['allocations'].items()
        }


def _message(response: Any) -> str:
    try:
        body = response.json()
    except ValueError:
        return response.text[:500]
    if 'errors' in body:
        return '; '.join(e.get('detail', '') for e in body['errors'])
    first = next(iter(body.values()), {})
    return first.get('message', '') if isinstance(first, dict) else str(body)
