# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Which bond a claimed uplink is a member of. Pure."""

from typing import NamedTuple

from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.topology import open_vswitch


class BondMember(NamedTuple):
    """A claimed uplink that is a member of a bond.

    :ivar bridge: bridge that the bond is in.
    :ivar nic: name of the member.
    """

    bridge: str
    bond: open_vswitch.Port
    nic: str


def find(state: open_vswitch.OpenVswitch, nic: str) -> BondMember | None:
    """Return the bond that a NIC is a member of; None if it is in none."""
    port = state.port_of.get(nic)
    if port is None or not port.is_bond:
        return None
    return BondMember(state.bridge_of[nic], port, nic)


def checked(
    state: open_vswitch.OpenVswitch,
    uplink: claims.ClaimedUplink,
    host: str,
) -> BondMember:
    """Return the member that an uplink is, if guests can be steered to it.

    :param host: name of the host, for the message.
    :raises UnsupportedError: they cannot.
    """
    member = find(state, uplink.nic)
    if member is None:
        raise UnsupportedError(
            f'uplink {uplink.nic} (bridge {uplink.bridge}) of host {host} is '
            'no member of a bond of Open vSwitch any more',
            'Put it back, or move the server to another host',
            cause='bond',
        )
    if reason := member.bond.unstable_because:
        raise UnsupportedError(
            f'bond {member.bond.name} (bridge {member.bridge}) of host {host} '
            f'cannot be steered: {reason}',
            'Set bond_mode=balance-slb, lacp=off and '
            'other_config:bond-rebalance-interval=0 of the port; or move '
            f'servers that have claimed {uplink.nic} to another host',
            cause='bond',
        )
    return member
