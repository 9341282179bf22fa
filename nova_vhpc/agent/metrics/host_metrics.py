# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Prometheus metrics of the agent and its host, from the status document."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import core, registry

from nova_vhpc.agent.uplinks import publish_worker
from nova_vhpc.control.slots import frame

PREFIX = 'nova_vhpc_'

Rows = tuple[tuple[str, str, str], ...]
"""Key in the status document, name of the metric, and its help text."""

AGENT_COUNTERS: Rows = (
    ('ticks', 'ticks', 'Control periods.'),
    ('overruns', 'tick_overruns', 'Control periods that were missed.'),
    ('tick_failures', 'tick_failures', 'Ticks that ended in an error.'),
    (
        'foreign_changes',
        'external_changes',
        'Managed values that were changed externally.',
    ),
    (
        'handed_back',
        'servers_handed_back',
        'Servers handed back after an external change.',
    ),
    ('late_calls', 'late_calls', 'libvirt calls beyond their deadline.'),
    ('reconnects', 'libvirt_reconnects', 'New connections to libvirt.'),
)
AGENT_GAUGES: Rows = (
    ('libvirt_up', 'libvirt_up', '1 while libvirt is connected.'),
    ('paused', 'paused', '1 while paused.'),
    ('dry_run', 'dry_run', '1 if nothing is written.'),
    ('journal_bytes', 'journal_bytes', 'Bytes in the journal.'),
    ('journal_records', 'journal_records', 'VMs in the journal.'),
)
PEER_COUNTERS: Rows = (
    ('sent', 'peer_words_sent', 'Phases sent to other hosts.'),
    ('received', 'peer_words_received', 'Phases received from other hosts.'),
)
WINDOW_COUNTERS: Rows = (
    ('borders', 'window_borders', 'Borders of gang windows.'),
    (
        'total_late_us',
        'window_late_seconds',
        'Time from borders until their weights were in force.',
    ),
    ('writes', 'window_writes', 'Weights written for gang windows.'),
    (
        'failures',
        'window_write_failures',
        'Weights that could not be written for gang windows.',
    ),
)
WINDOW_GAUGES: Rows = (
    ('playing', 'windows_playing', '1 while gang windows are played.'),
    (
        'worst_late_us',
        'window_worst_late_seconds',
        'Longest time from a border until its weights were in force, since '
        'the windows last changed.',
    ),
)


