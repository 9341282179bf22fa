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

"""Print Nova's lists of filters and weighers as JSON, without nova-vhpc's.

Run by nova's Python with the path of nova.conf.
"""

import json
import sys

import nova.conf

NAMES = ('available_filters', 'enabled_filters', 'weight_classes')

nova.conf.CONF(
    [],
    project='nova',
    default_config_files=sys.argv[1:],
    default_config_dirs=[],
)
options = nova.conf.CONF.filter_scheduler
lists = {
    name: [
        value
        for value in options[name]
        if not value.startswith('nova_vhpc.')
        and value != 'VirtualClusterFilter'
    ]
    for name in NAMES
}
print(json.dumps(lists))
