# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What job schedulers need to know of the places of members. Pure.

Part of the program that runs in guests (:mod:`.script`): Python 3.6 and its
standard library.

A member is a mapping as in the vendordata: ``name``, and the opaque IDs
``host``, ``switch`` and ``rack``, each None if unknown. Its name is that of
the scheduler's node: :func:`with_nodes` sees to that.
"""

import re
from typing import Any

ROOT = 'vhpc'
"""Name of the switch above all others."""

UNPLACED = 'unplaced'
"""Name of the switch of members that have no host yet."""

_NAME = re.compile('[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?')


def node_names(members: 'list[dict[str, Any]]') -> 'list[str]':
    """Return the names of members.

    :raises ValueError: there are none, one cannot be the name of a node, or
        two are equal.
    """
    if not members:
        raise ValueError('the cluster has no members')
    names = [member['name'] for member in members]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f'server {name!r} cannot be a node: a name of up to 63 '
                'letters, digits, dots and hyphens is needed; change it by '
                'openstack server set --hostname'
            )
        if names.count(name) > 1:
            raise ValueError(
                f'two members have the name {name}: change one by openstack '
                'server set --hostname'
            )
    return names


def with_nodes(
    members: 'list[dict[str, Any]]', names: 'list[str]'
) -> 'list[dict[str, Any]]':
    """Return members as nodes, and nodes that are no servers yet.

    Slurm gives a job no nodes together that the topology does not have.

    A node has the name of its server if ``names`` has that. Otherwise it has
    the name that the guest itself has, which stays when the server is
    renamed, and where Nova has replaced what a host name cannot have.

    :param names: names of all nodes.
    :raises ValueError: one cannot be the name of a node.
    """
    members = [
        member
        if member['name'] in names or not member.get('hostname')
        else dict(member, name=member['hostname'].split('.')[0])
        for member in members
    ]
    known = {member['name'] for member in members}
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f'--nodes: {name!r} cannot be a node: give names of up to 63 '
                'letters, digits, dots and hyphens, with commas between, as '
                'by scontrol show hostnames LIST | paste -sd, -'
            )
    return members + [
        {'name': name, 'host': None, 'switch': None, 'rack': None}
        for name in dict.fromkeys(names)
        if name not in known
    ]


def leaf_nodes(members: 'list[dict[str, Any]]') -> 'dict[str, list[str]]':
    """Return the nodes below each lowest switch, both in order.

    A host whose switch is unknown counts as a switch: that its members are
    near each other is all that is known.
    """
    nodes: dict[str, list[str]] = {}
    for name, member in sorted(
        # Not by rank: the file must stay the same when others come and go.
        (name, index)
        for index, name in enumerate(node_names(members))
    ):
        nodes.setdefault(_leaf(members[member]), []).append(name)
    return dict(sorted(nodes.items()))


def upper_switches(members: 'list[dict[str, Any]]') -> 'dict[str, list[str]]':
    """Return the switches below each upper one, the root last.

    Every node is below the root, because Slurm gives no job nodes that are
    under no common switch.
    """
    leaves = list(leaf_nodes(members))
    racks: dict[str, list[str]] = {}
    in_rack = set()
    for member in sorted(members, key=lambda one: str(one['rack'])):
        leaf = _leaf(member)
        # A switch that is named in two racks counts for one of them.
        if member['rack'] is not None and leaf not in in_rack:
            in_rack.add(leaf)
            racks.setdefault(member['rack'], []).append(leaf)
    upper = {rack: sorted(racks[rack]) for rack in sorted(racks)}
    top = [*upper, *(leaf for leaf in leaves if leaf not in in_rack)]
    if len(top) > 1:
        upper[ROOT] = top
    return upper


def slurm_conf(members: 'list[dict[str, Any]]') -> str:
    """Return Slurm's ``topology.conf`` of the plugin ``topology/tree``."""
    lines = [
        'SwitchName={} Nodes={}'.format(leaf, ','.join(nodes))
        for leaf, nodes in leaf_nodes(members).items()
    ]
    lines += [
        'SwitchName={} Switches={}'.format(name, ','.join(below))
        for name, below in upper_switches(members).items()
    ]
    return _text(lines)


