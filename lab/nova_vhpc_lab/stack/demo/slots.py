# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Members on two hosts have their windows in the same slots."""

import dataclasses
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nova_vhpc.control.slots import frame
from nova_vhpc_lab.stack import host, slot_meter
from nova_vhpc_lab.stack.demo import state

METER_S = 5.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a member's windows are, as its host's agent says.

    :ivar agreed: the slots of the frame that the hosts of the cluster agreed
        on.
    :ivar slot_us: length of a slot, in microseconds; 0 without windows.
    :ivar favoured: slots of the frame at whose begin the member is favoured.
    """

    agreed: frozenset[int]
    slot_us: int
    favoured: frozenset[int]


def place(status: Mapping[str, Any], server: str) -> Place:
    """Return a member's place from the status of its host's agent."""
    clusters = {vm['uuid']: vm['cluster'] for vm in status['vms']}
    slots = status['peers'].get('slots') or {}
    cluster = slots.get('clusters', {}).get(clusters.get(server)) or {}
    windows = status.get('windows') or {}
    turns = windows.get('turns', []) if windows.get('playing') else []
    slot_us = sum(turn['width_us'] for turn in turns) // frame.SLOTS
    favoured, begin_us = set(), 0
    for turn in turns:
        end_us = begin_us + turn['width_us']
        if server in turn['favoured']:
            favoured |= {
                number
                for number in range(frame.SLOTS)
                if begin_us <= number * slot_us < end_us
            }
        begin_us = end_us
    agreed = (cluster.get('slot') or {}).get('slots', ())
    return Place(frozenset(agreed), slot_us, frozenset(favoured))


def split(
    parts: Sequence[float], favoured: Collection[int]
) -> tuple[float, float]:
    """Return a member's mean part of a CPU in its windows, and outside.

    :param parts: part of a CPU that it had in each slot.
    :param favoured: slots in which it is favoured.
    """
    inside = [part for n, part in enumerate(parts) if n in favoured]
    outside = [part for n, part in enumerate(parts) if n not in favoured]
    return (
        statistics.fmean(inside or [0.0]),
        statistics.fmean(outside or [0.0]),
    )


def run(demo: state.Demo) -> None:
    """Have the agents agree on slots; show windows and CPU time in them."""
    demo.show.heading('9. Gang windows, in the same slots on both hosts')
    hosts = {uuid: demo.host_of(uuid) for uuid in demo.members}
    demo.stage.write_agent_conf(
        shared_cpus={each: demo.cpu_of(each) for each in demo.stage.hosts},
        slice_policy='gang',
        pinning_policy='none',
    )
    demo.start_agents()
    with demo.show.waiting('windows in slots that both hosts agreed on'):
        places = demo.stage.wait(
            'windows in agreed slots',
            lambda: _in_agreed_slots(demo, hosts),
        )
    slot_us = min(one.slot_us for one in places.values())
    with demo.show.waiting(f'CPU time of both members for {METER_S:.0f} s'):
        parts = slot_meter.cpu_of_slots(
            demo.members, slot_us, frame.SLOTS, METER_S
        )
    rows: list[tuple[Any, ...]] = []
    for uuid, one in places.items():
        where = hosts[uuid]
        windows = [
            '#' if n in one.favoured else '' for n in range(frame.SLOTS)
        ]
        rows += [
            (where.name, demo.cpu_of(where), demo.names[uuid], *windows),
            ('', '', 'CPU %', *(f'{100 * part:.0f}' for part in parts[uuid])),
        ]
    demo.show.table(
        f'Slots of {slot_us / 1000:.0f} ms by the wall clock: # is a window '
        'in which the member is favoured',
        ('host', 'CPU', 'server', *(str(n) for n in range(frame.SLOTS))),
        rows,
    )
    agreed = sorted(next(iter(places.values())).agreed)
    demo.show.say(
        f'both hosts agreed: slots {", ".join(str(n) for n in agreed)}'
    )
    for uuid, one in places.items():
        inside, outside = split(parts[uuid], one.favoured)
        demo.show.say(
            f'{demo.names[uuid]}: {100 * inside:.0f}% of a CPU in its '
            f'windows, {100 * outside:.0f}% outside of them'
        )
    demo.stop_agents()
    demo.compare_exactly('after a clean stop of the agents')


def _in_agreed_slots(
    demo: state.Demo, hosts: Mapping[str, host.Host]
) -> dict[str, Place] | None:
    places = {
        uuid: place(demo.stage.agent_status(where), uuid)
        for uuid, where in hosts.items()
    }
    agreed = {one.agreed for one in places.values()}
    (first,) = agreed if len(agreed) == 1 else [frozenset[int]()]
    if first and all(first <= one.favoured for one in places.values()):
        return places
    return None
