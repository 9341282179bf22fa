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

from nova_vhpc.agent.ovsdb import vswitchd

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