class HostCollector(registry.Collector):
    """Turns the status document into metrics whenever it is asked.

    The tick does no work for it.

    :param status: returns the status document; it needs no VMs.
    :param claimed: returns the uplinks that guests claim, by UUID.
    :param pause: returns as soon as no tick is under way.
    """

    def __init__(
        self,
        status: Callable[[], dict[str, Any]],
        claimed: Callable[[], Mapping[str, Any]] = dict,
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        self._status = status
        self._claimed = claimed
        self._pause = pause

    def collect(self) -> Iterator[core.Metric]:
        """Yield all metrics but those of VMs and the tick's histogram.

        The library writes each before it asks for the next.
        """
        for metric in self._metrics():
            self._pause()
            # One name that UTF-8 cannot encode would cost the whole page.
            metric.samples = [
                sample._replace(
                    labels={
                        label: value.encode(errors='replace').decode()
                        for label, value in sample.labels.items()
                    }
                )
                for sample in metric.samples
            ]
            yield metric

    def _metrics(self) -> Iterator[core.Metric]:
        status = self._status()
        agent = status['agent']
        yield from _rows(core.CounterMetricFamily, AGENT_COUNTERS, agent)
        yield from _rows(core.GaugeMetricFamily, AGENT_GAUGES, agent)
        gauge = core.GaugeMetricFamily(
            f'{PREFIX}journal_writable', '1 while the journal can be written.'
        )
        gauge.add_metric([], float(not agent.get('journal_problem')))
        yield gauge
        yield _by_workload(status.get('workloads') or {})
        yield from _windows(status.get('windows') or {})
        yield _part_health(status.get('health') or {})
        yield from _uplinks(status.get('publishing') or {}, self._claimed())
        peers = status.get('peers') or {}
        yield from _peers(peers)
        yield from _slots(peers.get('slots') or {})


def _rows(
    kind: Callable[..., Any], rows: Rows, values: Mapping[str, Any]
) -> Iterator[core.Metric]:
    """Yield a metric without labels for each key that has a value."""
    for key, name, text in rows:
        metric = kind(PREFIX + name, text)
        value = values.get(key)
        if value is not None:
            divisor = 1e6 if key.endswith('_us') else 1
            metric.add_metric([], value / divisor)
        yield metric


def _by_workload(workloads: Mapping[str, int]) -> core.Metric:
    gauge = core.GaugeMetricFamily(
        f'{PREFIX}vms', 'VMs by workload.', labels=['workload']
    )
    for workload in ('parallel', 'latency', 'general'):
        gauge.add_metric([workload], workloads.get(workload, 0))
    return gauge


def _windows(windows: Mapping[str, Any]) -> Iterator[core.Metric]:
    """Yield what gang windows cost, and how they are played."""
    yield from _rows(core.CounterMetricFamily, WINDOW_COUNTERS, windows)
    yield from _rows(core.GaugeMetricFamily, WINDOW_GAUGES, windows)
    shares = windows.get('cpu_shares') or {}
    for key, name, text in (
        (
            'missing',
            'missing_cpu_ratio',
            'Largest part of its CPU time that windows cost any VM.',
        ),
        ('played', 'windows_played_ratio', 'Part of the time with windows.'),
    ):
        gauge = core.GaugeMetricFamily(PREFIX + name, text)
        if key in shares:
            gauge.add_metric([], shares[key])
        yield gauge


def _part_health(health: Mapping[str, Any]) -> core.Metric:
    """Return whether each part of the agent is healthy."""
    gauge = core.GaugeMetricFamily(
        f'{PREFIX}part_healthy',
        '0 while a part of the agent is off, or works for some VMs only.',
        labels=['part'],
    )
    for name, part in health.get('parts', {}).items():
        gauge.add_metric([name], float(part['healthy']))
    return gauge


def _uplinks(
    publishing: Mapping[str, Any], claimed: Mapping[str, Any]
) -> Iterator[core.Metric]:
    """Yield the uplinks, and whether Placement has them.

    There is no sample if publishing is off, and none of Placement's once a
    dry run has discovered the uplinks.
    """
    gauge = core.GaugeMetricFamily(
        f'{PREFIX}uplinks_published',
        '1 while Placement has the uplinks as they are.',
    )
    state = publishing.get('state', 'off')
    if state not in ('off', publish_worker.DryPublishWorker.DONE):
        done = state == publish_worker.PublishWorker.DONE
        gauge.add_metric([], float(done))
    yield gauge
    slots = core.GaugeMetricFamily(
        f'{PREFIX}uplink_slots',
        'Slots of each uplink that VMs of this host use, and that are free.',
        labels=['bridge', 'nic', 'state'],
    )
    link = core.GaugeMetricFamily(
        f'{PREFIX}uplink_up',
        '1 while the link of an uplink is up.',
        labels=['bridge', 'nic'],
    )
    used = Counter(
        (uplink.bridge, uplink.nic)
        for uplinks in claimed.values()
        for uplink in uplinks
    )
    for uplink in publishing.get('uplinks') or ():
        names = [uplink['bridge'], uplink['nic']]
        taken = used[uplink['bridge'], uplink['nic']]
        slots.add_metric([*names, 'used'], taken)
        slots.add_metric([*names, 'free'], max(0, uplink['slots'] - taken))
        link.add_metric(names, float(uplink['up']))
    yield slots
    yield link


def _peers(peers: Mapping[str, Any]) -> Iterator[core.Metric]:
    """Yield the message bus's metrics; no samples without a bus."""
    is_on = peers.get('state', 'off') != 'off'
    gauge = core.GaugeMetricFamily(
        f'{PREFIX}bus_up',
        '1 while messages sent over the message bus arrive.',
    )
    if is_on:
        gauge.add_metric([], float(peers['state'] == 'up'))
    yield gauge
    echo: Rows = (
        (
            'echo_us',
            'bus_echo_seconds',
            'Last measured time of a message to itself over the message bus.',
        ),
    )
    values = peers if is_on else {}
    yield from _rows(core.GaugeMetricFamily, echo, values)
    yield from _rows(core.CounterMetricFamily, PEER_COUNTERS, values)


def _slots(slots: Mapping[str, Any]) -> Iterator[core.Metric]:
    """Yield the slots of virtual clusters that run on several hosts."""
    agreed = core.GaugeMetricFamily(
        f'{PREFIX}cluster_slot_agreed',
        '1 while a virtual cluster has slots on all of its hosts.',
        labels=['cluster'],
    )
    share = core.GaugeMetricFamily(
        f'{PREFIX}cluster_slot_share_ratio',
        'Part of all slots that a virtual cluster has.',
        labels=['cluster'],
    )
    is_on = slots.get('state', 'off') != 'off'
    clusters = slots.get('clusters') or {}
    for cluster, one in clusters.items() if is_on else ():
        if not one['hosts']:
            continue
        slot = one['slot']
        agreed.add_metric([cluster], float(slot is not None))
        if slot is not None:
            share.add_metric([cluster], frame.part(slot['slots']))
    yield agreed
    yield share
    offset: Rows = (
        (
            'clock_offset_us',
            'clock_offset_seconds',
            "By how much this host's clock is ahead of those of its clusters' "
            'other hosts.',
        ),
    )
    yield from _rows(core.GaugeMetricFamily, offset, slots)
