# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Create flavors; have Nova refuse wrong extra specs."""

from nova_vhpc_lab.stack import client, scenario
from nova_vhpc_lab.stack.demo import state


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
