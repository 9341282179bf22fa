# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which uplinks the packets between members take."""

from nova_vhpc_lab.stack import realhosts
from nova_vhpc_lab.stack.demo import state

PACKETS = 20
"""Packets that one member sends to another, which answers each."""


def show(demo: state.Demo, title: str) -> dict[tuple[str, str], list[int]]:
    """Show which uplinks packets between members take.

    :returns: frames between two hosts, as :meth:`Scenario.frames`.
    """
    between = demo.stage.frames(*demo.apart, PACKETS)
    within = demo.stage.frames(*demo.together, PACKETS)
    demo.show.table(
        title,
        (
            f'{PACKETS} packets and answers',
            'host',
            '',
            *(f'n{rail}' for rail in range(realhosts.UPLINKS)),
        ),
        [
            (
                ' and '.join(demo.names[uuid] for uuid in pair),
                host,
                way,
                *counts,
            )
            for pair, frames in (
                (demo.apart, between),
                (demo.together, within),
            )
            for (host, way), counts in frames.items()
        ],
    )
    if any(map(any, within.values())):
        raise state.DemoError(f'frames left the host: {within}')
    return between


def check(demo: state.Demo) -> None:
    """Check that packets arrive on the uplinks that members claimed."""
    between = show(demo, 'Frames on the uplinks, with agents')
    for uuid in demo.apart:
        arrived = between[demo.host_of(uuid).name, 'in']
        rail = demo.stage.claimed_rail(uuid)
        if arrived[rail] < PACKETS or sum(arrived) > arrived[rail]:
            raise state.DemoError(
                f'{demo.names[uuid]} claimed n{rail} and got {arrived}'
            )
    demo.show.say('all arrived on the uplink that the receiver claimed')
