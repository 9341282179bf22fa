# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Ports with a minimum bandwidth: what they request, and what serves them.

A port whose QoS policy has minimum-bandwidth rules asks Placement, by a
request group of its own, for bandwidth of an uplink on its physical network.
Neutron publishes the bandwidth, Nova claims it and Neutron binds the port.
Here all of that is only read. Pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nova_vhpc.scheduler.hosts import network_fit
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources import neutron_uplink
from nova_vhpc.scheduler.sources.neutron_uplink import NeutronUplink
from nova_vhpc.scheduler.sources.snapshot import HostUplinks
from nova_vhpc.topology import model

_PHYSNET = model.physnet_trait('')


class PortRequest(NamedTuple):
    """The bandwidth that one port of a member requests.

    :ivar group: id of its request group, by which the mappings of an
        allocation candidate name the uplink.
    :ivar kbps: bandwidth by resource class, in kbit/s.
    :ivar traits: traits that the uplink must have.
    """

    group: str
    kbps: neutron_uplink.Kbps
    traits: frozenset[str]

    @property
    def physnets(self) -> frozenset[str]:
        """Traits of the physical network that the port is on."""
        return frozenset(t for t in self.traits if t.startswith(_PHYSNET))


def requested(spec_obj: Any) -> tuple[PortRequest, ...]:
    """Return the bandwidth that the ports of one server request.

    Request groups of other things, such as packet rates or accelerators, are
    left out.

    :param spec_obj: Nova's RequestSpec.
    """
    groups = None
    if 'requested_resources' in spec_obj:
        groups = spec_obj.requested_resources
    requests = []
    for group in groups or ():
        kbps = {
            name: amount
            for name, amount in group.resources.items()
            if name in neutron_uplink.DIRECTIONS and amount > 0
        }
        if kbps:
            requests.append(
                PortRequest(
                    group.requester_id, kbps, frozenset(group.required_traits)
                )
            )
    return tuple(requests)


def flaw(
    networks: Any, rule: network_fit.Rule, requests: Sequence[PortRequest]
) -> str | None:
    """Return why no host serves a server with these ports, or None.

    :param networks: Nova's NetworkMetadata of the server, None if unknown.
    """
    if rule.beside is None or networks is None or networks.tunneled:
        return None
    own = {t for r in _own(rule, requests) for t in r.physnets}
    if own.issuperset(map(model.physnet_trait, networks.physnets)):
        return (
            'all ports of the server are on the physical network of its own '
            'uplink, and none is for co-located peers: add a port on another '
            'network, or use vhpc:network=separate'
        )
    return None


class PortFit(NamedTuple):
    """Whether the uplinks of a host serve the ports of one more member.

    :ivar reason: why they do not, for operators; None if they do.
    :ivar slots: number of further members with such ports.
    :ivar link_mbps: speed of the slowest uplink that a member may get, in
        Mbit/s.
    :ivar serving: uuids of the uplinks that serve a port, by request group.
    """

    reason: str | None = None
    slots: int = NO_LIMIT
    link_mbps: int = 0
    serving: Mapping[str, frozenset[str]] = {}

    def allows(
        self, rule: network_fit.Rule, candidate: Mapping[str, Any]
    ) -> bool:
        """Return whether an allocation candidate serves the ports."""
        claimed: set[str] = set()
        for group, uuids in self.serving.items():
            providers = candidate['mappings'].get(group, ())
            if not uuids.issuperset(providers):
                return False
            claimed.update(providers)
        return len(claimed) >= rule.bridges


def fit(
    rule: network_fit.Rule,
    requests: Sequence[PortRequest],
    host: HostUplinks,
    min_link_mbps: int | None,
) -> PortFit:
    """Return whether a host serves the ports of one more member.

    :param rule: uplinks that the network configuration needs.
    :param requests: what the ports of one member request.
    :param min_link_mbps: least link speed in Mbit/s, None without one.
    """
    serving: dict[str, frozenset[str]] = {}
    link_mbps = 0
    for request in _own(rule, requests):
        problems = []
        fitting = []
        for uplink in host.neutron_uplinks:
            if not request.traits <= uplink.traits:
                continue
            problem = _problem(rule, request, uplink, host, min_link_mbps)
            if problem is None:
                fitting.append(uplink)
            else:
                problems.append(problem)
        if not fitting:
            return PortFit(
                network_fit.listed(problems)
                if problems
                else _nothing(request, host)
            )
        serving[request.group] = frozenset([u.uuid for u in fitting])
        slowest = min(uplink.mbps for uplink in fitting)
        link_mbps = min(link_mbps or slowest, slowest)
    if len(frozenset().union(*serving.values())) < rule.bridges:
        return PortFit(
            'all ports of the server are on one uplink there, '
            f'{rule.bridges} are needed: create them on networks of '
            'different physical networks'
        )
    return PortFit(None, _slots(requests, host), link_mbps, serving)


def _own(
    rule: network_fit.Rule, requests: Sequence[PortRequest]
) -> Sequence[PortRequest]:
    """Return the requests for those uplinks that the rule is about.

    Of a member that wants an uplink for itself, this is the port with the most
    bandwidth: another one is for its co-located peers, or for users.
    """
    if rule.kind is not network_fit.SEPARATE:
        return requests
    return [max(requests, key=lambda request: max(request.kbps.values()))]


def _problem(
    rule: network_fit.Rule,
    request: PortRequest,
    uplink: NeutronUplink,
    host: HostUplinks,
    min_link_mbps: int | None,
) -> str | None:
    """Return why an uplink on the right network does not serve, or None."""
    # Neutron publishes a bridge whatever the state of its link.
    nics = [nic for nic in host.uplinks if nic.bridge == uplink.device]
    if nics and not any(nic.up or nic.mbps for nic in nics):
        return f'the link of {nics[0]} is down'
    if min_link_mbps and uplink.mbps < min_link_mbps:
        return f'{uplink}: vhpc:min_link_mbps asks for {min_link_mbps}'
    kbps = max(request.kbps.values())
    if not uplink.members(request.kbps, empty=True):
        return f'{uplink}: a port of the server asks for {kbps} kbit/s'
    if rule.kind is network_fit.SEPARATE and not uplink.filled_by(
        request.kbps
    ):
        return (
            f'{uplink} would not be for one member: its port claims only '
            f'{kbps} kbit/s. Make the minimum bandwidth of its QoS policy as '
            'large as the link'
        )
    return None


def _nothing(request: PortRequest, host: HostUplinks) -> str:
    published = [str(uplink) for uplink in host.neutron_uplinks]
    return (
        'Neutron has published no bandwidth there with '
        + ', '.join(sorted(request.traits))
        + (
            '; published are ' + network_fit.listed(published)
            if published
            else ''
        )
    )


def _slots(requests: Sequence[PortRequest], host: HostUplinks) -> int:
    """Return for how many members with such ports bandwidth is free."""
    shares: dict[tuple[str, ...], Counter[str]] = {}
    for request in requests:
        uuids = tuple(
            uplink.uuid
            for uplink in host.neutron_uplinks
            if request.traits <= uplink.traits
        )
        # Ports on one physical network share its uplinks.
        shares.setdefault(uuids, Counter()).update(request.kbps)
    return min(
        sum(
            uplink.members(kbps)
            for uplink in host.neutron_uplinks
            if uplink.uuid in uuids
        )
        for uuids, kbps in shares.items()
    )
