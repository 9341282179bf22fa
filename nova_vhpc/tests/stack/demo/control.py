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

"""The agents control the members of a flavor with a quota."""

from nova_vhpc.tests.stack.demo import atc, frames, state, timeline


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
