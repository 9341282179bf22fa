# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Which VLAN the frames of a guest leave the host in.

Neutron's Open vSwitch agent records the network at the guest's port. OVN does
not: then the VLAN is where the bond's bridge has seen the NIC's address. The
bridge keeps that for minutes, and the agent until the guest is gone.
"""

import dataclasses
import time
from collections.abc import Mapping, Set

from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import bond_table
from nova_vhpc.topology import open_vswitch

SILENCE_S = 60.0
"""Time for which a guest without a frame yet is no problem: it boots."""

CHECK_S = 60.0
"""Time between two checks of a VLAN that was learned."""

_LOAD = 20
"""A bridge with a large table of MAC addresses is read at 1/20 of the time."""

_PROVIDER_TYPES = ('flat', 'vlan')
"""Types of Neutron's networks whose frames leave by provider bridges."""


@dataclasses.dataclass(slots=True)
class SoughtVlan:
    """The VLAN of one NIC of a guest.

    :ivar mac: MAC address of the NIC, in lower case.
    :ivar uuid: UUID of the guest, for messages.
    :ivar since_s: monotonic time since when it is sought.
    :ivar vlan: VLAN on the wire, 0 for none; None until it is known.
    """

    mac: str
    uuid: str
    since_s: float = dataclasses.field(default_factory=time.monotonic)
    vlan: int | None = None


class WireVlans:
    """Finds the VLANs of NICs.

    :param table: what ovs-vswitchd knows.
    """

    def __init__(self, table: bond_table.BondTable, host: str) -> None:
        self._table = table
        self._host = host
        # Of each bridge: when its table was read, and how long that took.
        self._read: dict[str, tuple[float, float]] = {}
        self._learned: dict[
            str, Mapping[str, tuple[bond_table.Learned, ...]]
        ] = {}

    def find(
        self,
        sought: SoughtVlan,
        port: open_vswitch.Port | None,
        uplink: claims.ClaimedUplink,
        member: bond_table.BondMember,
        macs: Set[str],
    ) -> int | None:
        """Find the VLAN of a NIC, and keep it in ``sought``.

        :param port: port of the NIC; None if it is away.
        :param uplink: the claimed uplink, which is the member.
        :param macs: the MAC addresses that are sought in all.
        :returns: None if the guest may not have sent a frame yet.
        :raises UnsupportedError: the VLAN cannot be known, or the network does
            not leave by the bond.
        :raises VswitchdError: ovs-vswitchd does not answer.
        """
        vlan = _recorded(port, uplink, member, self._host)
        if vlan is None:
            vlan = self._seen(sought, member, macs)
        sought.vlan = vlan
        return vlan

    def _seen(
        self,
        sought: SoughtVlan,
        member: bond_table.BondMember,
        macs: Set[str],
    ) -> int | None:
        max_age_s = 0 if sought.vlan is None else CHECK_S
        learned = self._learned_by(member.bridge, macs, max_age_s)
        vlans = _vlans(learned.get(sought.mac, ()), member.bond)
        if len(vlans) == 1:
            return next(iter(vlans))
        if sought.vlan is not None:
            # The guest has not sent for a while, or its network has got
            # another VLAN, and the bridge has not forgotten the former yet.
            return sought.vlan
        nic = f'NIC {sought.mac} of {sought.uuid}'
        if vlans:
            raise UnsupportedError(
                f'{nic} sends in VLANs {sorted(vlans)} by bridge '
                f'{member.bridge} of host {self._host}, and which of them its '
                'claim is for is unknown. Use a network in which the guest '
                'sets no VLANs'
            )
        if time.monotonic() - sought.since_s >= SILENCE_S:
            raise UnsupportedError(
                f'bridge {member.bridge} of host {self._host} has seen no '
                f'frame of {nic}. If the guest sends, the NIC is on no '
                f'network that leaves by bond {member.bond.name}: boot the '
                'server on a flat or VLAN network of it, or use a flavor that '
                'claims no uplink'
            )
        return None

    def _learned_by(
        self, bridge: str, macs: Set[str], max_age_s: float
    ) -> Mapping[str, tuple[bond_table.Learned, ...]]:
        """Return where a bridge has seen MAC addresses.

        :param max_age_s: longest time since that was read, in seconds.
        """
        read_s, took_s = self._read.get(bridge, (float('-inf'), 0.0))
        now_s = time.monotonic()
        if now_s - read_s >= max(max_age_s, _LOAD * took_s):
            self._learned[bridge] = self._table.learned(bridge, macs)
            self._read[bridge] = now_s, time.monotonic() - now_s
        return self._learned.get(bridge, {})


def _vlans(
    learned: tuple[bond_table.Learned, ...], bond: open_vswitch.Port
) -> frozenset[int]:
    """Return the VLANs in which frames from behind a bridge come to a bond.

    What the bridge has learned from the bond itself came from the network.

    :returns: VLANs on the wire.
    """
    numbers = {str(member.ofport) for member in bond.interfaces}
    return frozenset(
        bond.vlan_on_wire(one.vlan)
        for one in learned
        if one.port not in numbers
    )


def _recorded(
    port: open_vswitch.Port | None,
    uplink: claims.ClaimedUplink,
    member: bond_table.BondMember,
    host: str,
) -> int | None:
    """Return the VLAN that Neutron's Open vSwitch agent has recorded.

    It writes the network of each guest's port to ``other_config`` of the row
    in the table Port. The row's ``tag`` is a VLAN inside br-int only.

    :param port: port of the guest; None if it is away.
    :returns: VLAN on the wire, 0 for none; None if it is not recorded, as with
        OVN, or the uplink's physical networks are unknown.
    :raises UnsupportedError: the network does not leave by the bond.
    """
    recorded = port.other_config if port is not None else {}
    network_type = recorded.get('network_type')
    if port is None or network_type is None:
        return None
    if network_type not in _PROVIDER_TYPES:
        raise UnsupportedError(
            f'port {port.name} of host {host} is on a network of type '
            f'{network_type}, whose frames do not leave by bond '
            f'{member.bond.name} as the guest has sent them. Boot the server '
            'on a flat or VLAN network of the claimed uplink'
        )
    physnet = recorded.get('physical_network', '')
    if not uplink.physnets:
        return None
    if physnet not in uplink.physnets:
        raise UnsupportedError(
            f'port {port.name} of host {host} is on physical network '
            f'{physnet}, but bond {member.bond.name} with the claimed '
            f'{uplink.nic} is on {", ".join(uplink.physnets)}. Boot the '
            'server on a network of the latter, or claim an uplink of the '
            'former'
        )
    if network_type == 'flat':
        return member.bond.vlan_on_wire(0)
    try:
        return member.bond.vlan_on_wire(int(recorded['segmentation_id']))
    except (KeyError, ValueError):
        return None
