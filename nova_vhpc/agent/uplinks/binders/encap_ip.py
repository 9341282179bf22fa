# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Binds by the encap IP of a guest's port: tenant networks of OVN.

OVN sends the packets of a port from, and has all other hosts send them to, the
encap IP that ``external_ids:encap-ip`` of the port's row in the table
Interface names. With one encap IP for each uplink, that key decides which
uplink a guest's packets take. Network and port in Neutron are untouched, and
packets between guests of one host stay on the host.

os-vif removes the row, and makes another without the key, at each hard reboot;
the binder then writes it again.

OVN sends to an encap IP whether its link is up or not. So while the link of a
claimed uplink is down, the port has the encap IP that it would have without a
claim: nobody shall be worse off for having one.
"""

import pathlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova_vhpc.agent import errors
from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.ovsdb import connection as ovsdb_connection
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.agent.uplinks.binders import base, encap_ip_writer, guest_ports
from nova_vhpc.topology import links, open_vswitch

KEY = encap_ip_writer.KEY

TUNNEL_TYPES = ('geneve', 'vxlan', 'stt')

TUNNEL_PREFIX = 'ovn'
"""First letters of the names that ovn-controller gives to tunnels."""


class EncapIpBinder:
    """Writes, keeps and restores the encap IPs of guests' ports.

    :param ovsdb: connection to the database of this host's Open vSwitch.
    :param journal: encap IPs before the first write.
    :param links: link states of uplinks.
    :param overrides: returns whether an encap IP that an external change has
        set is written again.
    """

    name = 'encap_ip'
    networks: base.Networks = base.TUNNEL

    def __init__(
        self,
        ovsdb: ovsdb_connection.Ovsdb,
        journal: encap_ip_writer.EncapIpJournal,
        host: str,
        links: guest_ports.UplinkLinks,
        overrides: Callable[[], bool],
    ) -> None:
        self._ovsdb = ovsdb
        self._journal = journal
        self._host = host
        self._links = links
        self._overrides = overrides
        self._ports = guest_ports.GuestPorts(ovsdb.read)
        self._writer = encap_ip_writer.EncapIpWriter(ovsdb, journal, host)
        # Held while encap IPs are written or restored.
        self._lock = threading.Lock()
        # The encap IPs, by UUID of the guest, then by MAC address.
        self._bound: dict[str, dict[str, str]] = {}
        # The claimed uplinks, by UUID of the guest.
        self._uplinks: dict[str, tuple[claims.ClaimedUplink, ...]] = {}

    def start(self, wake: Callable[[], None]) -> None:
        """See :meth:`base.Binder.start`."""
        self._ovsdb.add_listener(wake)

    def serves(
        self,
        uuid: str,
        nics: Sequence[interfaces.Nic],
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> bool:
        """Return whether Open vSwitch has a port of the guest.

        A guest without any NIC on a Linux bridge counts as well: if it has no
        port, :meth:`plan` says what is wrong.
        """
        return bool(self._ports.of_guest(uuid)) or not any(
            nic.bridge for nic in nics
        )

    def plan(self, claimant: claims.Claimant) -> Mapping[str, str]:
        """See :meth:`base.Binder.plan`."""
        changes = self._changes(claimant)
        record = self._writer.load(claimant.uuid)
        self._refuse_external(record, changes)
        return {one.mac: one.encap_ip for one in changes if one.is_due}

    def bind(self, claimant: claims.Claimant) -> int:
        """See :meth:`base.Binder.bind`.

        :raises UnsupportedError: also if the link of an uplink is down. Its
            NIC then has another encap IP.
        """
        uuid = claimant.uuid
        with self._lock:
            changes = self._changes(claimant)
            record = self._writer.load(uuid)
            self._refuse_external(record, changes, hand_back=True)
            due = [change for change in changes if change.is_due]
            if due:
                self._writer.write(record, due)
            self._bound[uuid] = {one.mac: one.encap_ip for one in changes}
            self._uplinks[uuid] = claimant.uplinks
            down = self._down(claimant.uplinks)
        if down:
            names = ', '.join(
                f'{one.nic} (bridge {one.bridge})' for one in down
            )
            raise UnsupportedError(
                f'the link of uplink {names} of host {self._host} is down',
                'Repair it; until then OVN uses encap IP '
                + ', '.join(self.in_force(uuid).values()),
                cause='link-down',
            )
        return len(due)

    def intact(self, uuid: str) -> bool:
        """Return whether encap IPs and links are as when it was bound.

        A port that is away is intact.
        """
        bound = self._bound.get(uuid, {})
        if self._down(self._uplinks.get(uuid, ())):
            return False
        return all(
            port.external_ids.get(KEY) == bound[mac]
            for mac, port in self._ports.of_guest(uuid).items()
            if mac in bound
        )

    def in_force(self, uuid: str) -> Mapping[str, str]:
        """Return the encap IPs of a guest's ports, by MAC address."""
        return {
            mac: port.external_ids[KEY]
            for mac, port in self._ports.of_guest(uuid).items()
            if KEY in port.external_ids
        }

    def problem(self, uuid: str) -> str:
        """Return nothing: :meth:`bind` reports what is wrong."""
        return ''

    def uuids(self) -> frozenset[str]:
        """See :meth:`base.Binder.uuids`."""
        return frozenset(self._journal.uuids())

    def restore(self, domain: Any) -> int:
        """See :meth:`base.Binder.restore`."""
        return self._restore(domain.UUIDString())

    def forget(self, uuid: str) -> None:
        """See :meth:`base.Binder.forget`."""
        self._restore(uuid)

    def restore_all(self, connection: Callable[[], Any]) -> dict[str, str]:
        """See :meth:`base.Binder.restore_all`; libvirt is not needed."""
        failures = {}
        for uuid in self._journal.uuids():
            try:
                self._restore(uuid)
            except Exception as error:
                # Whatever happens to one guest, the others are restored.
                failures[uuid] = str(error) or repr(error)
        return failures

    def _restore(self, uuid: str) -> int:
        with self._lock:
            restored = self._writer.restore(uuid)
            self._bound.pop(uuid, None)
            self._uplinks.pop(uuid, None)
        return restored

    def _down(
        self, uplinks: Sequence[claims.ClaimedUplink]
    ) -> tuple[claims.ClaimedUplink, ...]:
        """Return those uplinks whose links are down."""
        state = self._ovsdb.read()
        return () if state is None else self._links.down(state, uplinks)

    def _changes(
        self, claimant: claims.Claimant
    ) -> list[encap_ip_writer.Change]:
        """Return the encap IP of each NIC that uses a claim.

        :raises UnsupportedError: a claim cannot steer packets on this host.
        """
        state = guest_ports.answered(self._ovsdb.read(), self._host)
        ports = self._ports.of_claims(claimant, self._host)
        _check_ovn(state, self._host)
        encap_ips = _encap_ips_of(
            state,
            claimant.uplinks,
            self._links.down(state, claimant.uplinks),
            self._host,
        )
        present = {
            mac: port.external_ids.get(KEY) for mac, port in ports.items()
        }
        new = interfaces.assign(present, encap_ips)
        return [
            encap_ip_writer.Change(mac, port, new.get(mac, present[mac] or ''))
            for mac, port in ports.items()
        ]

    def _refuse_external(
        self,
        record: encap_ip_writer.GuestRecord,
        changes: Sequence[encap_ip_writer.Change],
        hand_back: bool = False,
    ) -> None:
        """Refuse to write where an external change has set an encap IP.

        :param hand_back: whether to journal that, and to restore the guest's
            other ports.
        :raises UnsupportedError: there was such a change.
        """
        if self._overrides():
            return
        port = self._writer.external(record, [one.port for one in changes])
        if port is None:
            return
        if hand_back:
            self._writer.hand_back(record, port)
            self._bound.pop(record.uuid, None)
        raise UnsupportedError(
            f'external_ids:{KEY} of port {port.name} on host {self._host} '
            f'was changed to {port.external_ids.get(KEY, "nothing")} by '
            'somebody else; the port is left alone until it is plugged again, '
            'as by a hard reboot',
            'If only the agent may decide, set [vhpc_agent] '
            'foreign_changes=override',
            cause='external-change',
        )


