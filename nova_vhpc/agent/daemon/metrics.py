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

"""Prometheus metrics, made from the status document at each scrape."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
from prometheus_client import core, registry

from nova_vhpc import http_limits
from nova_vhpc.agent import periodic
from nova_vhpc.agent.daemon import tick
from nova_vhpc.agent.uplinks import dry_run, publish_worker

LOG = logging.getLogger(__name__)

MAX_BACKOFF_S = 10.0
"""Longest time between two attempts to take the port, in seconds."""

PREFIX = 'nova_vhpc_'
TICK_BUCKETS_S = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip

Rows = tuple[tuple[str, str, str], ...]
"""Key in the status document, name of the metric, and its help text."""

VM_GAUGES: Rows = (
    ('slice_us', 'slice_microseconds', 'Time slice that was decided.'),
    ('period_us', 'period_microseconds', 'vCPU period in force.'),
    ('quota_us', 'quota_microseconds', 'vCPU quota in force; -1: none.'),
    ('shares', 'cpu_shares', 'Weight in force.'),
    (
        'sync_latency_us',
        'sync_latency_microseconds',
        'Synchronisation latency per control period.',
    ),
    ('io_events', 'io_events', 'I/O events per 100 ms.'),
    ('io_phase', 'io_phase', '1 in the I/O phase.'),
    ('quarantined', 'quarantined', '1 in quarantine.'),
    (
        'received',
        'received_ratio',
        'CPU time received, by what stock Linux would give.',
    ),
)
VM_COUNTERS: Rows = (
    ('writes', 'writes', 'Writes to the VM.'),
    ('moves', 'moves', 'Writes that moved vCPUs to other CPUs.'),
    ('failures', 'failures', 'Writes that failed.'),
)
AGENT_COUNTERS: Rows = (
    ('ticks', 'ticks', 'Control periods.'),
    ('overruns', 'tick_overruns', 'Control periods that were missed.'),
    ('tick_failures', 'tick_failures', 'Ticks that ended in an error.'),
    (
        'foreign_changes',
        'foreign_changes',
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


class StatusCollector(registry.Collector):
    """Turns the status document into metrics at each scrape.

    The tick does no work for it.

    :param status: returns the status document.
    """

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[core.Metric]:
        """Yield all metrics but the tick's histogram."""
        status = self._status()
        agent = status['agent']
        for kind, rows in (
            (core.CounterMetricFamily, AGENT_COUNTERS),
            (core.GaugeMetricFamily, AGENT_GAUGES),
        ):
            for key, name, text in rows:
                metric = kind(PREFIX + name, text)
                metric.add_metric([], float(agent[key]))
                yield metric
        yield from _windows(status.get('windows') or {})
        yield _part_health(status.get('health') or {})
        yield _published(status.get('publishing') or {})
        yield from _peers(status.get('peers') or {})
        vms = [{**vm, 'io_phase': vm['phase'] == 'io'} for vm in status['vms']]
        count = core.GaugeMetricFamily(
            PREFIX + 'vms', 'VMs by workload.', labels=['workload']
        )
        for workload in ('parallel', 'latency', 'general'):
            count.add_metric(
                [workload], sum(vm['workload'] == workload for vm in vms)
            )
        yield count
        for kind, rows in (
            (core.GaugeMetricFamily, VM_GAUGES),
            (core.CounterMetricFamily, VM_COUNTERS),
        ):
            for key, name, text in rows:
                metric = kind(
                    f'{PREFIX}vm_{name}', text, labels=['uuid', 'name']
                )
                for vm in vms:
                    if vm[key] is not None:
                        metric.add_metric(
                            [vm['uuid'], vm['name']], float(vm[key])
                        )
                yield metric


def _windows(windows: dict[str, Any]) -> Iterator[core.Metric]:
    """Yield what gang windows cost, and for how long they are played."""
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


def _part_health(health: dict[str, Any]) -> core.Metric:
    """Return whether each part of the agent is healthy."""
    gauge = core.GaugeMetricFamily(
        PREFIX + 'part_healthy',
        '0 while a part of the agent is off, or works for some VMs only.',
        labels=['part'],
    )
    for name, part in health.get('parts', {}).items():
        gauge.add_metric([name], float(part['healthy']))
    return gauge


