# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Free PCI devices of a cloud's hosts, as far as Placement has them.

With ``[pci] report_in_placement``, nova-compute reports devices to Placement
under the resource class of their alias. Only nova-scheduler knows the free
devices for SR-IOV ports.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.flavor import pci_aliases
from nova_vhpc.flavor.request_groups import ALIAS

MANAGED = 'COMPUTE_MANAGED_PCI_DEVICE'
"""Trait of each resource provider for PCI devices of nova-compute."""

VERSION = '1.36'

_CUSTOM = 'CUSTOM_'


@dataclasses.dataclass(frozen=True, slots=True)
class Alias:
    """The devices of a PCI alias.

    :ivar resource_class: their resource class in Placement.
    :ivar traits: traits that they must have, as in nova.conf.
    """

    resource_class: str
    traits: tuple[str, ...] = ()


def aliases(texts: Iterable[str]) -> dict[str, Alias]:
    """Return the devices of each PCI alias.

    :param texts: values of nova.conf's ``[pci] alias``. A value that is no
        alias is ignored.
    :returns: devices by alias, without aliases for several kinds of devices.
    """
    kinds: dict[str, set[Alias]] = {}
    for text in texts:
        try:
            alias = json.loads(text)
            name = str(alias['name']).strip()
            resource_class = alias.get('resource_class') or (
                f'CUSTOM_PCI_{alias["vendor_id"]}_{alias["product_id"]}'
            )
            traits = str(alias.get('traits') or '').upper().split(',')
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        kinds.setdefault(name, set()).add(
            Alias(str(resource_class).upper(), tuple(filter(None, traits)))
        )
    return {
        name: alias.pop() for name, alias in kinds.items() if len(alias) == 1
    }


def requested(
    placement: Any, specs: Mapping[str, str], known: Mapping[str, Alias]
) -> list[Alias]:
    """Return the devices of a flavor, one for each request group of Nova.

    With ``[filter_scheduler] pci_in_placement``, Nova asks Placement for each
    device by a request group of its own.

    :param placement: adapter of an openstacksdk connection.
    :param specs: extra specs of the flavor.
    :param known: devices by alias (:func:`aliases`). Others are left out.
    :returns: devices with the names that Placement knows.
    :raises CloudError: Placement does not answer.
    """
    groups: list[Alias] = []
    for name, count in pci_aliases.counts(specs):
        if name in known and count:
            alias = known[name]
            names = (alias.resource_class, *alias.traits)
            if not all(name.startswith(_CUSTOM) for name in names):
                alias = _normalized(placement, alias)
            groups += [alias] * count
    return groups


def free(
    placement: Any, specs: Mapping[str, str], known: Mapping[str, Alias]
) -> dict[str, tuple[int, ...]]:
    """Return the numbers of free devices of the flavor's alias on each host.

    :param specs: extra specs of the flavor.
    :param known: devices by alias (:func:`aliases`).
    :returns: one number for each physical function, by the uuid of the host's
        root provider, without hosts that report no devices to Placement;
        empty if the flavor has no alias, several, or an unknown one.
    :raises CloudError: Placement does not answer.
    """
    name = specs.get(ALIAS, '').partition(':')[0].strip()
    if name not in known or ',' in specs[ALIAS]:
        return {}
    providers = _get(placement, f'/resource_providers?required={MANAGED}')
    free_by_root: dict[str, tuple[int, ...]] = {
        provider['root_provider_uuid']: ()
        for provider in providers.get('resource_providers', ())
    }
    alias = _normalized(placement, known[name])
    query = f'resources={alias.resource_class}:1'
    if alias.traits:
        query += '&required=' + ','.join(alias.traits)
    body = _get(placement, f'/allocation_candidates?{query}')
    if not body:
        # No host has ever reported such a device.
        return {}
    offered = {
        uuid
        for candidate in body['allocation_requests']
        for uuid in candidate['allocations']
    }
    for uuid, summary in body['provider_summaries'].items():
        devices = summary['resources'].get(alias.resource_class)
        root = summary['root_provider_uuid']
        # Summaries also contain providers without the traits.
        if devices and root in free_by_root and uuid in offered:
            free_by_root[root] += (devices['capacity'] - devices['used'],)
    return free_by_root


def members(free: Sequence[int], devices: int, isolated: bool) -> int:
    """Return how many members the free devices of a host serve.

    :param free: number of free devices of each physical function.
    :param devices: number of devices of one member, at least 1.
    :param isolated: whether those of one member must be of different physical
        functions, as with ``group_policy=isolate`` where Placement allocates
        them.
    """
    count = sum(free) // devices
    while isolated and sum(min(n, count) for n in free) < devices * count:
        count -= 1
    return count


def _normalized(placement: Any, alias: Alias) -> Alias:
    """Return an alias with the names that Placement knows.

    Nova turns a resource class or trait that is no standard one into a custom
    one.
    """
    resource_class = alias.resource_class
    if not resource_class.startswith(_CUSTOM) and not _get(
        placement, f'/resource_classes/{resource_class}'
    ):
        resource_class = _custom(resource_class)
    traits = []
    for trait in alias.traits:
        known = trait.startswith(_CUSTOM) or _get(
            placement, f'/traits?name=in:{trait}'
        ).get('traits')
        traits.append(trait if known else _custom(trait))
    return Alias(resource_class, tuple(traits))


def _custom(name: str) -> str:
    return _CUSTOM + re.sub('[^0-9A-Z]+', '_', name)


def _get(placement: Any, path: str) -> Any:
    """Return an answer; empty if a trait or class in the path is unknown."""
    try:
        return openstack.get(placement, path, VERSION)
    except (openstack.UnknownNameError, openstack.GoneError):
        return {}