def _check_ovn(state: open_vswitch.OpenVswitch, host: str) -> None:
    """Check that OVN can send each port's packets from an own encap IP.

    :raises UnsupportedError: it cannot.
    """
    encap_ips = state.encap_ips
    if not encap_ips:
        raise UnsupportedError(
            f'host {host} has no OVN encap IP (external_ids:ovn-encap-ip of '
            'Open_vSwitch), so that no claim can steer the packets of a '
            'tenant network; ML2/OVS has one tunnel IP for all uplinks',
            'Boot the server on a provider network of the claimed uplink',
            cause='no-encap-ip',
        )
    if len(encap_ips) == 1:
        raise UnsupportedError(
            f'host {host} has one OVN encap IP only ({encap_ips[0]}), so that '
            'the packets of all tenant networks take the same uplink',
            'Give each uplink an IP, and list them all in '
            'external_ids:ovn-encap-ip of Open_vSwitch',
            cause='one-encap-ip',
        )
    tunnels = _tunnels(state)
    if tunnels and not any(t.options.get('local_ip') for t in tunnels):
        raise UnsupportedError(
            f'OVN on host {host} sends from one encap IP only: its tunnel '
            f'{tunnels[0].name} has no local_ip',
            'Upgrade ovn-host to 24.03 or later',
            cause='old-ovn',
        )


