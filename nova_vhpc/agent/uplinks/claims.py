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


"""Which of this host's uplinks a server has claimed.

A claim is an allocation of an uplink's resource provider in Placement.
"""

from collections.abc import Callable
from typing import NamedTuple

from nova_vhpc.placement import client, publisher
from nova_vhpc.topology import model


class Publication(NamedTuple):
    """The last publication of this host's uplinks to Placement.

    :ivar client: client for further requests to Placement.
    :ivar published: outcome of the publication.
    :ivar topology: this host's bridges and uplinks, as last discovered.
    """

    client: client.PlacementClient
    published: publisher.Published
    topology: model.HostTopology


class UplinkClaims:
    """Reads servers' claims on this host's uplinks from Placement.

    :param publication: returns the last publication, None before the first;
        raises PlacementError.
    """

    def __init__(self, publication: Callable[[], Publication | None]) -> None:
        self._publication = publication

    def bridges(self, server: str) -> tuple[str, ...]:
        """Return the bridges of the uplinks that a server has claimed.

        Sends a request to Placement, so the tick must not call it. Empty
        before the first publication.

        :param server: UUID of the server.
        :raises PlacementError: Placement is away or refuses the request.
        """
        publication = self._publication()
        if publication is None:
            return ()
        bridges = _bridges_by_provider(
            publication.published, publication.topology
        )
        return tuple(
            sorted(
                bridges[provider]
                for provider in publication.client.claimed_uplinks(server)
                if provider in bridges
            )
        )


def _bridges_by_provider(
    published: publisher.Published, topology: model.HostTopology
) -> dict[str, str]:
    """Return the bridge of each uplink, by UUID of its resource provider."""
    bridges = {
        model.provider_uuid(
            published.node, uplink.bridge, uplink.nic
        ): uplink.bridge
        for uplink in topology.uplinks
    }
    present_bridges = set(bridges.values())
    for name in published.reserved:
        # The uplink's NIC is gone or was renamed, but the bridge may still
        # exist, and servers keep their claims on the provider.
        bridge, nic = name.rsplit(':', 2)[1:]
        if bridge in present_bridges:
            provider = model.provider_uuid(published.node, bridge, nic)
            bridges[provider] = bridge
    return bridges
