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

"""What Placement knows of all uplinks at one moment: plain values.

Pure. :func:`parse` reads the body of the bulk read that
:mod:`nova_vhpc.scheduler.sources.uplink_cache` makes.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nova_vhpc.topology import model

BULK_READ = (
    f'/allocation_candidates?resources={model.STAMP}:1'
    f'&root_required={model.TRAIT_HOST}'
)
"""One candidate per host that an agent publishes for, and in the
summaries every provider of its tree, full ones included."""

BULK_READ_VERSION = '1.36'

NAMES_READ_VERSION = '1.39'

_KINDS = frozenset({model.TRAIT_SHARED, model.TRAIT_SEPARATE})

_OWN = ('VCPU', 'PCPU', 'MEMORY_MB', 'DISK_GB')

Names = Mapping[str, tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class UplinkState:
    """One uplink as Placement has it.

    :ivar uuid: of its resource provider.
    :ivar kind: whether its bridge is shared or for one guest.
    :ivar bridge: name of its bridge; the uuid while not yet known.
    :ivar nic: kernel name of its NIC, or '?'.
    :ivar mbps: link speed in Mbit/s; 0 when down or not published.
    :ivar slots: guests that may claim it; 0 when the link is down.
    :ivar used: slots that are claimed.
    """

    uuid: str
    kind: model.BridgeKind
    bridge: str
    nic: str
    mbps: int
    slots: int
    used: int

    @property
    def up(self) -> bool:
        """Whether its link is up: a dead one is published as reserved."""
        return self.slots > 0

    @property
    def free(self) -> int:
        """Slots that may still be claimed."""
        return max(0, self.slots - self.used)

    def __str__(self) -> str:
        return f'NIC {self.nic} on bridge {self.bridge}'


class Resource(NamedTuple):
    """One of a host's own resources as Placement has it.

    :ivar capacity: what it gives out at most: less what is reserved, times
        the ratio that counts there.
    :ivar used: what is claimed.
    """

    capacity: int
    used: int


@dataclasses.dataclass(frozen=True, slots=True)
class HostUplinks:
    """The uplinks of one host, and when its agent last said so.

    :ivar stamp_minutes: minutes since the epoch.
    :ivar resources: CPUs, RAM and disk of the host itself, by class.
    """

    uplinks: tuple[UplinkState, ...] = ()
    stamp_minutes: int | None = None
    resources: Mapping[str, Resource] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The uplinks of all hosts at one moment.

    :ivar hosts: by the uuid of the compute node's root provider.
    :ivar taken_s: monotonic time of the read, in seconds.
    """

    hosts: Mapping[str, HostUplinks]
    taken_s: float


def parse(
    body: Mapping[str, Any], names: Names, taken_s: float = 0.0
) -> Snapshot:
    """Read the answer to :data:`BULK_READ`.

    :param body: of ``GET /allocation_candidates``, as decoded from JSON.
    :param names: bridge and NIC by the uuid of the uplink's provider.
    :raises KeyError, TypeError, ValueError: when it is no such answer.
    """
    found: dict[str, list[UplinkState]] = {}
    stamps: dict[str, int] = {}
    own: dict[str, dict[str, Resource]] = {}
    for uuid, summary in body['provider_summaries'].items():
        resources = summary['resources']
        root = summary['root_provider_uuid']
        if uuid == root:
            own[root] = {
                name: Resource(int(had['capacity']), int(had['used']))
                for name in _OWN
                if (had := resources.get(name)) is not None
            }
            continue
        stamp = resources.get(model.STAMP)
        if stamp is not None:
            stamps[root] = int(stamp['capacity'])
            found.setdefault(root, [])
            continue
        uplink = resources.get(model.UPLINK)
        if uplink is None:
            continue
        traits = summary['traits']
        if model.TRAIT_SEPARATE in traits:
            kind = model.BridgeKind.SEPARATE
        elif model.TRAIT_SHARED in traits:
            kind = model.BridgeKind.SHARED
        else:
            continue
        bridge, nic = names.get(uuid, (uuid, '?'))
        speed = resources.get(model.MBPS)
        found.setdefault(root, []).append(
            UplinkState(
                uuid,
                kind,
                bridge,
                nic,
                0 if speed is None else int(speed['capacity']),
                int(uplink['capacity']),
                int(uplink['used']),
            )
        )
    return Snapshot(
        hosts={
            root: HostUplinks(
                tuple(sorted(uplinks, key=_by_name)),
                stamps.get(root),
                own.get(root, {}),
            )
            for root, uplinks in found.items()
        },
        taken_s=taken_s,
    )


def parse_names(providers: Iterable[Mapping[str, Any]]) -> Names:
    """Bridge and NIC of every uplink, from the names of the providers.

    :param providers: the list in the answer to :func:`names_read`.
    """
    names: dict[str, tuple[str, str]] = {}
    for provider in providers:
        # A node's name may hold colons, a Linux interface's may not.
        parts = provider['name'].rsplit(':', 2)
        if len(parts) == 3:
            names[provider['uuid']] = (parts[1], parts[2])
    return names


def names_read(body: Mapping[str, Any], names: Names) -> str | None:
    """Path that reads the names of all uplinks, which summaries lack.

    :param body: the answer to :data:`BULK_READ`.
    :returns: None when no uplink's name is new. Else only traits that
        Placement has are named: it refuses to look for others.
    """
    traits: set[str] = set()
    for uuid, summary in body['provider_summaries'].items():
        if uuid not in names and model.UPLINK in summary['resources']:
            traits.update(_KINDS.intersection(summary['traits']))
    if not traits:
        return None
    return '/resource_providers?required=in:' + ','.join(sorted(traits))


def _by_name(uplink: UplinkState) -> tuple[str, str, str]:
    return (uplink.bridge, uplink.nic, uplink.uuid)