def _published(status: dict[str, Any]) -> core.Metric:
    """Return the metric that says whether Placement has the uplinks.

    It has no sample if publishing is off, and none once a dry run has
    discovered the uplinks.
    """
    gauge = core.GaugeMetricFamily(
        PREFIX + 'uplinks_published',
        '1 while Placement has the uplinks as they are.',
    )
    state = status.get('state', 'off')
    if state not in ('off', dry_run.DryPublishWorker.DONE):
        done = state == publish_worker.PublishWorker.DONE
        gauge.add_metric([], float(done))
    return gauge


def _peers(peers: dict[str, Any]) -> Iterator[core.Metric]:
    """Yield the message bus's metrics; no samples without a bus."""
    on = peers.get('state', 'off') != 'off'
    gauge = core.GaugeMetricFamily(
        PREFIX + 'bus_up', '1 while messages sent over the message bus arrive.'
    )
    if on:
        gauge.add_metric([], float(peers['state'] == 'up'))
    yield gauge
    gauge = core.GaugeMetricFamily(
        PREFIX + 'bus_echo_microseconds',
        'Last measured time of a message to itself over the message bus.',
    )
    if on and peers['echo_us'] is not None:
        gauge.add_metric([], peers['echo_us'])
    yield gauge
    slots = peers.get('slots') or {}
    gauge = core.GaugeMetricFamily(
        PREFIX + 'slots_agreed',
        'Virtual clusters of this host with slots that its hosts agreed on.',
    )
    if slots.get('state', 'off') != 'off':
        gauge.add_metric(
            [],
            sum(one['slot'] is not None for one in slots['clusters'].values()),
        )
    yield gauge
    gauge = core.GaugeMetricFamily(
        PREFIX + 'clock_offset_microseconds',
        "By how much this host's clock is ahead of those of its clusters' "
        'other hosts.',
    )
    if slots.get('clock_offset_us') is not None:
        gauge.add_metric([], slots['clock_offset_us'])
    yield gauge
    for key, name, text in PEER_COUNTERS:
        counter = core.CounterMetricFamily(PREFIX + name, text)
        if on:
            counter.add_metric([], peers[key])
        yield counter


class Handler(http_limits.LimitedHandler):
    """Answers one scraper. Few hosts have more than one."""

    clients = http_limits.Clients(most=16, receive_s=10.0)


class Metrics:
    """The metrics endpoint, and the histogram of tick durations.

    :param status: returns the status document.
    """

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(StatusCollector(status))
        self._ticks = prometheus_client.Histogram(
            f'{PREFIX}tick_seconds',
            'Time from the start of a tick to its end.',
            buckets=TICK_BUCKETS_S,
            registry=self.registry,
        )
        self._server: Any = None
        self._address = ('', 0)
        self._state = 'off'
        self._detail = ''
        self._thread = periodic.PeriodicThread(
            'metrics', self._listen, lambda: MAX_BACKOFF_S, MAX_BACKOFF_S
        )

    def observe(self, result: tick.TickResult) -> None:
        """Add the duration of a tick to the histogram."""
        self._ticks.observe(result.took_us / 1e6)

    def start(self, host: str, port: int) -> None:
        """Serve the metrics, in a thread, as soon as the port can be had.

        Any local user may take the port first, so this must not keep the
        agent from running.

        :param host: address to listen on.
        :param port: TCP port.
        """
        self._address = host, port
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self._thread.stop(1.0)
        self._state = 'off'
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def status(self) -> dict[str, Any]:
        """Return whether the metrics are served, for the status document."""
        return {'state': self._state, 'detail': self._detail}

    def _listen(self) -> None:
        """Take the port.

        :raises RetryLater: it cannot be had.
        """
        host, port = self._address
        try:
            self._server, _ = prometheus_client.start_http_server(
                port, host, registry=self.registry
            )
        except OSError as error:
            self._detail = (
                f'[vhpc_agent]metrics_host = {host}, metrics_port = {port}: '
                f"{error.strerror or error}; allowed: this host's own "
                'address and a free port, or port 0 for none'
            )
            if self._state != 'down':
                self._state = 'down'
                LOG.warning(
                    'No metrics are served, will retry: %s', self._detail
                )
            raise periodic.RetryLater from error
        self._server.RequestHandlerClass = Handler
        self._server.service_actions = Handler.clients.expire
        if self._state == 'down':
            LOG.info('Metrics are served')
        self._state, self._detail = 'up', ''
        self._thread.stop(0.0)
