# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One bridge or NIC whose bandwidth Neutron has published in Placement.

Neutron publishes them below the compute node: ``<node>:OVN Controller
agent:<bridge>`` with OVN, ``<node>:Open vSwitch agent:<bridge>`` with ML2/OVS
and ``<node>:NIC Switch agent:<NIC>`` with SR-IOV. Pure.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

EGRESS = 'NET_BW_EGR_KILOBIT_PER_SEC'
INGRESS = 'NET_BW_IGR_KILOBIT_PER_SEC'

DIRECTIONS = (EGRESS, INGRESS)
"""Resource classes of bandwidth, seen from the guest."""

VNIC_TYPE = 'CUSTOM_VNIC_TYPE_'
"""Prefix of the traits that say which ports an uplink serves."""

Kbps = Mapping[str, int]
"""Bandwidth in kbit/s by resource class."""


class Bandwidth(NamedTuple):
    """Bandwidth of an uplink in one direction, in kbit/s.

    :ivar total: bandwidth that Placement allocates at most.
    :ivar used: bandwidth that ports have claimed.
    """

    total: int
    used: int


@dataclasses.dataclass(frozen=True, slots=True)
class NeutronUplink:
    """An uplink whose bandwidth Neutron has published.

    :ivar uuid: uuid of its resource provider.
    :ivar device: name of the bridge or NIC; the uuid if the name is unknown.
    :ivar traits: traits of the provider, such as ``CUSTOM_PHYSNET_HPC1``.
    :ivar bandwidth: bandwidth by resource class.
    """

    uuid: str
    device: str
    traits: frozenset[str]
    bandwidth: Mapping[str, Bandwidth]

    @property
    def mbps(self) -> int:
        """Speed of the slower direction, in Mbit/s."""
        return min(each.total for each in self.bandwidth.values()) // 1000

    def filled_by(self, kbps: Kbps) -> bool:
        """Return whether a port leaves no bandwidth to others.

        A policy for one direction is enough: OVN and ML2/OVS enforce egress.
        """
        return any(
            amount >= self.bandwidth[direction].total
            for direction, amount in kbps.items()
            if direction in self.bandwidth
        )

    def members(self, kbps: Kbps, empty: bool = False) -> int:
        """Return for how many members the bandwidth is enough.

        :param kbps: bandwidth that the ports of one member request.
        :param empty: whether to count as if no port had claimed any.
        """
        return min(
            0
            if each is None
            else max(0, each.total - (0 if empty else each.used)) // amount
            for direction, amount in kbps.items()
            for each in (self.bandwidth.get(direction),)
        )

    def __str__(self) -> str:
        return f'{self.device} ({self.mbps} Mbit/s according to Neutron)'


def of_summary(
    uuid: str, summary: Mapping[str, Any], names: Mapping[str, tuple[str, str]]
) -> NeutronUplink | None:
    """Return the uplink that a provider summary of Placement describes.

    :param names: type of agent and device by the uuid of the provider.
    :returns: None if the provider has no bandwidth.
    """
    resources = summary['resources']
    bandwidth = {
        direction: Bandwidth(int(values['capacity']), int(values['used']))
        for direction in DIRECTIONS
        if (values := resources.get(direction)) is not None
    }
    if not bandwidth:
        return None
    _, device = names.get(uuid, ('', uuid))
    return NeutronUplink(uuid, device, frozenset(summary['traits']), bandwidth)
