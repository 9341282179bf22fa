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


"""Free PCI devices of a cloud's hosts, as far as Placement has them.

With ``[pci] report_in_placement``, nova-compute reports devices to Placement
under the resource class of their alias. Only nova-scheduler knows the free
devices for SR-IOV ports.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.flavor.request_groups import ALIAS

MANAGED = 'COMPUTE_MANAGED_PCI_DEVICE'
"""Trait of each resource provider for PCI devices of nova-compute."""

VERSION = '1.36'


def resource_classes(aliases: Iterable[str]) -> dict[str, str]:
    """Return the resource class of each PCI alias.

    :param aliases: values of nova.conf's ``[pci] alias``. A value that is no
        alias is ignored.
    :returns: resource class by alias, without aliases for several classes.
    """
    classes_by_alias: dict[str, set[str]] = {}
    for text in aliases:
        try:
            alias = json.loads(text)
            name = str(alias['name'])
            resource_class = alias.get('resource_class') or (
                f'CUSTOM_PCI_{alias["vendor_id"]}_{alias["product_id"]}'
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        classes_by_alias.setdefault(name, set()).add(
            str(resource_class).upper()
        )
    return {
        name: classes.pop()
        for name, classes in classes_by_alias.items()
        if len(classes) == 1
    }


def free(
    placement: Any, specs: Mapping[str, str], classes: Mapping[str, str]
) -> dict[str, int]:
    """Return the number of free devices of the flavor's alias on each host.

    :param specs: extra specs of the flavor.
    :param classes: resource class by alias (:func:`resource_classes`).
    :returns: number by the uuid of the host's root provider, without hosts
        that report no devices to Placement; empty if the flavor has no alias,
        several, or one of unknown class.
    :raises CloudError: Placement does not answer.
    """
    name = specs.get(ALIAS, '').partition(':')[0].strip()
    if name not in classes or ',' in specs[ALIAS]:
        return {}
    providers = _get(placement, f'/resource_providers?required={MANAGED}')
    free_by_root = {
        provider['root_provider_uuid']: 0
        for provider in providers.get('resource_providers', ())
    }
    for resource_class in _spellings(classes[name]):
        body = _get(
            placement, f'/allocation_candidates?resources={resource_class}:1'
        )
        if body:
            for summary in body['provider_summaries'].values():
                devices = summary['resources'].get(resource_class)
                root = summary['root_provider_uuid']
                if devices and root in free_by_root:
                    free_by_root[root] += devices['capacity'] - devices['used']
            return free_by_root
    # No host has ever reported a device of that class.
    return {}


def _spellings(resource_class: str) -> tuple[str, ...]:
    """Return the standard and the custom class that an alias may mean.

    Nova turns a class that is no standard one into a custom class.
    """
    if resource_class.startswith('CUSTOM_'):
        return (resource_class,)
    custom = 'CUSTOM_' + re.sub('[^0-9A-Z]+', '_', resource_class)
    return (resource_class, custom)


def _get(placement: Any, path: str) -> Any:
    """Return an answer; empty if a trait or class in the path is unknown."""
    try:
        return openstack.get(placement, path, VERSION)
    except openstack.UnknownNameError:
        return {}
