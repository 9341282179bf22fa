# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Whether encap IPs can steer the packets of guests on this host. Pure.

Open vSwitch's database tells it. That OVN is recent enough is read
from its tunnels: OVN 24.03 and later makes one for each pair of a local and a
remote encap IP, and sets ``local_ip``. An older one sends from the same IP
whatever the port's ``encap-ip`` is.
"""

from collections.abc import Sequence

from nova_vhpc.agent.libvirt.interfaces import UnsupportedError
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.topology import open_vswitch

TUNNEL_TYPES = ('geneve', 'vxlan', 'stt')

TUNNEL_PREFIX = 'ovn'
"""First letters of the names that ovn-controller gives to tunnels."""


def check(state: open_vswitch.OpenVswitch, host: str) -> None:
    """Check that OVN can send each port's packets from an own encap IP.

    :param state: the database of the host's Open vSwitch.
    :param host: name of the host, for the message.
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


def encap_ips_of(
    state: open_vswitch.OpenVswitch,
    uplinks: Sequence[claims.ClaimedUplink],
    down: Sequence[claims.ClaimedUplink],
    host: str,
) -> list[str]:
    """Return the encap IP for each claimed uplink.

    It is the uplink's own; if its link is down, the host's default one; if
    that is this uplink's, too, another one.

    :param down: those uplinks whose links are down.
    :param host: name of the host, for the message.
    :raises UnsupportedError: an uplink has none.
    """
    dead = {one.encap_ip for one in down}
    default = state.encap_ip_default
    spare = [
        encap_ip
        for encap_ip in ((default,) if default else ()) + state.encap_ips
        if encap_ip not in dead
    ]
    found = []
    for uplink in uplinks:
        encap_ip = uplink.encap_ip
        if encap_ip is None or encap_ip not in state.encap_ips:
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
