# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The Neutron ports of a member, as a request to explain names them. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from nova_vhpc.scheduler.hosts.networks import Networks
from nova_vhpc.scheduler.hosts.ports import PortRequest
from nova_vhpc.scheduler.sources import neutron_uplink
from nova_vhpc.topology import model


class Port(NamedTuple):
    """A port of each member.

    :ivar physnet: physical network of its network.
    :ivar kbps: minimum bandwidth of its QoS policy in both directions, in
        kbit/s; 0 without one.
    """

    physnet: str
    kbps: int = 0


def parse(text: str) -> Port:
    """Return the port that ``PHYSNET`` or ``PHYSNET:KBPS`` names.

    :raises ValueError: the text is neither.
    """
    physnet, colon, kbps = text.partition(':')
    if not physnet or (colon and not (kbps.isascii() and kbps.isdigit())):
        raise ValueError(f'{text!r} is not PHYSNET or PHYSNET:KBPS')
    return Port(physnet, int(kbps or 0))


def requests(ports: Iterable[Port]) -> tuple[PortRequest, ...]:
    """Return the bandwidth that the ports request, as Nova has it."""
    return tuple(
        PortRequest(
            f'_port{number}',
            dict.fromkeys(neutron_uplink.DIRECTIONS, port.kbps),
            frozenset(
                [
                    model.physnet_trait(port.physnet),
                    neutron_uplink.VNIC_TYPE + 'NORMAL',
                ]
            ),
        )
        for number, port in enumerate(ports)
        if port.kbps
    )


def networks(ports: Iterable[Port], tunneled: bool) -> Networks | None:
    """Return the networks of a member, None if the request names none.

    :param tunneled: whether a port is on a tunneled network.
    """
    physnets = frozenset(model.physnet_trait(port.physnet) for port in ports)
    return Networks(physnets, tunneled) if physnets or tunneled else None