def _encap_ips_of(
    state: open_vswitch.OpenVswitch,
    uplinks: Sequence[claims.ClaimedUplink],
    down: Sequence[claims.ClaimedUplink],
    host: str,
) -> list[str]:
    """Return the encap IP for each claimed uplink.

    It is the uplink's own; if its link is down, the host's default one; if
    that is this uplink's, too, another one.

    :param down: those uplinks whose links are down.
    :raises UnsupportedError: an uplink has none.
    """
    dead = {state.encap_ip(one.encap_ip) for one in down}
    default = state.encap_ip_default
    spare = [
        encap_ip
        for encap_ip in ((default,) if default else ()) + state.encap_ips
        if encap_ip not in dead
    ]
    found = []
    for uplink in uplinks:
        encap_ip = state.encap_ip(uplink.encap_ip)
        if encap_ip is None:
            raise UnsupportedError(
                f'uplink {uplink.nic} (bridge {uplink.bridge}) of host {host} '
                'has no OVN encap IP, so that a claim on it steers no packet '
                'of a tenant network',
                'Give it an IP, and add that to external_ids:ovn-encap-ip of '
                'Open_vSwitch; or exclude it from publication by '
                '[vhpc_topology] bridges',
                cause='uplink-without-encap-ip',
            )
        if uplink.same_encap_ip:
            raise UnsupportedError(
                f'uplink {uplink.nic} (bridge {uplink.bridge}) of host {host} '
                f'has one encap IP ({encap_ip}) with '
                f'{", ".join(uplink.same_encap_ip)}, so that a claim on it '
                'does not decide which of them packets take',
                'Give each an encap IP of its own, or publish them as one '
                'uplink',
                cause='shared-encap-ip',
            )
        found.append(spare[0] if spare and uplink in down else encap_ip)
    return found


def _tunnels(
    state: open_vswitch.OpenVswitch,
) -> list[open_vswitch.Interface]:
    """Return OVN's tunnels to other hosts."""
    return [
        interface
        for interface in state.interfaces
        if interface.type in TUNNEL_TYPES
        and interface.name.startswith(TUNNEL_PREFIX)
    ]


def make_binder(
    conf: Any, ovsdb: ovsdb_connection.Ovsdb | None
) -> base.Binder | None:
    """Return the binder of this host: the entry point of the plugin.

    :returns: None if the connection to ovsdb is switched off.
    :raises ConfigError: it is switched off, and guests must be restored.
    """
    options = conf.vhpc_agent
    journal = encap_ip_writer.EncapIpJournal(options.state_path)
    if ovsdb is None:
        left = len(journal.uuids())
        if left:
            raise errors.ConfigError(
                '[vhpc_topology]ovsdb_connection is empty, but an agent has '
                f'left encap IPs at the ports of {left} servers; set it as '
                'before, and run nova-vhpc-agent --restore'
            )
        return None
    return EncapIpBinder(
        ovsdb,
        journal,
        options.host or socket.gethostname(),
        guest_ports.UplinkLinks(
            links.Links(pathlib.Path(conf.vhpc_topology.sysfs))
        ),
        lambda: bool(options.foreign_changes == 'override'),
    )
