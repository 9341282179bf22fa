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


"""Free PCI devices of a cloud's hosts, as far as Placement knows them.

nova-compute reports devices to Placement with ``[pci]
report_in_placement``, by the resource class of their alias. Those that come
with a server's SR-IOV ports are known to nova-scheduler alone.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.flavor.request_groups import ALIAS

MANAGED = 'COMPUTE_MANAGED_PCI_DEVICE'
"""Trait of every PCI provider of nova-compute."""

VERSION = '1.36'


def resource_classes(aliases: Iterable[str]) -> dict[str, str]:
    """Resource class by the name of an alias.

    :param aliases: values of nova.conf's ``[pci] alias``. One that is no
        alias, or stands for several kinds of devices, is left out.
    """
    found: dict[str, set[str]] = {}
    for text in aliases:
        try:
            alias = json.loads(text)
            name = str(alias['name'])
            wanted = alias.get('resource_class') or (
                f'CUSTOM_PCI_{alias["vendor_id"]}_{alias["product_id"]}'
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        found.setdefault(name, set()).add(str(wanted).upper())
    return {
        name: classes.pop()
        for name, classes in found.items()
        if len(classes) == 1
    }


def free(
    placement: Any, specs: Mapping[str, str], classes: Mapping[str, str]
) -> dict[str, int]:
    """Free devices of the flavor's alias by root provider.

    Hosts that report no devices to Placement are left out: theirs are
    unknown.

    :param specs: the flavor's extra specs.
    :param classes: of :func:`resource_classes`.
    :raises CloudError: if Placement does not answer.
    """
    name = specs.get(ALIAS, '').partition(':')[0].strip()
    if name not in classes or ',' in specs[ALIAS]:
        return {}
    providers = _get(placement, f'/resource_providers?required={MANAGED}')
    found = {
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
                if devices and root in found:
                    found[root] += devices['capacity'] - devices['used']
            return found
    # No host has ever reported a device of that class.
    return {}


def _spellings(wanted: str) -> tuple[str, ...]:
    """A class as it stands, and as a custom one, which Nova makes of it."""
    if wanted.startswith('CUSTOM_'):
        return (wanted,)
    return (wanted, 'CUSTOM_' + re.sub('[^0-9A-Z]+', '_', wanted))


def _get(placement: Any, path: str) -> Any:
    """One answer; empty if Placement does not know a name in the question."""
    try:
        return openstack.get(placement, path, VERSION)
    except openstack.UnknownNameError:
        return {}
