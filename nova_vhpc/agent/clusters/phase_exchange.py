# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Exchanges the phases of virtual clusters with other hosts.

The tick hands its decisions to :meth:`PhaseExchange.publish` and reads
:meth:`PhaseExchange.views`; both only access memory. One thread runs the
protocol and sends, another one listens. While the broker is away each host
decides by itself; the protocol recovers when the broker is back.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent import periodic
from nova_vhpc.agent.clusters import (
    bus,
    bus_health,
    names,
    protocol,
    slot_exchange,
)
from nova_vhpc.agent.clusters.groups import Groups
from nova_vhpc.agent.rpc import control as control_rpc
from nova_vhpc.agent.rpc.transport import NO_URL, get_transport, hush
from nova_vhpc.control.model import ClusterPlan, PeerView
from nova_vhpc.control.slots import protocol as slots

LOG = logging.getLogger(__name__)

_MAX_BACKOFF_S = 5.0


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def _no_hosts(cluster: str) -> Collection[str]:
    return ()


class PhaseExchange:
    """This host's part in the exchange, for all of its virtual clusters.

    :param conf: with the group ``vhpc_peers`` and oslo.messaging's own.
    :param host: name of the agent's host, unique on the bus.
    :param control: handler of control calls.
    :param groups: knows the clusters' projects and hosts by Nova; None if
        nobody does.
    :param silent: receive only, as in a dry run, because statements move
        servers on other hosts.
    :ivar slots: the agreement on slots, over the same bus.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        control: control_rpc.Control,
        groups: Groups | None = None,
        *,
        silent: bool = False,
    ) -> None:
        self._conf = conf
        self._silent = silent
        self._options = conf.vhpc_peers
        self._host = host
        self._control = control
        self._timers = protocol.Timers.for_lease(
            int(self._options.lease * 1_000_000)
        )
        self._boot = time.time_ns() // 1000
        if groups is None:
            self._limit = names.ClusterLimit()
            hosts_of: Callable[[str], Collection[str]] = _no_hosts
        else:
            self._limit = names.ClusterLimit(groups.project_of)
            hosts_of = groups.hosts_of
        self._protocol = protocol.Protocol(
            host, self._boot, self._timers, hosts_of
        )
        self.slots = slot_exchange.SlotExchange(
            slots.SlotProtocol(
                host, self._boot, self._timers.lease_us, hosts_of
            ),
            conf.vhpc_control.gang_window_us,
            silent=silent,
        )
        self._lock = threading.Lock()
        self._states: dict[str, protocol.State] = {}
        self._decisions: Mapping[str, ClusterPlan] | None = None
        self._absent_us: dict[str, int] = {}
        self._bus: bus.PeerBus | None = None
        self._control_server: control_rpc.ControlServer | None = None
        self._health = bus_health.BusHealth(
            self._timers.renew_us, self._timers.lease_us
        )
        self._echo_sender: bus_health.EchoSender | None = None
        self._thread = periodic.PeriodicThread(
            'vhpc-peers',
            self._run_once,
            lambda: self._timers.gap_us / 2e6,
            _MAX_BACKOFF_S,
            on_stop=self._withdraw_statements,
        )
        # A thread of its own, because the other one may hang while it sends.
        self._watch_thread = periodic.PeriodicThread(
            'vhpc-peers-watch',
            lambda: self._health.watch(_now_us()),
            lambda: self._timers.gap_us / 1e6,
        )
        self._sent = 0
        self._received = 0
        self._other_agent_us: int | None = None

    def start(self) -> None:
        """Start, unless the option is off or there is no ``transport_url``."""
        if self._thread.started or not self._options.enabled:
            return
        hush()
        transport = get_transport(self._conf)
        if self._conf.transport_url == NO_URL:
            transport.cleanup()
            return
        self._health.start()
        self._bus = bus.PeerBus(
            transport,
            self._host,
            self._receive,
            self.slots.receive,
        )
        self._bus.start()
        self._control_server = control_rpc.ControlServer(
            transport,
            self._host,
            self._control,
            bus_health.EchoEndpoint(
                self._boot, self._receive_echo, self._note_other_agent
            ),
        )
        self._control_server.start()
        self._echo_sender = bus_health.EchoSender(
            transport, control_rpc.TOPIC, self._host, self._boot
        )
        self._watch_thread.start()
        self._thread.start()
        self.slots.start(self._bus)

    def stop(self, timeout_s: float = 2.0) -> None:
        """Withdraw this host's statements if the broker answers, and stop.

        :param timeout_s: longest time to wait for the broker, in seconds.
        """
        if not self._thread.started:
            return
        self.slots.stop(timeout_s / 2)
        self._thread.stop(timeout_s / 2)
        self._watch_thread.stop(0.0)
        if self._control_server is not None:
            self._control_server.stop()
        if self._bus is not None:
            self._bus.stop()
        self._health.stop()

    def publish(self, decisions: Mapping[str, ClusterPlan]) -> None:
        """Publish a tick's decisions on all clusters with members here.

        Never waits for the broker. The statement on a cluster that is missing
        for a lease is withdrawn.

        :param decisions: phase and smallest time slice, by cluster.
        """
        with self._lock:
            self._decisions = dict(decisions)
        self._thread.wake()

    def views(self) -> Mapping[str, PeerView]:
        """Return the other hosts' statements, by cluster.

        Never waits for the broker.
        """
        now_us = _now_us()
        with self._lock:
            states = dict(self._states)
        return {
            cluster: self._trim(self._protocol.view(state, now_us))
            for cluster, state in states.items()
            if state.own is not None
        }

    def status(self) -> dict[str, Any]:
        """Return bus state, counters and statements, for the status socket."""
        now_us = _now_us()
        with self._lock:
            states = dict(self._states)
        return {
            'state': self._health.state,
            'detail': self._detail(now_us),
            'echo_us': self._health.echo_us,
            'sent': self._sent,
            'received': self._received,
            'listening': sorted(self._bus.subscribed) if self._bus else [],
            'clusters': {
                cluster: self._cluster_status(state, now_us)
                for cluster, state in sorted(states.items())
            },
            'slots': self.slots.status(),
        }

    def _detail(self, now_us: int) -> str:
        """Return what is wrong, the cause before its consequences."""
        details = [
            self._health.detail,
            self._other_agent(now_us),
            self._limit.detail,
        ]
        if self._bus is not None:
            details.insert(0, self._bus.detail)
        if self._control_server is not None:
            details.insert(0, self._control_server.detail)
        return next(filter(None, details), '')

    def _cluster_status(
        self, state: protocol.State, now_us: int
    ) -> dict[str, Any]:
        phase = protocol.group_phase(self._protocol, state, now_us)
        return {
            'phase': phase.value,
            'own': state.own.statement.phase.value if state.own else None,
            'hosts': {
                host: {
                    'phase': lease.statement.phase.value,
                    'min_slice_us': lease.statement.min_slice_us,
                    'lease_s': round((lease.until_us - now_us) / 1e6, 1),
                }
                for host, lease in sorted(state.received.items())
                if now_us < lease.until_us
            },
        }

    def _run_once(self) -> None:
        """Run the protocol once, and note what it shows of the bus.

        :raises RetryLater: a message could not be sent.
        """
        try:
            self._exchange()
        except bus.BusError as error:
            self._health.failed(_now_us(), str(error))
            raise periodic.RetryLater from error
        except Exception as error:
            self._health.failed(_now_us(), repr(error))
            raise

    def _exchange(self) -> None:
        """Take new decisions and send what the protocol wants sent.

        :raises BusError: a message could not be sent; it and the messages
            after it will be made again.
        """
        if self._bus is None or self._echo_sender is None:
            return
        outbox = self._take_decisions()
        now_us = _now_us()
        with self._lock:
            for cluster, state in list(self._states.items()):
                state, message = self._protocol.tick(state, cluster, now_us)
                self._states[cluster] = state
                if message is not None:
                    outbox.append(message)
            self._bus.subscribe(self._states.keys())
        if self._silent:
            outbox.clear()
        for position, message in enumerate(outbox):
            self._health.sending(_now_us())
            try:
                self._bus.send(message)
            except bus.BusError:
                self._mark_unsent(outbox[position:])
                raise
            self._health.sent()
            self._sent += 1
        now_us = _now_us()
        if self._health.is_echo_due(now_us):
            self._health.sending(now_us)
            self._echo_sender.send(now_us)
            self._health.sent(now_us)

    def _take_decisions(self) -> list[protocol.Message]:
        """Apply the decisions published since the last run.

        :returns: messages to send.
        """
        outbox: list[protocol.Message] = []
        now_us = _now_us()
        with self._lock:
            decisions, self._decisions = self._decisions, None
            if decisions is None:
                # Only a controller that decides may renew the statements.
                return outbox
            chosen = self._limit.choose(decisions, self._states)
            for cluster in chosen:
                statement = decisions[cluster]
                if not self._options.share_min_slice:
                    statement = ClusterPlan(statement.phase)
                self._absent_us.pop(cluster, None)
                state, message = self._protocol.decide(
                    self._states.get(cluster, protocol.State()),
                    cluster,
                    statement,
                    now_us,
                )
                self._states[cluster] = state
                if message is not None:
                    outbox.append(message)
            for cluster in self._states.keys() - chosen:
                # A lease is kept, so that a restart of the only member does
                # not delete the queue and declare it again.
                since_us = self._absent_us.setdefault(cluster, now_us)
                if now_us - since_us >= self._timers.lease_us:
                    del self._absent_us[cluster]
                    state, message = self._protocol.leave(
                        self._states.pop(cluster), cluster, now_us
                    )
                    if message is not None:
                        outbox.append(message)
        return outbox

    def _mark_unsent(self, messages: list[protocol.Message]) -> None:
        with self._lock:
            for message in messages:
                state = self._states.get(message.cluster)
                if state is not None:
                    self._states[message.cluster] = self._protocol.unsent(
                        state
                    )

    def _withdraw_statements(self) -> None:
        if self._silent or self._health.state == 'down' or self._bus is None:
            return
        try:
            for cluster, state in list(self._states.items()):
                message = self._protocol.leave(state, cluster, _now_us())[1]
                if message is not None:
                    self._bus.send(message)
        except bus.BusError as error:
            LOG.debug(
                'Statements not withdrawn, their leases will run out: %s',
                error,
            )

    def _receive_echo(self, echo_us: int) -> None:
        self._health.received(echo_us, _now_us())

    def _note_other_agent(self) -> None:
        now_us = _now_us()
        is_known = self._other_agent(now_us) != ''
        self._other_agent_us = now_us
        if not is_known:
            LOG.warning(
                'Phases may not reach the right host: %s',
                self._other_agent(now_us),
            )

    def _other_agent(self, now_us: int) -> str:
        """Return that another agent uses this host's name; empty if none."""
        heard_us = self._other_agent_us
        if heard_us is None or now_us - heard_us > 3 * self._timers.lease_us:
            return ''
        return (
            f'another agent on the message bus uses the name {self._host} of '
            'this host; set [vhpc_agent]host of one of them'
        )

    def _receive(self, message: protocol.Message) -> None:
        now_us = _now_us()
        with self._lock:
            state = self._states.get(message.cluster)
            if state is None:
                return
            self._received += message.host != self._host
            self._states[message.cluster] = self._protocol.receive(
                state, message, now_us
            )

    def _trim(self, view: PeerView) -> PeerView:
        return view if self._options.share_min_slice else PeerView(view.io)
