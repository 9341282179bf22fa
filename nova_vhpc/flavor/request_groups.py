# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The request groups of a flavor: what a member asks Placement for.

Used by the filter and by the code that writes and checks flavors.
"""

import re
from collections.abc import Iterable, Mapping

from nova_vhpc.flavor import extra_specs
from nova_vhpc.topology import model

ALIAS = 'pci_passthrough:alias'
GROUP_POLICY = 'group_policy'
GROUP_POLICIES = ('none', 'isolate')
PAIR = (model.RESOURCE_GROUP + '1', model.RESOURCE_GROUP + '2')
"""Suffixes of the two request groups of ``multiple-shared``."""

BRIDGE_TRAITS: Mapping[str, tuple[str, ...]] = {
    'exported': (),
    'shared': (model.TRAIT_SHARED,),
    'multiple-shared': (model.TRAIT_SHARED, model.TRAIT_SHARED),
    'separate': (model.TRAIT_SEPARATE,),
    'shared-separate': (model.TRAIT_SEPARATE,),
}
"""Trait of the bridge behind each uplink that a request group asks for."""

_PORTS = {
    'shared': 'a port whose QoS policy has a minimum bandwidth',
    'multiple-shared': 'two ports, on networks of two physical networks, '
    'whose QoS policies have a minimum bandwidth',
    'separate': 'a port whose QoS policy has a minimum bandwidth as large as '
    'the link',
    'shared-separate': 'two ports on networks of two physical networks: one '
    'whose QoS policy has a minimum bandwidth as large as the link, and one '
    'for co-located peers',
}

_PREFIXES = ('resources_', 'trait_')
_UPLINK_GROUP = re.compile(f'resources([a-zA-Z0-9_-]{{1,64}})?:{model.UPLINK}')


def requested_uplinks(specs: Mapping[str, str]) -> int:
    """Return the number of uplinks that all request groups ask for."""
    return sum(
        _amount(value)
        for name, value in specs.items()
        if _UPLINK_GROUP.fullmatch(name)
    )


def _amount(text: str) -> int:
    """Return an amount as Nova reads it: a text that is no number is 0."""
    try:
        return max(0, int(text))
    except ValueError:
        return 0


def by_ports(network: str | None, uplinks: int, ports: int) -> bool:
    """Return whether a server's ports bring the uplinks, not its flavor.

    :param network: network configuration, None if the flavor names none.
    :param uplinks: number of uplinks that its request groups ask for.
    :param ports: number of the server's ports with a minimum bandwidth.
    """
    needed = 1 if network is None else len(BRIDGE_TRAITS[network])
    return not uplinks and 0 < needed <= ports


def flaw(
    network: str | None, uplinks: int, devices: int, ports: int = 0
) -> str | None:
    """Return why the filter rejects a flavor on every host, or None.

    :param network: network configuration, None if the flavor names none.
    :param uplinks: number of uplinks that its request groups ask for.
    :param devices: number of PCI devices that the flavor or the server's
        ports ask for.
    :param ports: number of the server's ports with a minimum bandwidth.
    """
    if network == 'exported' and not devices:
        return (
            'the flavor says vhpc:network=exported, but neither it '
            '(pci_passthrough:alias) nor the ports of the server '
            '(vnic_type direct) ask for a PCI device'
        )
    if network is None or by_ports(network, uplinks, ports):
        return None
    traits = BRIDGE_TRAITS[network]
    if not uplinks and model.TRAIT_SEPARATE in traits:
        return (
            f'the flavor says vhpc:network={network}, but requests no '
            f'uplink: add resources_uplink:{model.UPLINK}=1, or let '
            'nova-vhpc-flavor write it. No port of the server requests one '
            f'either: {port_recipe(network)}'
        )
    if uplinks and uplinks != len(traits):
        return (
            f'the flavor says vhpc:network={network} and requests '
            f'{uplinks} uplink(s), {len(traits)} would be right: let '
            'nova-vhpc-flavor write it'
        )
    return None


def port_recipe(network: str) -> str:
    """Return what a tenant does so that a server's ports bring the uplinks.

    :param network: network configuration other than ``exported``.
    """
    return (
        f'create {_PORTS[network]} (openstack port create --network NETWORK '
        '--qos-policy POLICY PORT), and the server with --port PORT. With '
        '--network instead of --port, Nova does not schedule by the policy'
    )


def is_ours(key: str) -> bool:
    """Return whether an extra spec belongs to nova-vhpc.

    :data:`ALIAS` and :data:`GROUP_POLICY` do not: they may serve other
    devices and request groups as well.
    """
    return key.startswith(extra_specs.PREFIX) or any(
        key.startswith(prefix + suffix.removeprefix('_') + ':')
        for prefix in _PREFIXES
        for suffix in (model.RESOURCE_GROUP, *PAIR)
    )


def recipe(network: str | None, physnet: str | None = None) -> dict[str, str]:
    """Return the request groups of a network configuration.

    Each group asks for one uplink. That the uplinks of two groups differ is
    left to the filter: ``group_policy=isolate`` would also keep apart what
    others ask for, such as two devices of ``pci_passthrough:alias`` (with
    ``[filter_scheduler] pci_in_placement``) or two ports with minimum
    bandwidth.

    :param network: network configuration, None for no request group.
    :param physnet: Neutron physical network that the uplinks must be on.
    """
    specs: dict[str, str] = {}
    traits = BRIDGE_TRAITS.get(network or '', ())
    suffixes = PAIR if len(traits) > 1 else (model.RESOURCE_GROUP,)
    for suffix, trait in zip(suffixes, traits, strict=False):
        specs[f'resources{suffix}:{model.UPLINK}'] = '1'
        specs[f'trait{suffix}:{trait}'] = 'required'
        if physnet:
            wanted = model.physnet_trait(physnet)
            specs[f'trait{suffix}:{wanted}'] = 'required'
    if len(traits) > 1:
        specs[GROUP_POLICY] = 'none'
    return specs


def suffixes(keys: Iterable[str]) -> set[str]:
    """Return the suffixes of request groups, such as ``_uplink``."""
    found = set()
    for key in keys:
        group, colon, _ = key.partition(':')
        if colon and group.startswith('resources') and group != 'resources':
            found.add(group.removeprefix('resources'))
    return found
