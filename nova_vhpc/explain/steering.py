# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What makes the packets of a planned member take the uplink of its claim.

Pure. A claim is an entry in Placement; the ways in which it steers packets are
in ``doc/source/admin/steering.rst`` and ``ports.rst``.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

from nova_vhpc.scheduler.hosts.requirements import Requirements
from nova_vhpc.scheduler.sources.snapshot import UplinkState


class Way(enum.StrEnum):
    """What steers packets: a binder of the agent, or Neutron's doing."""

    ENCAP_IP = 'encap_ip'
    PORTS = 'ports'
    BOND = 'bond_entry'
    PHYSNET = 'physnet'


WORDS = {
    Way.ENCAP_IP: 'by the encap IP of their ports, which the agent sets '
    '([vhpc_agent] bind_uplinks)',
    Way.PORTS: 'by their ports, which Nova claims for and Neutron binds',
    Way.BOND: 'by the member of the bond, which the agent chooses '
    '([vhpc_agent] bind_uplinks)',
    Way.PHYSNET: 'by their network, whose packets take no other uplink',
}


class Steering(NamedTuple):
    """How packets of the members on one host are steered.

    :ivar way: what steers them, None for nothing.
    :ivar reason: why nothing does, None if something does.
    """

    way: Way | None = None
    reason: str | None = None


def of_host(
    requirements: Requirements,
    serving: Sequence[UplinkState],
    all_uplinks: Sequence[UplinkState],
) -> Steering:
    """Return how packets are steered to the uplink of a claim on one host.

    :param serving: uplinks that the next member could get.
    :param all_uplinks: all uplinks of the host.
    """
    if requirements.port_requests:
        return Steering(Way.PORTS)
    if not requirements.requested_uplinks:
        return Steering(reason='the flavor claims no uplink')
    networks = requirements.networks
    if networks is None:
        return Steering(
            reason='the networks of the members are unknown here: give '
            '--tunneled, or --port for each of their ports'
        )
    steerings = [
        _of_uplink(requirements, uplink, all_uplinks) for uplink in serving
    ]
    # What cannot be steered is said first.
    return min(
        steerings,
        key=lambda steering: steering.way is not None,
        default=Steering(reason='no uplink of the host is free'),
    )


def _of_uplink(
    requirements: Requirements,
    uplink: UplinkState,
    all_uplinks: Sequence[UplinkState],
) -> Steering:
    networks = requirements.networks
    assert networks is not None
    if networks.tunneled and uplink.tunnel:
        if sum(each.tunnel for each in all_uplinks) == 1:
            return Steering(
                reason=f'{uplink} has the only encap IP of the host: packets '
                'of all servers on tunneled networks take it, whether they '
                'have claimed it or not'
            )
        return Steering(Way.ENCAP_IP)
    physnets = networks.physnets & uplink.physnets
    if physnets and uplink.bond:
        return Steering(Way.BOND)
    if physnets:
        beside = [
            each
            for each in all_uplinks
            if each != uplink and physnets & each.physnets
        ]
        if beside:
            return Steering(
                reason=f'{uplink} and {beside[0]} are on one physical '
                'network, and nothing decides which of them packets take: '
                'give each physical network one uplink, and the server ports '
                'with minimum bandwidth (nova-vhpc-flavor set --ports)'
            )
        return Steering(Way.PHYSNET)
    if networks.tunneled:
        return Steering(
            reason=f'{uplink} has no encap IP of OVN, so that a claim steers '
            'no packet of a tunneled network'
        )
    return Steering(
        reason=f'the physical network of {uplink} is unknown: set physnet= in '
        '[vhpc_topology] bridges, or let the agent read ovsdb'
    )


def of_rails(
    names: Sequence[str], serving: Sequence[UplinkState]
) -> tuple[UplinkState, ...]:
    """Return the uplink of each planned member of a host.

    :param names: rail of each member.
    :param serving: uplinks that the next member could get.
    """
    free = {uplink.uuid: max(1, uplink.free) for uplink in serving}
    chosen = []
    for name in names:
        for uplink in serving:
            if uplink.rail == name and free[uplink.uuid]:
                free[uplink.uuid] -= 1
                chosen.append(uplink)
                break
    return tuple(chosen)
