# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find the ports of a guest in Open vSwitch, and the links of its uplinks."""

from collections.abc import Callable, Mapping, Sequence

from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.topology import links, open_vswitch

GUEST_KEYS = ('vm-uuid', 'vm-id')
"""Keys in ``external_ids`` with the guest's UUID: os-vif writes the first,
libvirt the second."""

MAC_KEY = 'attached-mac'

Ports = Mapping[str, open_vswitch.Interface]
"""Ports of one guest, by MAC address in lower case."""


class GuestPorts:
    """The ports of all guests, indexed once for each state of the database.

    The domain's XML does not help: since Nova 2026.2 it names neither bridge
    nor port.

    :param read: returns the present state; the same object until something
        changes, and None before the first answer.
    """

    def __init__(
        self, read: Callable[[], open_vswitch.OpenVswitch | None]
    ) -> None:
        self._read = read
        self._indexed: tuple[
            open_vswitch.OpenVswitch | None, Mapping[str, Ports]
        ] = (None, {})

    def of_guest(self, uuid: str) -> Ports:
        """Return the ports of a guest; empty if there are none.

        :param uuid: UUID of the domain, which is that of Nova's server.
        """
        state = self._read()
        indexed_state, by_guest = self._indexed
        if state is not indexed_state:
            by_guest = _index(state) if state is not None else {}
            self._indexed = state, by_guest
        return by_guest.get(uuid, {})

    def of_claims(self, claimant: claims.Claimant, host: str) -> Ports:
        """Return the ports of the NICs that use a server's claims.

        :raises UnsupportedError: a NIC has no port.
        """
        uuid = claimant.uuid
        ports = self.of_guest(uuid)
        nics = interfaces.chosen(
            interfaces.read(claimant.domain.XMLDesc(0)),
            len(claimant.uplinks),
            claimant.uplink_nic,
        )
        chosen = {}
        for mac in (nic.mac.lower() for nic in nics):
            if mac not in ports:
                raise UnsupportedError(
                    f'Open vSwitch of host {host} has no port with '
                    f'external_ids:attached-mac={mac} and vm-uuid={uuid}, so '
                    f'that NIC {mac} cannot be steered',
                    'If it is no NIC of Open vSwitch, let vhpc:uplink_nic '
                    'name one that is',
                    cause='no-port',
                )
            chosen[mac] = ports[mac]
        return chosen


class UplinkLinks:
    """Reads link states: Open vSwitch's own, of other uplinks the kernel's.

    :param kernel: the network interfaces of this host.
    """

    def __init__(self, kernel: links.Links) -> None:
        self._kernel = kernel

    def down(
        self,
        state: open_vswitch.OpenVswitch,
        uplinks: Sequence[claims.ClaimedUplink],
    ) -> tuple[claims.ClaimedUplink, ...]:
        """Return those uplinks whose links are down.

        An uplink that neither Open vSwitch nor the kernel knows is not among
        them.
        """
        return tuple(one for one in uplinks if not self._is_up(state, one.nic))

    def _is_up(self, state: open_vswitch.OpenVswitch, nic: str) -> bool:
        port = state.port.get(nic)
        if port is not None:
            # A bond passes packets as long as one member does.
            return any(one.link_up for one in port.interfaces)
        port = state.port_of.get(nic)
        if port is not None:
            return any(
                one.link_up for one in port.interfaces if one.name == nic
            )
        link = self._kernel.link(nic)
        return link is None or link.up


def answered(
    state: open_vswitch.OpenVswitch | None, host: str
) -> open_vswitch.OpenVswitch:
    """Return the state of the database.

    :param state: the state; None before the first answer.
    :raises UnsupportedError: there was no answer yet.
    """
    if state is None:
        raise UnsupportedError(
            f'Open vSwitch of host {host} has not answered yet',
            'Is ovsdb-server running, and is [vhpc_topology] '
            'ovsdb_connection right?',
            cause='ovsdb-away',
        )
    return state


def _index(state: open_vswitch.OpenVswitch) -> Mapping[str, Ports]:
    # The port of a trunk has a bridge of its own; Neutron and OVN know the
    # one with the same iface-id in the integration bridge.
    known = {
        interface.external_ids['iface-id']: interface
        for bridge in state.bridges
        for port in bridge.ports
        for interface in port.interfaces
        if 'iface-id' in interface.external_ids
        and (
            bridge.name == state.neutron_bridges.integration
            or 'net_uuid' in port.other_config
        )
    }
    by_guest: dict[str, dict[str, open_vswitch.Interface]] = {}
    for interface in state.interfaces:
        mac = interface.external_ids.get(MAC_KEY)
        uuids = {interface.external_ids.get(key) for key in GUEST_KEYS}
        for uuid in uuids:
            if uuid and mac:
                by_guest.setdefault(uuid, {})[mac.lower()] = known.get(
                    interface.external_ids.get('iface-id', ''), interface
                )
    return by_guest
