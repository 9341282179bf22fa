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


"""Phases of virtual clusters between hosts, and control calls.

The tick gives its decisions to :meth:`Peers.publish` and takes
:meth:`Peers.views`; both only touch memory. A thread runs the protocol and
sends, another one listens. With the broker away each host decides by
itself, and all heals when it is back.
"""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.clusters import (
    bus as peer_bus,
)
from nova_vhpc.agent.clusters import (
    bus_health,
    peer_echo,
    peer_status,
    protocol,
)
from nova_vhpc.agent.rpc import control as control_rpc
from nova_vhpc.agent.rpc.transport import NO_URL, get_transport, hush
from nova_vhpc.control.model import ClusterPlan, PeerView

LOG = logging.getLogger(__name__)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class Peers:
    """This host's part in all its virtual clusters.

    :param conf: with the group ``vhpc_peers`` and oslo.messaging's own.
    :param host: name of the agent's host, unique on the bus.
    :param control: what control calls are passed to.
    :param silent: listen only, as what is said moves VMs on other hosts.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        control: control_rpc.Control,
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
        self._protocol = protocol.Protocol(host, self._boot, self._timers)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._states: dict[str, protocol.State] = {}
        self._decided: Mapping[str, ClusterPlan] = {}
        self._absent_us: dict[str, int] = {}
        self._bus: peer_bus.PeerBus | None = None
        self._transport: Any = None
        self._control_server: control_rpc.ControlServer | None = None
        self._thread: threading.Thread | None = None
        self._health = bus_health.Health(
            self._timers.renew_us, self._timers.lease_us
        )
        self._echo: peer_echo.Caller | None = None
        self._sent = 0
        self._received = 0

    def start(self) -> None:
        """Start talking, unless that is off or there is no bus."""
        if self._thread is not None or not self._options.enabled:
            return
        hush()
        transport = get_transport(self._conf)
        if self._conf.transport_url == NO_URL:
            transport.cleanup()
            return
        self._transport = transport
        self._stop.clear()
        self._health.start()
        self._bus = peer_bus.PeerBus(
            transport, self._host, self._hear, self._options.version_cap
        )
        self._bus.start()
        self._control_server = control_rpc.ControlServer(
            transport,
            self._host,
            self._control,
            peer_echo.EchoEndpoint(self._boot, self._hear_echo),
        )
        self._control_server.start()
        self._echo = peer_echo.Caller(
            transport, control_rpc.TOPIC, self._host, self._boot
        )
        threading.Thread(
            target=self._watch, name='vhpc-peers-watch', daemon=True
        ).start()
        self._thread = threading.Thread(
            target=self._run, name='vhpc-peers', daemon=True
        )
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Take back what was said, as far as the broker allows, and end."""
        if self._thread is None:
            return
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout_s)
        self._thread = None
        if self._control_server is not None:
            self._control_server.stop()
        if self._bus is not None:
            self._bus.stop()
        self._health.stop()

    def publish(self, decided: Mapping[str, ClusterPlan]) -> None:
        """What this tick decided, for each cluster with members here.

        Never blocks. Clusters that are missing for a lease are left.
        """
        self._decided = dict(decided)
        self._wake.set()

    def views(self) -> Mapping[str, PeerView]:
        """What the other hosts say, by cluster. Never blocks."""
        now_us = _now_us()
        with self._lock:
            states = dict(self._states)
        return {
            cluster: self._trim(self._protocol.view(state, now_us))
            for cluster, state in states.items()
            if state.own is not None
        }

    def status(self) -> dict[str, Any]:
        """What is heard and said, in values that JSON takes."""
        now_us = _now_us()
        with self._lock:
            states = dict(self._states)
        bus = self._bus
        return {
            'state': self._health.state,
            'detail': self._health.detail,
            'echo_us': self._health.echo_us,
            'sent': self._sent,
            'received': self._received,
            'listening': sorted(bus.subscribed) if bus else [],
            'clusters': peer_status.clusters(self._protocol, states, now_us),
        }

    def _run(self) -> None:
        decided = self._decided
        fresh = True
        while not self._stop.is_set():
            try:
                self._step(decided if fresh else None)
            except peer_bus.BusError as error:
                self._health.failed(_now_us(), str(error) or repr(error))
            except Exception as error:
                # A daemon's thread must outlive what nobody thought of.
                if self._health.state != 'down':
                    LOG.exception('Talking to peers failed; trying again')
                self._health.failed(_now_us(), repr(error))
            if self._health.back_off_s:
                self._stop.wait(self._health.back_off_s)
            fresh = self._wake.wait(self._timers.gap_us / 2e6)
            self._wake.clear()
            decided = self._decided
        self._say_goodbye()

    def _step(self, decided: Mapping[str, ClusterPlan] | None) -> None:
        """Run the protocol once and send what it wants sent.

        :param decided: None when the controller has not decided anew.
        :raises BusError: when a message could not be sent; it and those
            behind it will be sent anew.
        """
        bus, echo = self._bus, self._echo
        if bus is None or echo is None:
            return
        outbox = self._decide(decided) if decided is not None else []
        now_us = _now_us()
        with self._lock:
            for cluster, state in list(self._states.items()):
                state, message = self._protocol.tick(state, cluster, now_us)
                self._states[cluster] = state
                if message is not None:
                    outbox.append(message)
            bus.subscribe(self._states.keys())
        if self._silent:
            outbox.clear()
        for position, message in enumerate(outbox):
            self._health.sending(_now_us())
            try:
                bus.send(message)
            except peer_bus.BusError:
                self._unsent(outbox[position:])
                raise
            self._health.sent()
            self._sent += 1
        now_us = _now_us()
        if self._health.due(now_us):
            self._health.sending(now_us)
            echo.call(now_us)
            self._health.sent(now_us)

    def _watch(self) -> None:
        # A thread of its own: the one that sends may hang in sending.
        while not self._stop.wait(self._timers.gap_us / 1e6):
            self._health.watch(_now_us())

    def _decide(
        self, decided: Mapping[str, ClusterPlan]
    ) -> list[protocol.Message]:
        outbox: list[protocol.Message] = []
        now_us = _now_us()
        with self._lock:
            for cluster, word in decided.items():
                if not self._options.share_min_slice:
                    word = ClusterPlan(word.phase)
                self._absent_us.pop(cluster, None)
                state, message = self._protocol.decide(
                    self._states.get(cluster, protocol.State()),
                    cluster,
                    word,
                    now_us,
                )
                self._states[cluster] = state
                if message is not None:
                    outbox.append(message)
            for cluster in self._states.keys() - decided.keys():
                # A domain that restarts is not worth a new queue.
                since_us = self._absent_us.setdefault(cluster, now_us)
                if now_us - since_us >= self._timers.lease_us:
                    del self._absent_us[cluster]
                    state, message = self._protocol.leave(
                        self._states.pop(cluster), cluster, now_us
                    )
                    if message is not None:
                        outbox.append(message)
        return outbox

    def _unsent(self, messages: list[protocol.Message]) -> None:
        with self._lock:
            for message in messages:
                state = self._states.get(message.cluster)
                if state is not None:
                    self._states[message.cluster] = self._protocol.unsent(
                        state
                    )

    def _say_goodbye(self) -> None:
        if self._silent or self._health.state == 'down' or self._bus is None:
            return
        try:
            for cluster, state in list(self._states.items()):
                message = self._protocol.leave(state, cluster, _now_us())[1]
                if message is not None:
                    self._bus.send(message)
        except peer_bus.BusError as error:
            LOG.debug('Peers will notice by our leases: %s', error)

    def _hear_echo(self, asked_us: int) -> None:
        self._health.heard(asked_us, _now_us())

    def _hear(self, message: protocol.Message) -> None:
        now_us = _now_us()
        with self._lock:
            state = self._states.get(message.cluster)
            if state is None:
                return
            self._received += message.host != self._host
            self._states[message.cluster] = self._protocol.hear(
                state, message, now_us
            )

    def _trim(self, view: PeerView) -> PeerView:
        return view if self._options.share_min_slice else PeerView(view.io)
