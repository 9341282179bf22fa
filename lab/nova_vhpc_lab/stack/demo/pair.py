# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Replace the cluster by one with a one-vCPU member on each host."""

from nova_vhpc_lab.stack import scenario
from nova_vhpc_lab.stack.demo import state, uplinks

BUSY_SHARES = 512
"""CPU weight of a neighbour: members need half a CPU to boot in time."""


def run(demo: state.Demo) -> None:
    """Delete the servers, and boot two members and two busy neighbours."""
    demo.show.heading('7. Another cluster: one vCPU on each of two hosts')
    uplinks.delete_servers(demo)
    tenant, admin = demo.stage.tenant, demo.stage.admin
    # Windows are for programs that never sleep, and a quota makes them sleep.
    admin.make_flavor('one', scenario.without_quota(scenario.FLAVOR), vcpus=1)
    admin.make_flavor(
        'busy',
        {
            **scenario.without_quota(scenario.PLAIN_FLAVOR),
            'quota:cpu_shares': str(BUSY_SHARES),
        },
        vcpus=1,
    )
    with demo.show.waiting('two members, and a busy server beside each'):
        members = demo.stage.boot_cluster(
            'one', tenant.make_group('pair', 'anti-affinity'), 2, 'one'
        )
        busy = tenant.boot(
            'busy',
            'busy',
            demo.stage.images['hog'],
            2,
            tenant.make_group('busy', 'anti-affinity'),
        )
        demo.take_servers(members, busy)
        tenant.wait_active(demo.names)
    hosts = {uuid: demo.host_of(uuid) for uuid in demo.names}
    # On this machine all hosts have the same CPUs. An operator gives each
    # neighbour one of them, so that it competes with one member all the time.
    for uuid in demo.others:
        cpu = demo.cpu_of(hosts[uuid])
        hosts[uuid].virsh('vcpupin', uuid, '0', str(cpu), '--live')
    demo.show.table(
        'Servers',
        ('server', 'host', 'vhpc: specs', 'CPU'),
        [
            (
                name,
                hosts[uuid].name,
                'yes' if uuid in demo.members else 'no',
                'any' if uuid in demo.members else demo.cpu_of(hosts[uuid]),
            )
            for uuid, name in demo.names.items()
        ],
    )
    if len({hosts[uuid].name for uuid in demo.members}) != 2:
        raise state.DemoError('the members are not on two hosts')
    demo.wait_for_progress()
    demo.wait_for_addresses()
    demo.remember_settings()
