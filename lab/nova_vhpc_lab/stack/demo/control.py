# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The agents control the members of a flavor with a quota."""

from nova_vhpc_lab.stack.demo import atc, frames, state, timeline


def run(demo: state.Demo) -> None:
    """Have the agents control the members; show a timeline."""
    demo.show.heading('5. The agents sense, decide and write')
    dry_run_changes = {
        demo.names[uuid]: tune.changes(demo.before[uuid])
        for uuid, tune in demo.cputunes().items()
    }
    if any(dry_run_changes.values()):
        raise state.DemoError(f'the dry run wrote: {dry_run_changes}')
    demo.show.say('with --dry-run, the agent decided and wrote nothing')
    demo.stop_agents()
    demo.start_agents()
    with demo.show.waiting('writes to all members and their ports'):
        demo.wait_for_writes()
    frames.check(demo)
    atc.run(demo)
    timeline.run(demo)
    now = demo.cputunes()
    demo.compare('virsh schedinfo and vcpupin', now)
    if any(now[uuid].changes(demo.before[uuid]) for uuid in demo.others):
        raise state.DemoError('the server without vhpc: specs was written to')
    demo.show.say('the server without vhpc: specs was never written to')
