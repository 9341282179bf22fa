# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Stop and kill the agents; check the original settings."""

from nova_vhpc_lab.stack.demo import state


def run(demo: state.Demo) -> None:
    """Stop and kill the agents; check the original settings."""
    demo.show.heading('6. The agents restore the original settings')
    demo.stop_agents()
    demo.compare_exactly('after a clean stop of the agents')
    demo.start_agents()
    with demo.show.waiting('first writes after a new start'):
        demo.wait_for_writes()
    demo.stage.kill_agents()
    written = demo.cputunes()
    changed = [
        demo.names[uuid]
        for uuid in demo.members
        if written[uuid].changes(demo.before[uuid])
    ]
    demo.show.say(f'kill -9: {", ".join(changed)} keep the written values')
    demo.stage.restore()
    demo.show.say('nova-vhpc-agent --restore: exit status 0 on both hosts')
    demo.compare_exactly('after kill -9 and --restore')
