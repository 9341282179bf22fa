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

"""Start the cloud."""

from nova_vhpc.tests.stack.demo import state


def run(demo: state.Demo) -> None:
    """Start the cloud, and show Nova's services."""
    demo.show.heading('0. Start an OpenStack of released parts')
    demo.show.say(f'all files are in {demo.stage.cloud.root}')
    with demo.show.waiting('database, bus, OVN, Neutron, libvirt, Nova'):
        demo.stage.start()
    services = demo.stage.admin.compute('GET', '/os-services')['services']
    demo.show.table(
        'Nova services',
        ('service', 'host', 'state'),
        [(s['binary'], s['host'], s['state']) for s in services],
    )
