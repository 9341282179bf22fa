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

"""Create flavors; have Nova refuse wrong extra specs."""

from nova_vhpc.tests.stack import client, scenario
from nova_vhpc.tests.stack.demo import state


def run(demo: state.Demo) -> None:
    """Create flavors; have Nova refuse wrong extra specs."""
    demo.show.heading('2. A flavor, through the real Nova API')
    admin = demo.stage.admin
    admin.make_flavor('vhpc', scenario.FLAVOR)
    admin.make_flavor('plain', scenario.PLAIN_FLAVOR)
    response = admin.compute('GET', '/flavors/vhpc/os-extra_specs')
    demo.show.table(
        'Flavor vhpc',
        ('extra spec', 'value'),
        sorted(response['extra_specs'].items()),
    )
    rows = []
    for key, value in (
        ('vhpc:wrkload', 'parallel'),
        ('vhpc:workload', 'fast'),
    ):
        try:
            admin.set_extra_specs('plain', {key: value})
        except client.ApiError as error:
            rows.append((key, value, error.status, error.message))
            if error.status != 400 or key not in error.message:
                raise state.DemoError(f'{error} does not name {key}') from None
        else:
            raise state.DemoError(f'Nova accepted {key}={value}')
    demo.show.table(
        'Refused', ('key', 'value', 'status', "Nova's answer"), rows
    )
