# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Keeps the entries of bonds on the members that guests have claimed.

Entries are lost when ovs-vswitchd restarts or the bond is configured anew, and
move to another member while theirs is down. Nothing tells where an entry is:
ovs-vswitchd lists those with load only, and counts no load while rebalancing
is off. So an entry is set again whenever its former setting may be gone.
"""

import dataclasses
import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple

from nova_vhpc.agent import periodic
from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.ovsdb import connection, vswitchd
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import bond_table, guest_ports, wire_vlans
from nova_vhpc.topology import open_vswitch

LOG = logging.getLogger(__name__)

PERIOD_S = 0.5
"""Time between two looks at the members of bonds."""

AWAY_PERIOD_S = 0.1
"""Time between two attempts while ovs-vswitchd is not ready."""

MIN_INTERVAL_S = 0.05
"""Shortest time between two looks that changes in the database ask for."""


class _Setting(NamedTuple):
    """What an entry's setting depends on: once it changes, it may be gone."""

    identity: vswitchd.Identity | None
    bond: open_vswitch.Port
    enabled: frozenset[str]
    entry: int
    member: str


class _Look(NamedTuple):
    """What one look at all targets has in common.

    :ivar macs: MAC addresses of all targets.
    :ivar holders: who decides on an entry, by bond and number.
    """

    state: open_vswitch.OpenVswitch
    identity: vswitchd.Identity | None
    macs: frozenset[str]
    holders: 'dict[tuple[str, int], Target]'


@dataclasses.dataclass(slots=True)
class Target:
    """A NIC of a guest, and the member that its frames are to take.

    :ivar uplink: the claimed uplink: a member of a bond.
    :ivar sought: what is known of the VLAN that its frames have.
    :ivar setting: the entry as set; None if it is not in force.
    :ivar problem: why it is not in force; empty if it is, or soon may be.
    """

    uuid: str
    mac: str
    uplink: claims.ClaimedUplink
    sought: wire_vlans.SoughtVlan
    setting: _Setting | None = None
    problem: str = ''

    @property
    def name(self) -> str:
        """The NIC, for messages."""
        return f'NIC {self.mac} of {self.uuid}'


