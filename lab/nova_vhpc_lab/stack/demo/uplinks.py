# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Have the agents publish the uplinks."""

from nova_vhpc.topology import model
from nova_vhpc_lab.stack import realhosts, scenario
from nova_vhpc_lab.stack.demo import state


def run(demo: state.Demo) -> None:
    """Have the agents publish the uplinks."""
    demo.show.heading(
        '1. nova-vhpc-agent discovers and publishes the uplinks of OVN'
    )
    demo.stage.write_agent_conf(
        slice_policy='atc',
        pinning_policy='io_pool',
        # The I/O pool's CPUs are lent 2 s after its last VM has left.
        pool_shrink_periods=20,
    )
    demo.start_agents()
    expected = {
        (each.name, f'n{rail}')
        for each in demo.stage.hosts
        for rail in range(realhosts.UPLINKS)
    }
    with demo.show.waiting('uplinks in Placement'):
        demo.stage.wait(
            'uplinks in Placement',
            demo.stage.has_published,
        )
    rows = []
    for node in nodes(demo):
        for provider in sorted(
            demo.stage.published(node), key=lambda p: p['name']
        ):
            _, _, bridge, nic = provider['name'].split(':')
            inventories = provider['inventories']
            rows.append(
                (
                    node,
                    bridge,
                    nic,
                    inventories[model.MBPS]['total'],
                    inventories[model.UPLINK]['total'],
                    provider['usages'].get(model.UPLINK, 0),
                    ' '.join(
                        sorted(
                            t.removeprefix('CUSTOM_VHPC_')
                            for t in provider['traits']
                        )
                    ),
                )
            )
    demo.show.table(
        'Uplinks published, read back from Placement',
        ('host', 'bridge', 'uplink', 'Mbit/s', 'slots', 'used', 'traits'),
        rows,
    )
    found = {row[:3:2] for row in rows if row[0] != scenario.SLOW_HOST}
    if found != expected:
        raise state.DemoError(f'{found} were published, not {expected}')
    # The uplinks stay published. The dry run, which would not publish
    # them, lets the guests run with Nova's settings at first.
    demo.stop_agents()
    demo.start_agents('--dry-run')


def nodes(demo: state.Demo) -> list[str]:
    """Return the names of all compute nodes."""
    return [*(each.name for each in demo.stage.hosts), scenario.SLOW_HOST]


def delete_servers(demo: state.Demo) -> None:
    """Delete the servers, and check that all uplinks are free."""
    with demo.show.waiting('servers deleted'):
        demo.stage.tenant.delete(demo.names)
    used = [
        provider['name']
        for node in nodes(demo)
        for provider in demo.stage.published(node)
        if provider['usages'].get(model.UPLINK)
    ]
    if used:
        raise state.DemoError(f'still claimed: {used}')
    demo.show.say('every uplink is free again in Placement')
