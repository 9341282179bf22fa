# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Extra specs of each network configuration."""

from nova_vhpc.flavor import recipes

UPLINK = 'resources_uplink:CUSTOM_VHPC_UPLINK'
SHARED = 'trait_uplink:CUSTOM_VHPC_BRIDGE_SHARED'
SEPARATE = 'trait_uplink:CUSTOM_VHPC_BRIDGE_SEPARATE'

RECIPES = {
    'shared': {UPLINK: '1', SHARED: 'required'},
    'multiple-shared': {
        'resources_uplink1:CUSTOM_VHPC_UPLINK': '1',
        'trait_uplink1:CUSTOM_VHPC_BRIDGE_SHARED': 'required',
        'resources_uplink2:CUSTOM_VHPC_UPLINK': '1',
        'trait_uplink2:CUSTOM_VHPC_BRIDGE_SHARED': 'required',
        'group_policy': 'none',
    },
    'separate': {UPLINK: '1', SEPARATE: 'required'},
    'shared-separate': {UPLINK: '1', SEPARATE: 'required'},
}


def recipe(network=None, **options):
    """Return the extra specs that nova-vhpc-flavor would write."""
    arguments = {
        name: options.pop(name)
        for name in ('physnet', 'alias', 'sriov_ports', 'ports')
        if name in options
    }
    if network:
        options['network'] = network
    return recipes.recipe(options, **arguments)
