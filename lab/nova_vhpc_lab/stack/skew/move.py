# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Migrate a member live to the host of the other release, and back."""

from nova_vhpc_lab.stack.demo import state


def run(demo: state.Demo) -> None:
    """Migrate a member live, which claims an uplink on each host.

    :raises DemoError: if it holds more than one uplink.
    """
    demo.show.heading('A member moves between the releases, and back')
    here, there = (
        demo.stage.host_of(uuid) for uuid in (demo.together[0], demo.apart[1])
    )
    member = demo.together[0]
    for target in (there, here):
        with demo.show.waiting(f'{demo.names[member]} on {target.name}'):
            demo.stage.cloud.move(member, target)
        demo.show.say(
            f'it has claimed n{demo.stage.claimed_rail(member)} there'
        )
