# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A Placement client with only the calls that publishing needs."""

import contextlib
import http
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from keystoneauth1 import adapter as ksa_adapter

from nova_vhpc.clients import failures
from nova_vhpc.conf import placement as placement_conf
from nova_vhpc.topology import model

MICROVERSION = '1.36'

MICROVERSION_MOVE = '1.37'
"""First microversion that can change or remove a provider's parent."""

_PLACE = failures.Place.of_group(placement_conf.GROUP)

_KINDS = frozenset(
    (
        model.TRAIT_SHARED,
        model.TRAIT_SEPARATE,
        model.TRAIT_EXPORTED,
        model.TRAIT_TUNNEL,
        model.TRAIT_BOND,
    )
)

Inventories = Mapping[str, Mapping[str, Any]]


class PlacementError(Exception):
    """Placement is away, refused a request, or sent an invalid answer."""


class ConflictError(PlacementError):
    """The provider was changed meanwhile, or is in use (HTTP 409)."""


class PlacementClient:
    """Placement's REST API, as far as publishing needs it.

    Each method raises :class:`ConflictError` on HTTP 409, and
    :class:`PlacementError` on any other failure.

    :param adapter: keystoneauth adapter for the placement service.
    :param place: where its options are set.
    :ivar writes: number of requests that may have changed something.
    """

    def __init__(
        self,
        adapter: ksa_adapter.Adapter,
        place: failures.Place = _PLACE,
    ) -> None:
        self._adapter = adapter
        self._place = place
        self._known: set[str] = set()
        self.writes = 0

    def find_root(
        self, *, name: str | None = None, uuid: str | None = None
    ) -> tuple[str, str] | None:
        """Return UUID and name of a root provider, None if there is none.

        :param name: name to look for, if ``uuid`` is None.
        :param uuid: UUID to look for.
        """
        query = urllib.parse.urlencode(
            {'name': name} if uuid is None else {'uuid': uuid}
        )
        with self._answer(f'/resource_providers?{query}') as body:
            for provider in body['resource_providers']:
                if provider.get('parent_provider_uuid') is None:
                    return str(provider['uuid']), str(provider['name'])
        return None

    def children(self, root: str) -> dict[str, str]:
        """Return the names of a root provider's direct children, by UUID."""
        with self._answer(f'/resource_providers?in_tree={root}') as body:
            return {
                str(provider['uuid']): str(provider['name'])
                for provider in body['resource_providers']
                if provider.get('parent_provider_uuid') == root
            }

    def separate(self, root: str) -> frozenset[str]:
        """Return the UUIDs of a tree's uplinks of bridges for one guest."""
        trait = model.TRAIT_SEPARATE
        url = f'/resource_providers?in_tree={root}&required={trait}'
        try:
            with self._answer(url) as body:
                return frozenset(
                    str(provider['uuid'])
                    for provider in body['resource_providers']
                )
        except PlacementError as error:
            # Placement refuses a trait that no agent has created yet.
            if f'No such trait(s): {trait}' not in str(error):
                raise
            return frozenset()

    def tree_of_root(self, root: str) -> dict[str, str]:
        """Return the names of a root provider and all below it, by UUID.

        :returns: the root last; empty if the provider does not exist or has
            a parent.
        """
        with self._answer(f'/resource_providers?in_tree={root}') as body:
            tree = {
                str(provider['uuid']): provider
                for provider in body['resource_providers']
            }
            if root not in tree or tree[root]['parent_provider_uuid']:
                return {}
            tree[root] = tree.pop(root)
            return {uuid: str(one['name']) for uuid, one in tree.items()}

    def create(self, uuid: str, name: str, parent: str | None) -> None:
        """Create a provider.

        :param parent: UUID of its parent, None for a root.
        """
        self._call(
            'POST',
            '/resource_providers',
            {'uuid': uuid, 'name': name, 'parent_provider_uuid': parent},
        )

    def move(self, uuid: str, name: str, parent: str | None) -> None:
        """Change a provider's parent; its own children move with it.

        :param name: name of the provider.
        :param parent: UUID of the new parent, None to make it a root.
        """
        self._call(
            'PUT',
            f'/resource_providers/{uuid}',
            {'name': name, 'parent_provider_uuid': parent},
            microversion=MICROVERSION_MOVE,
        )

    def delete(self, uuid: str) -> None:
        """Delete a provider. Nothing happens if it does not exist.

        :raises ConflictError: the provider is in use.
        """
        self._call('DELETE', f'/resource_providers/{uuid}', missing_ok=True)

    def inventories(self, uuid: str) -> tuple[int, dict[str, Any]]:
        """Return generation and inventories of a provider."""
        with self._answer(f'/resource_providers/{uuid}/inventories') as body:
            return (
                int(body['resource_provider_generation']),
                {
                    str(name): dict(i)
                    for name, i in body['inventories'].items()
                },
            )

    def put_inventories(
        self, uuid: str, generation: int, inventories: Inventories
    ) -> int:
        """Replace a provider's inventories; return its new generation."""
        for name in inventories:
            self._ensure('resource_classes', name)
        return self._put(
            f'/resource_providers/{uuid}/inventories',
            {
                'resource_provider_generation': generation,
                'inventories': inventories,
            },
        )

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """Return generation and traits of a provider."""
        with self._answer(f'/resource_providers/{uuid}/traits') as body:
            return (
                int(body['resource_provider_generation']),
                frozenset(str(trait) for trait in body['traits']),
            )

    def put_traits(
        self, uuid: str, generation: int, traits: Collection[str]
    ) -> int:
        """Replace a provider's traits; return its new generation."""
        # Placement refuses a query with a trait that does not exist yet. The
        # filter queries both kinds of bridge, and flavors may name any trait
        # of ours, so all are created.
        kinds = _KINDS if _KINDS & set(traits) else frozenset()
        for name in sorted(kinds | set(traits)):
            if name.startswith('CUSTOM_'):
                self._ensure('traits', name)
        return self._put(
            f'/resource_providers/{uuid}/traits',
            {
                'resource_provider_generation': generation,
                'traits': sorted(traits),
            },
        )

    def in_use(self, uuid: str) -> bool:
        """Return whether any consumer has an allocation of a provider."""
        return any(self._usages(uuid).values())

    def claims(self, uuid: str) -> int:
        """Return the number of claimed slots of an uplink."""
        return self._usages(uuid).get(model.UPLINK, 0)

    def claimed_uplinks(self, consumer: str) -> frozenset[str]:
        """Return the UUIDs of the uplinks that a server has claimed."""
        with self._answer(f'/allocations/{consumer}') as body:
            return frozenset(model.uplinks_in(body['allocations']))

    def forget(self) -> None:
        """Forget which resource classes and traits exist.

        They are then created again before their next use.
        """
        self._known.clear()

    def _usages(self, uuid: str) -> dict[str, int]:
        with self._answer(f'/resource_providers/{uuid}/usages') as body:
            return {str(n): int(used) for n, used in body['usages'].items()}

    def _ensure(self, collection: str, name: str) -> None:
        if name not in self._known:
            self._call('PUT', f'/{collection}/{name}')
            self._known.add(name)

    def _put(self, url: str, body: Mapping[str, Any]) -> int:
        """Send a PUT request; return the provider's new generation."""
        with self._answer(url, 'PUT', body) as answer:
            return int(answer['resource_provider_generation'])

    @contextlib.contextmanager
    def _answer(
        self, url: str, method: str = 'GET', request: Any = None
    ) -> Iterator[Any]:
        """Give the decoded answer to a request to a block that reads it.

        :raises PlacementError: the request failed, or the answer is not what
            Placement's API describes, as that of a proxy in between.
        """
        response = self._call(method, url, request)
        try:
            yield response.json()
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise PlacementError(
                f'{method} {url}: the answer is not one of Placement '
                f'({error!r})'
            ) from None

    def _call(
        self,
        method: str,
        url: str,
        json: Any = None,
        missing_ok: bool = False,
        microversion: str = MICROVERSION,
    ) -> Any:
        if method != 'GET':
            self.writes += 1
        try:
            response = self._adapter.request(
                url,
                method,
                json=json,
                microversion=microversion,
                raise_exc=False,
                headers={'Accept': 'application/json'},
            )
        except Exception as error:
            # keystoneauth raises many kinds.
            raise PlacementError(
                failures.reason(error, self._place, self._adapter)
            ) from error
        code = response.status_code
        if code < http.HTTPStatus.BAD_REQUEST or (
            missing_ok and code == http.HTTPStatus.NOT_FOUND
        ):
            return response
        error_type = (
            ConflictError
            if code == http.HTTPStatus.CONFLICT
            else PlacementError
        )
        text = f'{method} {url}: {code}: {_detail(response)}'
        if hint := failures.refusal(code, self._place, self._adapter):
            text = f'{text.rstrip(". ")}; {hint}'
        raise error_type(text)


def _detail(response: Any) -> str:
    try:
        detail = response.json()['errors'][0]['detail']
    except (ValueError, LookupError, TypeError):
        detail = response.text[:200]
    return ' '.join(str(detail).split())
