# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Start the cloud."""

from nova_vhpc_lab.stack.demo import state


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
