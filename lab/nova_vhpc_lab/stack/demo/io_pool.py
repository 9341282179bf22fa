# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A cluster moves into the I/O pool, and back."""

import os
import time
from collections.abc import Callable
from typing import Any

from nova_vhpc_lab.stack.demo import state
from nova_vhpc_lab.testbed.patience import PATIENCE_S, TooLongError

ROW_S = 1.0


def run(demo: state.Demo) -> None:
    """Send packets to one member; show where both members run."""
    demo.show.heading('8. The cluster moves into the I/O pool, and back')
    demo.stage.write_agent_conf(
        slice_policy='none',
        pinning_policy='io_pool',
        # Otherwise the members may soon have the CPUs of the empty I/O pool
        # again, and would not be seen to leave it.
        pool_shrink_periods=600,
    )
    demo.start_agents()
    timeline = _Timeline(demo)
    with demo.show.waiting('pins of both members'):
        timeline.until('', timeline.all_pinned)
    sender, (receiver, other) = demo.outsider, demo.members
    address = demo.console(receiver).address() or ''
    demo.show.say(
        f'{demo.names[receiver]} gets packets from outside of the cluster, '
        f'{demo.names[other]} on the other host none'
    )
    with (
        sender.traffic(address),
        demo.show.waiting('both members in the I/O pool'),
    ):
        timeline.until('packets', lambda: timeline.all_in('io'))
    with demo.show.waiting('both members back in the computing pool'):
        timeline.until('quiet', lambda: timeline.all_in('computing'))
    timeline.show()
    demo.stop_agents()
    demo.compare_exactly('after a clean stop of the agents')


class _Timeline:
    """What the agents and libvirt say of the members, over time."""

    def __init__(self, demo: state.Demo) -> None:
        self._demo = demo
        self._started = time.monotonic()
        self._rows: list[tuple[Any, ...]] = []
        self._now: dict[str, tuple[str, str]] = {}
        usable = sorted(os.sched_getaffinity(0))
        # Demand sizes the pool, from the last CPU; it never needs more.
        self._io = usable[len(usable) // 2 :]

    def all_pinned(self) -> bool:
        """Tell whether each member computes on one CPU, of any pool."""
        return all(
            phase == 'computing' and pin.isdigit()
            for phase, pin in self._now.values()
        )

    def all_in(self, phase: str) -> bool:
        """Tell whether all members are in a phase and pinned to its pool."""
        return all(
            at == phase
            and pin.isdigit()
            and (int(pin) in self._io) == (at == 'io')
            for at, pin in self._now.values()
        )

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Add rows until a condition is true.

        :raises TimeoutError: if it is not within some time.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._look(what)
            if condition():
                return
            if time.monotonic() > deadline:
                self.show()
                raise TooLongError(what)
            time.sleep(ROW_S)

    def _look(self, what: str) -> None:
        vms = self._demo.stage.vms()
        for member in self._demo.members:
            vm = vms.get(member)
            pins = self._demo.cputune(member).pins
            self._now[member] = (vm['phase'] if vm else '', ' '.join(pins))
            self._rows.append(
                (
                    f'{time.monotonic() - self._started:.0f}',
                    what,
                    self._demo.names[member],
                    *(
                        (None,) * 5
                        if vm is None
                        else (
                            vm['phase'],
                            vm['io_events'],
                            vm['predicted_events'],
                            vm['threshold_events'],
                            (vm['slice_us'] or 0) / 1000 or None,
                        )
                    ),
                    ' '.join(pins),
                )
            )

    def show(self) -> None:
        """Print the rows."""
        self._demo.show.table(
            'Timeline; the pins are what virsh shows',
            (
                's',
                'traffic',
                'server',
                'phase',
                'I/O events',
                'predicted',
                'threshold',
                'slice ms',
                'pin',
            ),
            self._rows,
        )
