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

"""What the agents say of the servers, over time."""

import contextlib
import time
from typing import Any

from nova_vhpc.tests.stack.demo import state

ROW_S = 2
TIMELINE_ROWS = 14
TRAFFIC_ROWS = range(3, 10)
"""Rows of the timeline during which one member receives packets."""


def run(demo: state.Demo) -> bool:
    """Show what the agents say of all servers for some time.

    :returns: whether a member was in the I/O phase.
    """
    saw_io_phase = False
    rows: list[Any] = []
    last = {uuid: demo.progress(uuid) or 0 for uuid in demo.names}
    sender, (receiver, _) = demo.outsider, demo.apart
    address = demo.stage.console(receiver).address() or ''
    demo.show.say(
        f'for a while, {demo.names[receiver]} gets packets from outside of '
        'the cluster'
    )
    started = time.monotonic()
    with (
        contextlib.ExitStack() as traffic,
        demo.show.waiting(f'a timeline of {TIMELINE_ROWS} rows'),
    ):
        for row in range(TIMELINE_ROWS):
            if row == TRAFFIC_ROWS.start:
                traffic.enter_context(sender.traffic(address))
            if row == TRAFFIC_ROWS.stop:
                traffic.close()
            time.sleep(ROW_S)
            second = round(time.monotonic() - started)
            vms = demo.stage.vms()
            saw_io_phase |= any(vm['phase'] == 'io' for vm in vms.values())
            for uuid, name in demo.names.items():
                progress = demo.progress(uuid) or 0
                rows.append(
                    _row(
                        second,
                        'yes' if row in TRAFFIC_ROWS else '',
                        name,
                        vms.get(uuid),
                        progress - last[uuid],
                    )
                )
                last[uuid] = progress
    demo.show.table(
        'Timeline',
        (
            's',
            'packets',
            'server',
            'phase',
            'slice ms',
            'quota/period ms',
            'pins',
            'latency us',
            'I/O events',
            'predicted',
            'threshold',
            'progress',
        ),
        rows,
    )
    return saw_io_phase


def _row(
    second: int,
    packets: str,
    name: str,
    vm: dict[str, Any] | None,
    progress: int,
) -> tuple[Any, ...]:
    if vm is None:
        return (second, packets, name, 'unmanaged', *[''] * 7, progress)
    quota, period = vm['quota_us'], vm['period_us']
    slice_us, latency_us = vm['slice_us'], vm['sync_latency_us']
    return (
        second,
        packets,
        name,
        vm['phase'],
        None if slice_us is None else slice_us / 1000,
        f'{(quota or 0) / 1000:.1f}/{(period or 0) / 1000:.1f}',
        ' '.join(vm['vcpu_pins'] or ()),
        None if latency_us is None else round(latency_us),
        vm['io_events'],
        _whole(vm['predicted_events']),
        _whole(vm['threshold_events']),
        progress,
    )


def _whole(number: float | None) -> str:
    return '-' if number is None else f'{number:.0f}'
