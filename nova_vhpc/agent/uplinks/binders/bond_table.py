# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The members of a bond, and what its entries are, in ovs-vswitchd.

An SLB bond has 256 entries. The source MAC address and the VLAN of a frame
choose the entry, and the entry names the member that the frame leaves by. The
physical switch learns the address there, so that answers come back by the same
member. Entries are in the memory of ovs-vswitchd only.
"""

import re
from collections.abc import Mapping, Set
from typing import NamedTuple

from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.ovsdb import vswitchd
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.topology import open_vswitch

_MEMBER = re.compile(r'^(?:member|slave) (\S+): enabled$', re.MULTILINE)
_LEARNED = re.compile(
    r'^ *(\S+) +(\d+) +((?:[0-9a-f]{2}:){5}[0-9a-f]{2}) ', re.MULTILINE
)


class Learned(NamedTuple):
    """Where a bridge has seen a MAC address.

    :ivar port: number of the port in OpenFlow, or ``LOCAL``.
    :ivar vlan: VLAN inside the bridge; 0 for none.
    """

    port: str
    vlan: int


class BondTable:
    """Reads and changes the entries of bonds.

    :param daemon: this host's ovs-vswitchd.
    """

    def __init__(self, daemon: vswitchd.Vswitchd) -> None:
        self._daemon = daemon
        # A newer ovs-vswitchd may compute numbers in another way.
        self._run: vswitchd.Identity | None = None
        self._entries: dict[tuple[str, int, int], int] = {}

    def identity(self) -> vswitchd.Identity | None:
        """Return which run of ovs-vswitchd has the entries now."""
        return self._daemon.identity()

    def enabled(self, bond: str) -> frozenset[str]:
        """Return the members of a bond that pass packets now.

        :raises VswitchdError: ovs-vswitchd does not answer, or has no such
            bond yet.
        """
        return frozenset(_MEMBER.findall(self._daemon.call('bond/show', bond)))

    def entry(self, mac: str, vlan: int, basis: int) -> int:
        """Return the number of the entry of a MAC address in a VLAN.

        :param vlan: VLAN on the wire; 0 for none.
        :param basis: ``bond-hash-basis`` of the bond.
        :raises VswitchdError: ovs-vswitchd does not answer.
        """
        run = self.identity()
        if run != self._run:
            self._run = run
            self._entries.clear()
        key = mac, vlan, basis
        if key not in self._entries:
            answer = self._daemon.call('bond/hash', *map(str, key))
            try:
                self._entries[key] = int(answer)
            except ValueError:
                raise vswitchd.VswitchdError(
                    f'ovs-vswitchd answers bond/hash with {answer!r}'
                ) from None
        return self._entries[key]

    def migrate(self, bond: str, entry: int, member: str) -> None:
        """Make an entry name a member.

        :raises Refused: the member is disabled, or the bond is no SLB bond.
        :raises VswitchdError: ovs-vswitchd does not answer.
        """
        self._daemon.call('bond/migrate', bond, str(entry), member)

    def learned(
        self, bridge: str, macs: Set[str]
    ) -> Mapping[str, tuple[Learned, ...]]:
        """Return where a bridge has seen MAC addresses in the last minutes.

        :param macs: the MAC addresses, in lower case.
        :raises VswitchdError: ovs-vswitchd does not answer.
        """
        found: dict[str, tuple[Learned, ...]] = {}
        answer = self._daemon.call('fdb/show', bridge)
        for port, vlan, mac in _LEARNED.findall(answer):
            if mac in macs:
                found[mac] = (*found.get(mac, ()), Learned(port, int(vlan)))
        return found


class BondMember(NamedTuple):
    """A claimed uplink that is a member of a bond.

    :ivar bridge: bridge that the bond is in.
    :ivar nic: name of the member.
    """

    bridge: str
    bond: open_vswitch.Port
    nic: str


def find_member(
    state: open_vswitch.OpenVswitch, nic: str
) -> BondMember | None:
    """Return the bond that a NIC is a member of; None if it is in none."""
    port = state.port_of.get(nic)
    if port is None or not port.is_bond:
        return None
    return BondMember(state.bridge_of[nic], port, nic)


def checked_member(
    state: open_vswitch.OpenVswitch,
    uplink: claims.ClaimedUplink,
    host: str,
) -> BondMember:
    """Return the member that an uplink is, if guests can be steered to it.

    :raises UnsupportedError: they cannot.
    """
    member = find_member(state, uplink.nic)
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
