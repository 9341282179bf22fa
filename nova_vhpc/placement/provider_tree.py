# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read and write nova-vhpc's resource providers of one compute node.

Shared by publishing and withdrawing. If a provider changes between reading
and writing (HTTP 409), it is read and written again.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tenacity

from nova_vhpc.placement import client as api
from nova_vhpc.topology import model

LOG = logging.getLogger(__name__)

_OUR_TRAITS = ('CUSTOM_VHPC_', 'CUSTOM_PHYSNET_')
_ATTEMPTS = 10


class NoRootError(api.PlacementError):
    """nova-compute has not created the compute node's provider yet."""


class ChangedError(api.ConflictError):
    """A provider has changed since it was read, as by a server's claim."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """The state that a provider must get."""

    name: str
    inventories: Mapping[str, Mapping[str, Any]]
    traits: frozenset[str]


_BARE = Wanted('', {}, frozenset())


class Providers:
    """The providers of one compute node: Nova's root, nova-vhpc's below.

    :param client: Placement client.
    :param names: names that the root provider may have, most likely first.
    :param root_uuid: UUID of the root provider if known; names are then
        ignored.
    """

    def __init__(
        self,
        client: api.PlacementClient,
        names: Sequence[str],
        root_uuid: str | None = None,
    ) -> None:
        self._client = client
        self.names = tuple(names)
        self._root_uuid = root_uuid
        self._has_warned = False

    def root(self) -> tuple[str, str]:
        """Return UUID and name of the compute node's root provider.

        :raises NoRootError: nova-compute has not created it yet.
        """
        if self._root_uuid is not None:
            root = self._client.find_root(uuid=self._root_uuid)
            if root is not None:
                return root
            raise NoRootError(
                f'no resource provider {self._root_uuid} in Placement; has '
                f'nova-compute started on this host?'
            )
        roots = [
            root
            for name in self.names
            if (root := self._client.find_root(name=name)) is not None
        ]
        if len(roots) > 1 and not self._has_warned:
            self._has_warned = True
            LOG.warning(
                'Placement has several providers for this host: %s (taken) '
                'and %s. If the first is left of another name of the host, '
                'set [vhpc_topology] node to the other one',
                *(name for _, name in roots[:2]),
            )
        if roots:
            return roots[0]
        raise NoRootError(
            f'no resource provider named {" or ".join(self.names)} in '
            f'Placement; has nova-compute started on this host? If its '
            f'node has another name, set [vhpc_topology] node'
        )

    def sync(self, uuid: str, wanted: Wanted) -> None:
        """Write the inventories and traits that differ from the wanted ones.

        Traits of others are kept.
        """
        self._retry(self._sync, uuid, wanted)

    def write(
        self,
        uuid: str,
        wanted: Wanted,
        generation: int,
        inventories: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Write what differs, unless the provider has changed since a read.

        Traits of others are kept.

        :param generation: generation of the provider when it was read.
        :param inventories: inventories of the provider when it was read.
        :raises ChangedError: the provider has changed since, as by a claim.
        """
        now, traits = self._client.traits(uuid)
        if now != generation:
            raise ChangedError(f'{wanted.name or uuid} was changed meanwhile')
        new_traits = wanted.traits | _others(traits)

        def put_inventories(generation: int) -> int:
            if _same(inventories, wanted.inventories):
                return generation
            return self._client.put_inventories(
                uuid, generation, wanted.inventories
            )

        def put_traits(generation: int) -> int:
            if traits == new_traits:
                return generation
            return self._client.put_traits(uuid, generation, new_traits)

        steps = [put_inventories, put_traits]
        if model.TRAIT_SHARED in wanted.traits:
            # Else a server could claim one of many slots for itself alone.
            steps.reverse()
        try:
            for step in steps:
                generation = step(generation)
        except api.ConflictError as error:
            raise ChangedError(str(error)) from error

    def empty(self, uuid: str) -> bool:
        """Remove a provider's inventories and our traits.

        If a server has claimed any of it, all of it is reserved instead, so
        that no further server can claim it.

        :returns: whether the provider is empty.
        """
        if not self._client.in_use(uuid):
            try:
                self._retry(self._sync, uuid, _BARE)
            except api.ConflictError:
                # A server claimed it between the two calls.
                pass
            else:
                return True
        self._retry(self._reserve, uuid)
        return False

    def mark_root(self, root: str, present: bool) -> None:
        """Add our trait to the root provider, or remove it."""
        self._retry(self._mark_root, root, present)

    def _sync(self, uuid: str, wanted: Wanted) -> None:
        self.write(uuid, wanted, *self._client.inventories(uuid))

    def _reserve(self, uuid: str) -> None:
        generation, inventories = self._client.inventories(uuid)
        wanted = {
            name: {**inventory, 'reserved': inventory['total']}
            for name, inventory in inventories.items()
        }
        if wanted != inventories:
            self._client.put_inventories(uuid, generation, wanted)

    def _mark_root(self, root: str, present: bool) -> None:
        generation, traits = self._client.traits(root)
        ours = frozenset([model.TRAIT_HOST])
        wanted = traits | ours if present else traits - ours
        if wanted != traits:
            self._client.put_traits(root, generation, wanted)

    def _retry(self, call: Callable[..., None], *args: Any) -> None:
        retrying(api.ConflictError)(call, *args)


def retrying(error: type[api.ConflictError]) -> tenacity.Retrying:
    """Return what calls again, at most ``_ATTEMPTS`` times, after an error.

    :param error: error that says that others write, too.
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(error),
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_random(0, 0.1),
        reraise=True,
    )


def _others(traits: frozenset[str]) -> frozenset[str]:
    return frozenset(t for t in traits if not t.startswith(_OUR_TRAITS))


def _same(
    found: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, Mapping[str, Any]],
) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].get(field) == value
        for name, inventory in wanted.items()
        for field, value in inventory.items()
    )


def is_ours(node: str, uuid: str, name: str) -> bool:
    """Return whether nova-vhpc made a provider.

    Its name must be one of ours, and its UUID derived from that name.
    """
    if name == model.marker_name(node):
        return uuid == model.marker_uuid(node)
    head = model.marker_name(node) + ':'
    parts = name.removeprefix(head).split(':')
    return (
        name.startswith(head)
        and len(parts) == 2
        and uuid == model.provider_uuid(node, *parts)
    )
