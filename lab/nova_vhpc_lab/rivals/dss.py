# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``dss``: each VM's slice from its own I/O behaviour.

Dynamic Switching-frequency Scaling (DSS), one of the approaches that the ATC
paper compares with (section IV.A): the more I/O events a VM gets, the more
often it should be scheduled. Its slice is the time in which, by a moving
average, ``dss_events_per_slice`` events occur; at least the shortest slice and
at most DEFAULT.
"""

import dataclasses

from nova_vhpc.control import bandwidth
from nova_vhpc.control import config as control_config
from nova_vhpc.control.slices import base

ALPHA = 0.3
"""Weight of the newest sample in the moving average."""

LADDER = 2**0.5
"""Ratio between neighbouring slices; smaller changes are not worth a write."""

_PER_US = 100_000
"""Microseconds for which I/O events are counted."""


@dataclasses.dataclass(slots=True)
class _Rate:
    events: float
    step: int | None = None


class DssPolicy:
    """Slices in inverse proportion to I/O events, with hysteresis."""

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start without any VM."""
        self._config = config
        self._rates: dict[str, _Rate] = {}

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Return a slice for every VM, whatever its workload."""
        present = {vm.uuid for vm in context.view.vms}
        for gone in self._rates.keys() - present:
            del self._rates[gone]
        shortest_us = bandwidth.shortest_slice_us(context.view.limits)
        choices: dict[str, base.VmSlice] = {}
        for vm in context.view.vms:
            if vm.time_slice_us is not None:
                choices[vm.uuid] = base.specified(vm.time_slice_us)
                continue
            rate = self._rates.get(vm.uuid)
            events = vm.sample.io_events
            if events is not None:
                if rate is None:
                    rate = self._rates[vm.uuid] = _Rate(events)
                rate.events += ALPHA * (events - rate.events)
            if rate is not None:
                slice_us = self._slice_us(rate, shortest_us)
                choices[vm.uuid] = base.VmSlice(slice_us, reason='DSS')
        return base.SliceDecision(choices)

    def _slice_us(self, rate: _Rate, shortest_us: int) -> int | None:
        """Return the slice; changes below one step are ignored."""
        default_us = self._config.default_slice_us
        wanted_us = (
            _PER_US * self._config.dss_events_per_slice / rate.events
            if rate.events > 0
            else default_us
        )
        wanted_us = min(max(wanted_us, shortest_us), default_us)
        if rate.step is not None:
            current_us = default_us / LADDER**rate.step
            if current_us / LADDER <= wanted_us <= current_us * LADDER:
                wanted_us = current_us
        step = 0
        while (
            default_us / LADDER ** (step + 1) >= wanted_us / LADDER**0.5
            and default_us / LADDER ** (step + 1) >= shortest_us
        ):
            step += 1
        rate.step = step
        return None if step == 0 else round(default_us / LADDER**step)