def slurm_block_conf(members: 'list[dict[str, Any]]') -> str:
    """Return Slurm's ``topology.conf`` of the plugin ``topology/block``."""
    blocks = leaf_nodes(members)
    lines = [
        'BlockName={} Nodes={}'.format(leaf, ','.join(nodes))
        for leaf, nodes in blocks.items()
    ]
    return _text([*lines, f'BlockSizes={_block_size(blocks)}'])


def slurm_yaml(members: 'list[dict[str, Any]]') -> str:
    """Return Slurm's ``topology.yaml``: a tree, which is the default, and
    blocks."""
    leaves = leaf_nodes(members)
    lines = ['- topology: vhpc-tree', '  cluster_default: true', '  tree:']
    lines.append('    switches:')
    for leaf, nodes in leaves.items():
        lines.append(f'      - switch: "{leaf}"')
        lines.append('        nodes: "{}"'.format(','.join(nodes)))
    for name, below in upper_switches(members).items():
        lines.append(f'      - switch: "{name}"')
        lines.append('        children: "{}"'.format(','.join(below)))
    lines += ['- topology: vhpc-block', '  cluster_default: false', '  block:']
    lines += ['    block_sizes:', f'      - {_block_size(leaves)}']
    lines.append('    blocks:')
    for leaf, nodes in leaves.items():
        lines.append(f'      - block: "{leaf}"')
        lines.append('        nodes: "{}"'.format(','.join(nodes)))
    return _text(lines)


def topograph(members: 'list[dict[str, Any]]') -> str:
    """Return a model of Topograph: what its providers find out of a cloud."""
    leaves = leaf_nodes(members)
    lines = ['switches:']
    for name, below in upper_switches(members).items():
        lines += [f'  "{name}":', '    switches:']
        lines += [f'    - "{switch}"' for switch in below]
    for leaf, nodes in leaves.items():
        lines += [f'  "{leaf}":', '    nodes:']
        lines += [f'    - "{node}"' for node in nodes]
    lines.append('nodes:')
    for leaf, nodes in leaves.items():
        for node in nodes:
            lines.append(f'  "{node}":')
            lines.append(f'    capacity_block: "{leaf}"')
    lines.append('capacity_blocks:')
    for leaf, nodes in leaves.items():
        lines += [f'  "{leaf}":', '    nodes:']
        lines += [f'    - "{node}"' for node in nodes]
    return _text(lines)


def kubernetes(members: 'list[dict[str, Any]]') -> str:
    """Return commands that label Kubernetes' nodes by their places.

    A label whose value is unknown is removed, as it may be that of an earlier
    host.
    """
    lines = []
    by_name = {member['name']: member for member in members}
    for name in sorted(node_names(members)):
        labels = [
            'topology.kubernetes.io/' + tier + '=' + by_name[name][tier]
            if by_name[name][tier]
            else 'topology.kubernetes.io/' + tier + '-'
            for tier in ('host', 'switch', 'rack')
        ]
        lines.append(
            'kubectl label --overwrite node {} {}'.format(
                name.lower(), ' '.join(labels)
            )
        )
    return _text(lines)


TOPOLOGY_FORMATS = {
    'slurm-conf': slurm_conf,
    'slurm-block-conf': slurm_block_conf,
    'slurm-yaml': slurm_yaml,
    'topograph': topograph,
    'kubernetes': kubernetes,
}


def _leaf(member: 'dict[str, Any]') -> str:
    return str(member['switch'] or member['host'] or UNPLACED)


def _block_size(blocks: 'dict[str, list[str]]') -> int:
    """Return the size of the smallest block: Slurm wants none smaller."""
    return min(map(len, blocks.values()))


def _text(lines: 'list[str]') -> str:
    return ''.join(line + '\n' for line in lines)
