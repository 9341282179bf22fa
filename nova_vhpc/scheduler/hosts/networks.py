# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The Neutron networks of a server, and which uplinks serve them.

A claim on an uplink steers packets of a server only if the server is on a
network that uses the uplink. Pure.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from nova_vhpc.scheduler.sources.snapshot import UplinkState
from nova_vhpc.topology import model


class Networks(NamedTuple):
    """The networks of a server, as far as they are known.

    :ivar physnets: traits of the physical networks that the server is on.
    :ivar tunneled: whether one of its networks is tunneled.
    :ivar by_encap_ip: whether an uplink serves a tunneled network only if it
        has an encap IP of OVN. So it is where any host of the cloud has such
        uplinks; else no claim steers tunneled packets, on any host.
    """

    physnets: frozenset[str] = frozenset()
    tunneled: bool = False
    by_encap_ip: bool = False

    @property
    def uses_encap_ips(self) -> bool:
        """Whether the encap IP of an uplink steers packets of the server."""
        return self.tunneled and self.by_encap_ip

    def with_encap_ips(self, encap_ips: bool) -> 'Networks':
        """Return the networks in a cloud with, or without, encap IPs.

        :param encap_ips: whether any host has uplinks with encap IPs.
        """
        return self._replace(by_encap_ip=self.tunneled and encap_ips)

    def problem(self, uplink: UplinkState) -> str | None:
        """Return why an uplink serves none of the networks, None if it does.

        An uplink whose physical network is unknown counts as serving any, but
        for uplinks with an encap IP: there, Open vSwitch's database tells the
        physical networks.
        """
        if self.tunneled and (uplink.tunnel or not self.by_encap_ip):
            return None
        if self.physnets:
            if uplink.physnets:
                if not self.physnets.isdisjoint(uplink.physnets):
                    return None
                return (
                    f'{uplink} is on {_names(uplink.physnets)}, the networks '
                    f'of the server are on {self}'
                )
            if not uplink.tunnel:
                return None
            return (
                f'{uplink} is on no physical network, it is for tunnels only; '
                f'the networks of the server are on {self}'
            )
        if not self.tunneled:
            return None
        return (
            f'{uplink} has no encap IP, so that a claim on it steers no '
            'packet of the tunneled network that the server is on'
        )

    def __str__(self) -> str:
        names = [_names(self.physnets)] if self.physnets else []
        return ' and '.join(names + ['tunnels'] * self.tunneled)


def of_member(
    metadata: Any, requested_physnets: Iterable[str]
) -> Networks | None:
    """Return the networks that a server is on, None if they are unknown.

    :param metadata: Nova's NetworkMetadata of the server; if it is None or
        names no network, the ports' requests name some of them.
    :param requested_physnets: traits of the physical networks on which the
        server's ports request bandwidth.
    """
    if metadata is not None and (metadata.tunneled or metadata.physnets):
        return Networks(
            frozenset(map(model.physnet_trait, metadata.physnets)),
            bool(metadata.tunneled),
        )
    physnets = frozenset(requested_physnets)
    return Networks(physnets) if physnets else None


def _names(physnets: Iterable[str]) -> str:
    return ', '.join(sorted(physnets))
