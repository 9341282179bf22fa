# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Which of this host's uplinks a server has claimed.

A claim is an allocation of an uplink's resource provider in Placement.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from nova_vhpc.placement import client, publisher
from nova_vhpc.topology import model

PAUSE_S = 5.0
"""Time without requests after one to Placement has failed."""

KEEP_S = 3600.0
"""Time for which an answer of Placement is kept, if it answers for others."""


class Publication(NamedTuple):
    """The last publication of this host's uplinks to Placement.

    :ivar client: client for further requests to Placement.
    :ivar published: outcome of the publication.
    :ivar topology: this host's bridges and uplinks, as last discovered.
    """

    client: client.PlacementClient
    published: publisher.Published
    topology: model.HostTopology


class ClaimedUplink(NamedTuple):
    """An uplink of this host that a server has claimed.

    :ivar bridge: name of the uplink's bridge.
    :ivar nic: kernel name of the NIC.
    :ivar encap_ip: OVN encap IP that lives on the uplink; None without one.
    :ivar physnets: Neutron's physical networks that it is on; empty if they
        are unknown.
    :ivar beside: other uplinks of the same bridge or physical network.
    :ivar same_encap_ip: those of them that have the same encap IP.
    """

    bridge: str
    nic: str
    encap_ip: str | None = None
    physnets: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    same_encap_ip: tuple[str, ...] = ()


class Claimant(NamedTuple):
    """A server that has claimed uplinks of this host.

    :ivar domain: its domain.
    :ivar uplinks: the uplinks that it has claimed.
    :ivar uplink_nic: ``vhpc:uplink_nic``; None if it is not set.
    """

    domain: Any
    uplinks: tuple[ClaimedUplink, ...]
    uplink_nic: int | None = None

    @property
    def uuid(self) -> str:
        """UUID of the server, which is that of its domain."""
        return str(self.domain.UUIDString())


class UplinkClaims:
    """Reads servers' claims on this host's uplinks from Placement.

    While Placement is away, the last answer counts, also after the server was
    started anew: claims change only by Placement.

    :param publication: returns the last publication, None before the first;
        raises PlacementError.
    """

    def __init__(self, publication: Callable[[], Publication | None]) -> None:
        self._publication = publication
        # By UUID of the server: the last answer, and when it came.
        self._last: dict[str, tuple[tuple[ClaimedUplink, ...], float]] = {}
        self._error: client.PlacementError | None = None
        self._ask_s = 0.0

    def uplinks(self, server: str) -> tuple[ClaimedUplink, ...] | None:
        """Return the uplinks that a server has claimed, sorted by bridge.

        Sends a request to Placement, so the tick must not call it. After one
        that failed it sends none for a while: each may take long, and the
        other servers of the host would have to wait.

        :returns: None before the first publication, when the uplinks are
            unknown.
        :raises PlacementError: Placement is away or refuses the request, and
            has never answered for the server.
        """
        now_s = time.monotonic()
        if self._error is None or now_s >= self._ask_s:
            try:
                return self._ask(server, now_s)
            except client.PlacementError as error:
                self._error = error
                self._ask_s = time.monotonic() + PAUSE_S
        if server in self._last:
            return self._last[server][0]
        raise self._error

    def last(self) -> dict[str, tuple[ClaimedUplink, ...]]:
        """Return Placement's last answers, by UUID of the server.

        It may have servers that are gone. Sends no request.
        """
        return {server: one[0] for server, one in self._last.copy().items()}

    def _ask(
        self, server: str, now_s: float
    ) -> tuple[ClaimedUplink, ...] | None:
        uplinks = self._read(server)
        self._error = None
        for other, (_, read_s) in list(self._last.items()):
            if now_s - read_s > KEEP_S:
                del self._last[other]
        if uplinks is not None:
            self._last[server] = uplinks, now_s
        return uplinks

    def _read(self, server: str) -> tuple[ClaimedUplink, ...] | None:
        publication = self._publication()
        if publication is None:
            return None
        uplinks = _uplinks_by_provider(
            publication.published, publication.topology
        )
        return tuple(
            sorted(
                uplinks[provider]
                for provider in publication.client.claimed_uplinks(server)
                if provider in uplinks
            )
        )


def _claimed(
    uplink: model.Uplink, topology: model.HostTopology
) -> ClaimedUplink:
    beside = [
        other
        for other in topology.uplinks
        if other is not uplink
        and (
            other.bridge == uplink.bridge
            or set(other.physnets).intersection(uplink.physnets)
        )
    ]
    return ClaimedUplink(
        uplink.bridge,
        uplink.nic,
        uplink.encap_ip,
        uplink.physnets,
        tuple(other.nic for other in beside),
        tuple(
            other.nic
            for other in beside
            if uplink.encap_ip and other.encap_ip == uplink.encap_ip
        ),
    )


def _uplinks_by_provider(
    published: publisher.Published, topology: model.HostTopology
) -> dict[str, ClaimedUplink]:
    """Return the uplinks of this host, by UUID of their resource provider."""
    uplinks = {
        model.provider_uuid(
            published.node, uplink.bridge, uplink.nic
        ): _claimed(uplink, topology)
        for uplink in topology.uplinks
    }
    present_bridges = {uplink.bridge for uplink in topology.uplinks}
    for name in published.reserved:
        # The uplink's NIC is gone or was renamed, but the bridge may still
        # exist, and servers keep their claims on the provider.
        bridge, nic = name.rsplit(':', 2)[1:]
        provider = model.provider_uuid(published.node, bridge, nic)
        if bridge in present_bridges:
            uplinks.setdefault(provider, ClaimedUplink(bridge, nic))
    return uplinks
