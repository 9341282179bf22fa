# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
