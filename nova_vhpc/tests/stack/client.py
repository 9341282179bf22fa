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


"""A small REST client for the real Nova and Placement."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from keystoneauth1 import session
from keystoneauth1.identity import v3

COMPUTE = '2.100'
PLACEMENT = '1.39'


class ApiError(Exception):
    """An answer of 400 or above, with the service's own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f'{status}: {message}')
        self.status = status
        self.message = message


class Client:
    """What one user may ask, by plain JSON."""

    def __init__(self, credentials: Mapping[str, Any]) -> None:
        options = {k: v for k, v in credentials.items() if k != 'auth_type'}
        self.session = session.Session(auth=v3.Password(**options))

    def request(
        self, service: str, method: str, path: str, body: Any = None
    ) -> Any:
        """
        :param service: service type in the catalog.
        :raises ApiError: the service refuses.
        """
        version = {'compute': COMPUTE, 'placement': PLACEMENT}.get(service)
        answer = self.session.request(
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
        if answer.status_code >= 400:
            raise ApiError(answer.status_code, _message(answer))
        return answer.json() if answer.content else None

    def compute(self, method: str, path: str, body: Any = None) -> Any:
        return self.request('compute', method, path, body)

    def placement(self, method: str, path: str, body: Any = None) -> Any:
        return self.request('placement', method, path, body)

    def make_flavor(
        self,
        name: str,
        extra_specs: Mapping[str, str],
        vcpus: int = 2,
        ram: int = 128,
    ) -> str:
        """A flavor and its extra specs; both through the API.

        :returns: its id.
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
        self.compute(
            'POST',
            f'/flavors/{flavor}/os-extra_specs',
            {'extra_specs': dict(extra_specs)},
        )

    def make_group(self, name: str, policy: str = 'soft-affinity') -> str:
        body = {'server_group': {'name': name, 'policy': policy}}
        made = self.compute('POST', '/os-server-groups', body)
        return made['server_group']['id']

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
        """One create, of ``count`` servers.

        :returns: the servers as first shown.
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
        made = self.compute('POST', '/servers', body)
        query = f'/servers/detail?reservation_id={made["reservation_id"]}'
        return self.compute('GET', query)['servers']

    def server(self, key: str) -> dict[str, Any]:
        return self.compute('GET', f'/servers/{key}')['server']

    def wait_active(
        self, keys: Iterable[str], timeout_s: float = 240
    ) -> list[dict[str, Any]]:
        """Until all are ACTIVE.

        :raises ApiError: one is in ERROR (with Nova's fault), or late.
        """
        deadline = time.monotonic() + timeout_s
        done = []
        for key in keys:
            while (server := self.server(key))['status'] != 'ACTIVE':
                if server['status'] == 'ERROR':
                    fault = server.get('fault', {}).get('message', '')
                    raise ApiError(500, f'server {server["name"]}: {fault}')
                if time.monotonic() > deadline:
                    raise ApiError(
                        504,
                        f'server {server["name"]} is still {server["status"]}',
                    )
                time.sleep(0.3)
            done.append(server)
        return done

    def delete(self, keys: Iterable[str], timeout_s: float = 60) -> None:
        """Delete servers, and wait until they are gone."""
        deadline = time.monotonic() + timeout_s
        todo = list(keys)
        for key in todo:
            self.compute('DELETE', f'/servers/{key}')
        while todo:
            try:
                self.server(todo[-1])
            except ApiError as error:
                if error.status != 404:
                    raise
                todo.pop()
            if todo and time.monotonic() > deadline:
                raise ApiError(504, f'server {todo[-1]} does not go away')
            time.sleep(0.2)

    def providers(self) -> list[dict[str, Any]]:
        """All resource providers, with inventories and traits."""
        found = self.placement('GET', '/resource_providers')
        providers = found['resource_providers']
        for one in providers:
            where = f'/resource_providers/{one["uuid"]}'
            one['inventories'] = self.placement('GET', f'{where}/inventories')[
                'inventories'
            ]
            one['traits'] = self.placement('GET', f'{where}/traits')['traits']
            one['usages'] = self.placement('GET', f'{where}/usages')['usages']
        return providers

    def allocations(self, server: str) -> dict[str, dict[str, int]]:
        """Provider uuid -> resources that a server holds."""
        found = self.placement('GET', f'/allocations/{server}')
        return {
            provider: one['resources']
            for provider, one in found['allocations'].items()
        }


def _message(answer: Any) -> str:
    try:
        body = answer.json()
    except ValueError:
        return answer.text[:500]
    if 'errors' in body:
        return '; '.join(e.get('detail', '') for e in body['errors'])
    first = next(iter(body.values()), {})
    return first.get('message', '') if isinstance(first, dict) else str(body)
