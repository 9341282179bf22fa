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

"""Switches and racks of hosts, from the aggregates of Nova's API.

Pure; the scheduler itself has the aggregates from Nova's host manager
(:mod:`~nova_vhpc.scheduler.hosts.fabric`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.scheduler.planner.model import one_of


def places(
    aggregates: Iterable[Mapping[str, Any]], switch_key: str, rack_key: str
) -> dict[str, tuple[str | None, str | None]]:
    """Return switch and rack by host, from the metadata of aggregates.

    Of several, the one that the scheduler takes.

    :raises TypeError: a name is no text.
    """
    found: dict[str, tuple[str | None, str | None]] = {}
    for aggregate in aggregates:
        metadata = aggregate['metadata']
        for host in aggregate['hosts']:
            switch, rack = found.get(host, (None, None))
            found[host] = (
                one_of(switch, _place(metadata, switch_key)),
                one_of(rack, _place(metadata, rack_key)),
            )
    return found


def _place(metadata: Mapping[str, Any], key: str) -> str | None:
    """Return the name of a switch or rack, None without one.

    :raises TypeError: it is no text.
    """
    return openstack.text(metadata[key]) if key in metadata else None
