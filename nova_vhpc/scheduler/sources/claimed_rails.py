# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The rails on which members of a cluster run, from their claims."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oslo_log import log as logging

from nova_vhpc.scheduler.sources.snapshot import HostUplinks
from nova_vhpc.topology import model

LOG = logging.getLogger(__name__)

VERSION = '1.12'

MOST_READS = 16
"""Most members whose claims are read: each takes one request to Placement, and
a few of them tell the rails of all."""

MOST_MEMBERS = 8
"""Number of members with uplinks after which no more are read."""


def of_members(
    uuids: Iterable[str],
    hosts: Mapping[str, HostUplinks],
    get: Callable[[str, str], Any],
) -> dict[str, Counter[str]]:
    """Return how many members are on which rail, as far as they were read.

    :param uuids: UUIDs of members; one that has no host yet counts as none.
    :param hosts: the uplinks of each host.
    :param get: reads a path of Placement.
    :returns: number of members by rail, by key of the host; empty if Placement
        did not answer, which is logged.
    """
    claimed: Counter[str] = Counter()
    members = 0
    for uuid in itertools.islice(uuids, MOST_READS):
        try:
            allocations: Mapping[str, Any] = get(
                f'/allocations/{uuid}', VERSION
            )['allocations']
        except Exception as error:
            LOG.warning(
                'Cannot read the uplink that member %s has claimed; the plan '
                'does not know the rails of running members: %s: %s',
                uuid,
                type(error).__name__,
                error,
            )
            return {}
        uplinks = model.uplinks_in(allocations)
        claimed.update(uplinks)
        members += bool(uplinks)
        if members >= MOST_MEMBERS:
            break
    found: dict[str, Counter[str]] = {}
    if not claimed:
        return found
    for key, host in hosts.items():
        for uplink in host.uplinks:
            if uplink.uuid in claimed and uplink.tunnel:
                of_host = found.setdefault(key, Counter())
                of_host[uplink.rail] += claimed[uplink.uuid]
    return found
