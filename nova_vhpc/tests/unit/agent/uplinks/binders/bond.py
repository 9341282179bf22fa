# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""An ovs-vswitchd in memory, with one SLB bond and the answers of a real one.

The texts are those of Open vSwitch 3.1.
"""

import zlib
from collections.abc import Iterable

from nova_vhpc.agent.ovsdb import vswitchd

_SHOW = """---- {bond} ----
bond_mode: balance-slb
bond may use recirculation: no, Recirc-ID : -1
bond-hash-basis: 0
lb_output action: disabled, bond-id: -1
all members active: false
updelay: 0 ms
downdelay: 0 ms
lacp_status: off
lacp_fallback_ab: false
active-backup primary: <none>
active member mac: de:52:39:7e:7f:a3({first})

"""
_MEMBER = """member {name}: {state}
  may_enable: {may}

"""


def entry(mac: str, vlan: int, basis: int = 0) -> int:
    """Return the number of an entry; the real hash is another."""
    return zlib.crc32(f'{mac} {vlan} {basis}'.encode()) & 255


class MemoryVswitchd:
    """Holds the entries of one bond.

    :ivar entries: member that each entry was set to.
    :ivar disabled: members that pass no packets.
    :ivar fdb: port, VLAN and MAC address that the bridge has learned.
    :ivar away: whether it does not run.
    :ivar calls: the commands that came.
    """

    def __init__(self, bond: str, members: Iterable[str]) -> None:
        self.bond = bond
        self.members = tuple(members)
        self.entries: dict[int, str] = {}
        self.disabled: set[str] = set()
        self.fdb: list[tuple[object, int, str]] = []
        self.away = False
        self.calls: list[tuple[str, ...]] = []
        self._runs = 1

    def restart(self) -> None:
        """End, and begin anew: entries and addresses are lost."""
        self._runs += 1
        self.entries.clear()
        self.fdb.clear()
        self.away = False

    # -- the interface of the agent's connection ---------------------------

    def identity(self) -> vswitchd.Identity | None:
        return vswitchd.Identity(self._runs, 0)

    def call(self, *words: str) -> str:
        self.calls.append(words)
        if self.away:
            raise vswitchd.VswitchdError('ovs-vswitchd is not running')
        name, *rest = words
        answers = {
            'bond/show': self._show,
            'bond/hash': self._hash,
            'bond/migrate': self._migrate,
            'fdb/show': self._fdb,
        }
        return answers[name](*rest)

    def _show(self, bond: str) -> str:
        self._check(bond)
        return _SHOW.format(bond=bond, first=self.members[0]) + ''.join(
            _MEMBER.format(
                name=name,
                state='disabled' if name in self.disabled else 'enabled',
                may=str(name not in self.disabled).lower(),
            )
            for name in self.members
        )

    def _hash(self, mac: str, vlan: str, basis: str) -> str:
        return f'{entry(mac, int(vlan), int(basis))}\n'

    def _migrate(self, bond: str, number: str, member: str) -> str:
        self._check(bond)
        if member not in self.members:
            raise vswitchd.Refused('no such member')
        if member in self.disabled:
            raise vswitchd.Refused('cannot migrate to disabled member')
        self.entries[int(number)] = member
        return 'migrated\n'

    def _fdb(self, bridge: str) -> str:
        return ' port  VLAN  MAC                Age\n' + ''.join(
            f'{port:>5}  {vlan:4}  {mac}  {7:3}\n'
            for port, vlan, mac in self.fdb
        )

    def _check(self, bond: str) -> None:
        if bond != self.bond:
            raise vswitchd.Refused('no such bond')
