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

from nova_vhpc.agent import control_rpc, peer_bus
from nova_vhpc.agent import peer_protocol as protocol
from nova_vhpc.agent.messaging import get_transport, hush
from nova_vhpc.control.model import ClusterPlan, PeerView

LOG = logging.getLogger(__name__)

_MAX_BACK_OFF_S = 5.0
_NO_URL = 'rabbit://'


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class Peers:
    """This host's part in all its virtual clusters.

    :param conf: with the group ``vhpc_peers`` and oslo.messaging's own.
    :param host: name of the agent's host, unique on the bus.
    :param control: what control calls are passed to; None for none.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        control: control_rpc.Control | None = None,
    ) -> None:
        self._conf = conf
        self._options = conf.vhpc_peers
        self._host = host
        self._control = control
        self._timers = protocol.Timers.for_lease(
            int(self._options.lease * 1_000_000)
        )
        self._protocol = protocol.Protocol(
            host, time.time_ns() // 1000, self._timers
        )
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
        self._state = 'off'
        self._detail = ''
        self._failures = 0
        self._sent = 0
        self._received = 0

    def start(self) -> None:
        """Start talking, unless that is off or there is no bus."""
        if self._thread is not None or not self._options.enabled:
            return
        hush()
        transport = get_transport(self._conf)
        if self._conf.transport_url == _NO_URL:
            # Nobody runs agents against a broker on localhost by default.
            transport.cleanup()
            return
        self._transport = transport
        self._stop.clear()
        self._enter('starting', '')
        self._bus = peer_bus.PeerBus(
            transport, self._host, self._hear, self._options.version_cap
        )
        self._bus.start()
        if self._control is not None:
            self._control_server = control_rpc.ControlServer(
                transport, self._host, self._control
            )
            self._control_server.start()
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
        self._enter('off', '')

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
            'state': self._state,
            'detail': self._detail,
            'sent': self._sent,
            'received': self._received,
            'listening': sorted(bus.subscribed) if bus else [],
            'clusters': {
                cluster: {
                    'phase': protocol.group_phase(
                        self._protocol, state, now_us
                    ).value,
                    'own': state.own.word.phase.value if state.own else None,
                    'hosts': {
                        host: {
                            'phase': heard.word.phase.value,
                            'min_slice_us': heard.word.min_slice_us,
                            'lease_s': round(
                                (heard.until_us - now_us) / 1e6, 1
                            ),
                        }
                        for host, heard in sorted(state.heard.items())
                        if heard.until_us > now_us
                    },
                }
                for cluster, state in sorted(states.items())
            },
        }

    def _run(self) -> None:
        decided = self._decided
        fresh = True
        while not self._stop.is_set():
            try:
                self._step(decided if fresh else None)
            except peer_bus.BusError as error:
                self._failures += 1
                if self._enter('down', str(error)):
                    LOG.warning(
                        'The message bus is away; each host decides by '
                        'itself until it is back: %s',
                        error,
                    )
            except Exception:
                # A daemon's thread must outlive what nobody thought of.
                self._failures += 1
                if self._enter('failed', 'see the log'):
                    LOG.exception('Talking to peers failed; trying again')
            if self._failures:
                self._stop.wait(
                    min(_MAX_BACK_OFF_S, 0.25 * 2 ** min(self._failures, 6))
                )
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
        bus = self._bus
        if bus is None:
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
        for position, message in enumerate(outbox):
            try:
                bus.send(message)
            except peer_bus.BusError:
                self._unsent(outbox[position:])
                raise
            self._sent += 1
        if outbox:
            self._failures = 0
            if self._enter('up', ''):
                LOG.info('The message bus carries phases to other hosts')

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
        if self._state != 'up' or self._bus is None:
            return
        try:
            for cluster, state in list(self._states.items()):
                message = self._protocol.leave(state, cluster, _now_us())[1]
                if message is not None:
                    self._bus.send(message)
        except peer_bus.BusError as error:
            LOG.debug('Peers will notice by our leases: %s', error)

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

    def _enter(self, state: str, detail: str) -> bool:
        changed = state != self._state
        self._state, self._detail = state, detail
        return changed
