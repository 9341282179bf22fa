# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Have the agents tell each other the phase of the cluster."""

from nova_vhpc_lab.stack.demo import state


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

    demo.stage.wait(f'phase {phase} of all members', is_phase_of_all)
