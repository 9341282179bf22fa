# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics of VMs, as text.

Written here because the library takes 20 microseconds for a sample with five
labels, which is 150 ms for 400 VMs: it sorts, checks and escapes the labels of
each sample anew. Here the labels of a VM are written once for all its samples.
"""

import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from nova_vhpc.agent import tick_result
from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.metrics import vm_counters
from nova_vhpc.control import model

LABELS = ('uuid', 'name', 'server', 'cluster', 'project')
"""Labels of each VM: UUID, libvirt's name, Nova's name, ID of the virtual
cluster, and ID of the project. A label that is unknown is empty."""

_ESCAPES = str.maketrans({'\\': r'\\', '"': r'\"', '\n': r'\n'})


class Family(NamedTuple):
    """A metric of VMs.

    :ivar name: its whole name.
    :ivar kind: Prometheus' type.
    :ivar text: what it is.
    """

    name: str
    kind: str
    text: str


def _counter(name: str, text: str) -> Family:
    return Family(f'nova_vhpc_{name}_total', 'counter', text)


def _gauge(name: str, text: str) -> Family:
    return Family(f'nova_vhpc_{name}', 'gauge', text)


FAMILIES = (
    _counter(
        'vcpu_delay_seconds',
        'Time in which vCPUs were runnable without running, the throttled '
        'time included.',
    ),
    _counter('vcpu_run_seconds', 'CPU time of vCPUs.'),
    _counter(
        'vcpu_throttled_seconds',
        'Time in which the quota held vCPUs up; of VMs that have one.',
    ),
    _counter(
        'vcpu_context_switches', 'Number of times that a vCPU got a CPU.'
    ),
    _counter(
        'vm_window_seconds', 'Time for which gang windows favoured the VM.'
    ),
    _counter('vm_io_events', 'I/O events.'),
    _counter(
        'vm_uplink_receive_packets',
        'Packets to the guest over the uplinks that it claims.',
    ),
    _counter(
        'vm_uplink_transmit_packets',
        'Packets from the guest over the uplinks that it claims.',
    ),
    _counter('vm_writes', 'Writes to the VM.'),
    _counter('vm_moves', 'Writes that moved vCPUs to other CPUs.'),
    _counter('vm_failures', 'Writes that failed.'),
    _gauge('vm_vcpus', 'vCPUs that are online.'),
    _gauge('vm_slice_seconds', "Time slice; none if it is the kernel's own."),
    _gauge('vm_period_seconds', 'vCPU period in force.'),
    _gauge('vm_quota_seconds', 'vCPU quota in force; none without one.'),
    _gauge('vm_cpu_shares', 'Weight in force.'),
    _gauge('vm_window_width_seconds', 'Length of the gang windows.'),
    _gauge(
        'vm_window_share_ratio',
        'Part of the time that is planned as gang windows of the VM.',
    ),
    _gauge(
        'vm_received_ratio',
        'CPU time received, by what stock Linux would give.',
    ),
    _gauge(
        'vm_spinning_held_up',
        '1 if vCPUs never sleep and are held up; none while unknown.',
    ),
    _gauge('vm_io_phase', '1 in the I/O phase.'),
    _gauge('vm_quarantined', '1 in quarantine.'),
    _gauge('vm_handed_back', '1 if handed back after an external change.'),
)

Value = float | int | None


class VmMetrics:
    """Writes the metrics of all managed VMs.

    :param guests: returns the managed guests, by UUID.
    :param last_tick: returns the result of the last tick; None before it.
    :param devices: returns the host's ends of the NICs whose packets take
        claimed uplinks, by UUID of the guest.
    :param sys_root: where sysfs is mounted.
    :param pause: returns as soon as no tick is under way.
    """

    def __init__(
        self,
        guests: Callable[[], Mapping[str, Guest]],
        last_tick: Callable[[], tick_result.TickResult | None],
        devices: Callable[[], Mapping[str, Sequence[str]]] = dict,
        sys_root: str = '/sys',
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        self._guests = guests
        self._last_tick = last_tick
        self._devices = devices
        self._net = pathlib.Path(sys_root, 'class/net')
        self._pause = pause
        self._counters: dict[str, vm_counters.VmCounters] = {}

    def text(self) -> str:
        """Return all metrics in Prometheus' text format.

        Not to be called by two threads at a time.
        """
        guests = dict(self._guests())
        for uuid in self._counters.keys() - guests.keys():
            del self._counters[uuid]
        result = self._last_tick()
        devices = self._devices()
        facts = _TickFacts(result)
        labels: list[str] = []
        rows: list[tuple[Value, ...]] = []
        for uuid, guest in guests.items():
            self._pause()
            labels.append(_labels(guest, facts.clusters.get(uuid)))
            rows.append(self._values(guest, devices.get(uuid, ()), facts))
        blocks: list[str] = []
        columns: Iterable[Sequence[Value]] = (
            zip(*rows, strict=True) if rows else [()] * len(FAMILIES)
        )
        for family, column in zip(FAMILIES, columns, strict=True):
            self._pause()
            lines = [
                f'{family.name}{{{label}}} {value}\n'
                for label, value in zip(labels, column, strict=True)
                if value is not None
            ]
            blocks.append(
                f'# HELP {family.name} {family.text}\n'
                f'# TYPE {family.name} {family.kind}\n{"".join(lines)}'
            )
        self._pause()
        return ''.join(blocks)

    def _values(
        self, guest: Guest, devices: Sequence[str], facts: '_TickFacts'
    ) -> tuple[Value, ...]:
        """Return the values of one VM, in the order of the families."""
        uuid = guest.uuid
        counters = self._counters.get(uuid)
        if counters is None:
            counters = self._counters[uuid] = vm_counters.VmCounters(self._net)
        totals = counters.read(guest, devices)
        plan = facts.plans.get(uuid)
        tune = guest.in_force
        width_us, share = facts.windows.get(uuid, (None, 0.0))
        return (
            totals.delay_s,
            totals.run_s,
            totals.throttled_s,
            totals.switches,
            guest.window_s,
            guest.reader.io_total,
            totals.received,
            totals.sent,
            guest.writes,
            guest.moves,
            guest.failures.count,
            guest.info.vcpus,
            _seconds(plan.slice_us if plan is not None else None),
            _seconds(tune.period_us),
            _seconds(tune.quota_us if tune.share is not None else None),
            tune.shares,
            _seconds(width_us),
            share,
            facts.received.get(uuid),
            facts.held_up.get(uuid),
            None if plan is None else int(plan.phase is model.Phase.IO),
            int(guest.failures.quarantined),
            int(bool(guest.external)),
        )


class _TickFacts:
    """What the last tick says of each VM, by UUID.

    :ivar windows: length of its gang windows in microseconds, and their part
        of the time.
    """

    def __init__(self, result: tick_result.TickResult | None) -> None:
        self.clusters: dict[str, str | None] = {}
        self.plans: Mapping[str, model.VmPlan] = {}
        self.received: Mapping[str, float] = {}
        self.held_up: dict[str, int] = {}
        self.windows: dict[str, tuple[int, float]] = {}
        if result is None:
            return
        self.clusters = {vm.uuid: vm.cluster for vm in result.view.vms}
        self.plans = result.plan.vms
        self.held_up = {
            uuid: int(one.state is model.WaitState.HELD_UP)
            for uuid, one in result.plan.waiting.items()
        }
        if result.plan.cpu_shares is not None:
            self.received = result.plan.cpu_shares.received
        schedule = result.plan.windows
        for turn in () if schedule is None else schedule.turns:
            assert schedule is not None
            for uuid in turn.favoured:
                longest_us, share = self.windows.get(uuid, (0, 0.0))
                self.windows[uuid] = (
                    max(longest_us, turn.width_us),
                    share + turn.width_us / schedule.cycle_us,
                )


def _labels(guest: Guest, cluster: str | None) -> str:
    info = guest.info
    values = (
        info.uuid,
        info.name,
        info.server_name,
        cluster or '',
        info.project or '',
    )
    return ','.join(
        [
            f'{name}="{value.translate(_ESCAPES)}"'
            for name, value in zip(LABELS, values, strict=True)
        ]
    )


def _seconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6
