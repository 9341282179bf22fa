# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Binds by the entries of a bond: provider networks of OVN and ML2/OVS.

With ``bond_mode=balance-slb``, Open vSwitch has a table of 256 entries. The
MAC address and the VLAN of a frame choose the entry, and the entry names the
member that the frame leaves by. Without rebalancing it stays so: each member
is an uplink of its own. The binder makes the entries of a guest's NICs name
the member that the server has claimed. Network, port and flows are untouched.

Entries live in the memory of ovs-vswitchd, and nothing is written to a disk.
They have no original value either: Open vSwitch lets each name any member when
its first frame comes, and does not tell which. So there is nothing to journal,
and nothing to restore. After the agent, entries stay as they are until the
link of the member goes down, or ovs-vswitchd ends.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.ovsdb import vswitchd
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import (
    base,
    bond_follower,
    bond_table,
    guest_ports,
)


class BondEntryBinder:
    """Makes the entries of guests' NICs name the members of claims.

    :param ovsdb: connection to the database of this host's Open vSwitch.
    :param daemon: this host's ovs-vswitchd.
    """

    name = 'bond_entry'
    networks: base.Networks = base.PROVIDER

    def __init__(
        self,
        ovsdb: ovsdb_connection.Ovsdb,
        daemon: vswitchd.Vswitchd,
        host: str,
    ) -> None:
        self._ovsdb = ovsdb
        self._host = host
        self._ports = guest_ports.GuestPorts(ovsdb.read)
        self._follower = bond_follower.BondFollower(
            ovsdb, self._ports, bond_table.BondTable(daemon), host
        )
        # MAC addresses of all ports of a guest when it was bound, by UUID.
        self._macs: dict[str, frozenset[str]] = {}

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to follow links and ovs-vswitchd, in a thread."""
        self._ovsdb.add_listener(wake)
        self._follower.start()

    def serves(
        self,
        uuid: str,
        nics: Sequence[interfaces.Nic],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> bool:
        """Return whether all claimed uplinks are members of bonds."""
        state = self._ovsdb.read()
        return state is not None and all(
            bond_table.find_member(state, uplink.nic) for uplink in uplinks
        )

    def plan(self, claimant: claims.Claimant) -> Mapping[str, str]:
        """See :meth:`base.Binder.plan`."""
        in_force = self.in_force(claimant.uuid)
        state = guest_ports.answered(self._ovsdb.read(), self._host)
        plan = {}
        for mac, uplink in self._assign(claimant).items():
            member = bond_table.checked_member(state, uplink, self._host)
            text = f'{member.bond.name}/{member.nic}'
            if in_force.get(mac) != text:
                plan[mac] = text
        return plan

    def bind(self, claimant: claims.Claimant) -> int:
        """See :meth:`base.Binder.bind`.

        Where an entry cannot be set yet, that is tried again and again; see
        :meth:`problem`.
        """
        uuid = claimant.uuid
        state = guest_ports.answered(self._ovsdb.read(), self._host)
        assigned = self._assign(claimant)
        for uplink in assigned.values():
            bond_table.checked_member(state, uplink, self._host)
        self._macs[uuid] = frozenset(self._ports.of_guest(uuid))
        return self._follower.steer(uuid, assigned)

    def intact(self, uuid: str) -> bool:
        """Return whether the guest has no other NICs than when it was bound.

        The rest is followed in the thread. A port that is away is intact.
        """
        ports = self._ports.of_guest(uuid).keys()
        return ports <= self._macs.get(uuid, frozenset())

    def in_force(self, uuid: str) -> Mapping[str, str]:
        """Return bond and member of a guest's NICs, by MAC address."""
        return {
            target.mac: f'{target.setting.bond.name}/{target.setting.member}'
            for target in self._follower.targets(uuid)
            if target.setting is not None
        }

    def problem(self, uuid: str) -> str:
        """See :meth:`base.Binder.problem`."""
        problems = (one.problem for one in self._follower.targets(uuid))
        return '; '.join(filter(None, problems))

    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of the guests that this agent has bound."""
        return self._follower.uuids()

    def restore(self, domain: Any) -> int:
        """Leave a guest's entries to Open vSwitch."""
        self.forget(domain.UUIDString())
        return 0

    def forget(self, uuid: str) -> None:
        """Leave a guest's entries to Open vSwitch."""
        self._follower.release(uuid)
        self._macs.pop(uuid, None)

    def restore_all(self, connection: Callable[[], Any]) -> dict[str, str]:
        """Leave all entries to Open vSwitch; libvirt is not needed."""
        self._follower.release_all()
        self._macs.clear()
        return {}

    def _assign(
        self, claimant: claims.Claimant
    ) -> Mapping[str, claims.ClaimedUplink]:
        """Return the uplink of each NIC that uses a claim, by MAC address.

        :raises UnsupportedError: a NIC has no port.
        """
        present: dict[str, str | None] = dict.fromkeys(
            self._ports.of_claims(claimant, self._host)
        )
        for target in self._follower.targets(claimant.uuid):
            if target.mac in present:
                present[target.mac] = target.uplink.nic
        by_nic = {uplink.nic: uplink for uplink in claimant.uplinks}
        new = interfaces.assign(present, list(by_nic))
        return {
            mac: by_nic[new.get(mac, nic or '')]
            for mac, nic in present.items()
        }


def make_binder(
    conf: Any, ovsdb: ovsdb_connection.Ovsdb | None
) -> base.Binder | None:
    """Return the binder of this host: the entry point of the plugin.

    :returns: None if the connection to ovsdb is switched off.
    """
    if ovsdb is None:
        return None
    run_dir = vswitchd.run_dir(
        conf.vhpc_agent.ovs_run_dir, conf.vhpc_topology.ovsdb_connection
    )
    return BondEntryBinder(
        ovsdb,
        vswitchd.Vswitchd(run_dir),
        conf.vhpc_agent.host or socket.gethostname(),
    )