class BondFollower:
    """Sets entries of bonds, and again when they may be lost, in a thread.

    :param ovsdb: connection to the database of this host's Open vSwitch.
    :param ports: the guests' ports.
    :param table: the entries of ovs-vswitchd.
    """

    def __init__(
        self,
        ovsdb: connection.Ovsdb,
        ports: guest_ports.GuestPorts,
        table: bond_table.BondTable,
        host: str,
    ) -> None:
        self._ovsdb = ovsdb
        self._ports = ports
        self._table = table
        self._host = host
        # Held while entries are set, and while targets change.
        self._lock = threading.Lock()
        # By UUID of the guest, then by MAC address. Who came first has an
        # entry that two share.
        self._targets: dict[str, dict[str, Target]] = {}
        self._vlans = wire_vlans.WireVlans(table, host)
        self._retry_soon = False
        self._thread = periodic.PeriodicThread(
            'vhpc-bonds',
            self.follow,
            lambda: AWAY_PERIOD_S if self._retry_soon else PERIOD_S,
            min_interval_s=lambda: MIN_INTERVAL_S,
        )

    def start(self) -> None:
        """Begin to follow changes."""
        self._ovsdb.add_listener(self._thread.wake)
        self._thread.start()

    def steer(
        self, uuid: str, uplinks: Mapping[str, claims.ClaimedUplink]
    ) -> int:
        """Set the entries of a guest's NICs, and keep them so.

        :param uplinks: the claimed uplink of each NIC, by MAC address.
        :returns: number of entries that were set, and were not before.
        """
        with self._lock:
            former = self._targets.get(uuid, {})
            self._targets[uuid] = {
                mac: former[mac]
                if mac in former and former[mac].uplink == uplink
                else Target(
                    uuid, mac, uplink, wire_vlans.SoughtVlan(mac, uuid)
                )
                for mac, uplink in uplinks.items()
            }
            targets = self._targets[uuid].values()
            before = {one.mac for one in targets if one.setting is not None}
            self._follow()
            return sum(
                one.setting is not None and one.mac not in before
                for one in targets
            )

    def release(self, uuid: str) -> None:
        """Leave a guest's entries to Open vSwitch."""
        with self._lock:
            self._targets.pop(uuid, None)

    def release_all(self) -> None:
        """Leave all entries to Open vSwitch."""
        with self._lock:
            self._targets.clear()

    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of the guests that are steered."""
        return frozenset(self._targets)

    def targets(self, uuid: str) -> tuple[Target, ...]:
        """Return the NICs of a guest that are steered."""
        return tuple(self._targets.get(uuid, {}).values())

    def follow(self) -> None:
        """Set each entry that may not be as claimed."""
        with self._lock:
            if self._targets:
                self._follow()

    def _follow(self) -> None:
        self._retry_soon = False
        away: vswitchd.VswitchdError | None = None
        targets = [t for g in self._targets.values() for t in g.values()]
        look = _Look(
            self._ovsdb.read() or open_vswitch.OpenVswitch(),
            self._table.identity(),
            frozenset(target.mac for target in targets),
            {},
        )
        enabled: dict[str, frozenset[str]] = {}
        for target in targets:
            try:
                if away is not None:
                    raise away
                member = bond_table.checked_member(
                    look.state, target.uplink, self._host
                )
                bond = member.bond.name
                if bond not in enabled:
                    enabled[bond] = self._table.enabled(bond)
                problem = self._set(target, member, enabled[bond], look)
            except vswitchd.VswitchdError as error:
                if not isinstance(error, vswitchd.Refused):
                    # Each further command might take as long.
                    away = error
                self._retry_soon = True
                problem = (
                    f'host {self._host}: {error}. Until it answers, Open '
                    f'vSwitch chooses the uplink of {target.name}'
                )
                target.setting = None
            except UnsupportedError as error:
                problem = str(error)
                target.setting = None
            _report(target, problem)

    def _set(
        self,
        target: Target,
        member: bond_table.BondMember,
        enabled: frozenset[str],
        look: _Look,
    ) -> str:
        """Set the entry of a NIC, unless it is as claimed.

        :param enabled: members of the bond that pass packets.
        :returns: why it is not set; empty if it is, or soon may be.
        :raises UnsupportedError, VswitchdError: it cannot be set.
        """
        bond = member.bond
        vlan = self._vlans.find(
            target.sought,
            self._port(target, look.state),
            target.uplink,
            member,
            look.macs,
        )
        if vlan is None:
            target.setting = None
            return ''
        setting = target.setting
        entry = self._table.entry(target.mac, vlan, bond.hash_basis)
        holder = look.holders.setdefault((bond.name, entry), target)
        if holder.uplink.nic != member.nic:
            target.setting = None
            return (
                f'{holder.name} and {target.name} share entry {entry} of bond '
                f'{bond.name} on host {self._host}, but have claimed '
                f'{holder.uplink.nic} and {member.nic}: packets of both take '
                f'{holder.uplink.nic}. Give other_config:bond-hash-basis of '
                'the port another number, or move one of them to another host'
            )
        if member.nic not in enabled:
            target.setting = None
            return (
                f'{member.nic} of bond {bond.name} on host {self._host} '
                f'passes no packets now: those of {target.name} take another '
                f'member until it does. Check its link'
            )
        due = _Setting(look.identity, bond, enabled, entry, member.nic)
        if setting != due:
            self._table.migrate(bond.name, entry, member.nic)
            if setting is None:
                LOG.info(
                    '%s: packets of VLAN %d leave by %s of bond %s (entry %d)',
                    target.name,
                    vlan,
                    member.nic,
                    bond.name,
                    entry,
                )
            target.setting = due
        return ''

    def _port(
        self, target: Target, state: open_vswitch.OpenVswitch
    ) -> open_vswitch.Port | None:
        """Return the port of a guest's NIC; None if it is away."""
        interface = self._ports.of_guest(target.uuid).get(target.mac)
        return state.port_of.get(interface.name) if interface else None


def _report(target: Target, problem: str) -> None:
    """Keep why an entry is not in force; log it if that is new."""
    if problem and problem != target.problem:
        LOG.warning('%s; will retry', problem)
    target.problem = problem
