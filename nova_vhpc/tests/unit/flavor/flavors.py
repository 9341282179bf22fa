# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
