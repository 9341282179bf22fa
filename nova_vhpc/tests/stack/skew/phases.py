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

"""Have the agents tell each other the phase of the cluster."""

from nova_vhpc.tests.stack.demo import state


def run(demo: state.Demo) -> None:
    """Send packets to a member of one host, then of the other.

    Each time all members must enter the I/O phase, and the host whose member
    gets no packets knows of it by a message of the other agent.

    :raises TimeoutError: if they do not, or do not leave it again.
    """
    demo.show.heading('Phases travel between the agents, both ways')
    for uuid in demo.apart:
        name, host = demo.names[uuid], demo.host_of(uuid).name
        address = demo.console(uuid).address() or ''
        with (
            demo.show.waiting(f'all in the I/O phase, by {name} on {host}'),
            demo.outsider.traffic(address),
        ):
            _wait(demo, 'io')
        with demo.show.waiting('all computing again'):
            _wait(demo, 'computing')


def _wait(demo: state.Demo, phase: str) -> None:
    def is_phase_of_all() -> bool:
        vms = demo.stage.vms()
        return all(vms[uuid]['phase'] == phase for uuid in demo.members)

    demo.stage.wait(
        f'phase {phase} of all members', is_phase_of_all, state.PATIENCE_S
    )
