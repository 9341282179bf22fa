# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the agents say of the servers, over time."""

import time
from typing import Any

from nova_vhpc_lab.stack.demo import state

ROW_S = 2
ROWS = 5


def run(demo: state.Demo) -> None:
    """Show what the agents say of all servers for some time."""
    rows: list[Any] = []
    last = {uuid: demo.progress(uuid) or 0 for uuid in demo.names}
    started = time.monotonic()
    with demo.show.waiting(f'a timeline of {ROWS} rows'):
        for _ in range(ROWS):
            time.sleep(ROW_S)
            second = round(time.monotonic() - started)
            vms = demo.stage.vms()
            for uuid, name in demo.names.items():
                progress = demo.progress(uuid) or 0
                rows.append(
                    (
                        second,
                        name,
                        *_cells(vms.get(uuid)),
                        progress - last[uuid],
                    )
                )
                last[uuid] = progress
    demo.show.table(
        'Timeline',
        (
            's',
            'server',
            'phase',
            'slice ms',
            'quota/period ms',
            'pins',
            'latency us',
            'progress',
        ),
        rows,
    )


def _cells(vm: dict[str, Any] | None) -> tuple[Any, ...]:
    """Return what an agent says of a server; None for nothing."""
    if vm is None:
        return ('unmanaged', *[''] * 4)
    quota, period = vm['quota_us'], vm['period_us']
    slice_us, latency_us = vm['slice_us'], vm['sync_latency_us']
    return (
        vm['phase'],
        None if slice_us is None else slice_us / 1000,
        f'{(quota or 0) / 1000:.1f}/{(period or 0) / 1000:.1f}',
        ' '.join(vm['vcpu_pins'] or ()),
        None if latency_us is None else round(latency_us),
    )
