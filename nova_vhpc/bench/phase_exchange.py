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


"""Many agents' phases through one real RabbitMQ: messages and lag.

Protocol, messages and sending are the agent's own; the controller behind
them is a coin. Every simulated agent has a fanout queue of its own, as
agents have; but few connections serve all of them, or the bench's threads
would be what is measured. The broker is started for the run, or given by
``--url``.
"""

import argparse
import contextlib
import importlib
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.clusters import bus as peer_bus
from nova_vhpc.agent.clusters import protocol
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import get_transport, hush
from nova_vhpc.bench.common import cli_types, outputs
from nova_vhpc.control.model import ClusterPlan, Phase
from nova_vhpc.testbed import rabbitmq

HELP = 'phases of many simulated agents through one real RabbitMQ'

# Half of it has type hints, the wrong ones.
kombu: Any = importlib.import_module('kombu')

_STEP_S = 0.1
_CONNECTIONS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``nova-vhpc-bench peers``."""
    for name, default, about in (
        ('--agents', 500, 'hosts that are simulated'),
        ('--cluster-hosts', 8, 'hosts of each virtual cluster'),
    ):
        cli_types.add_integer(parser, name, default, about)
    cli_types.add_seconds(
        parser,
        '--change-seconds',
        5.0,
        'mean time between two changes of phase on one host',
        least=0.001,
    )
    cli_types.add_seconds(
        parser,
        '--lease',
        6.0,
        'how long what a host says is believed',
        least=0.001,
    )
    cli_types.add_seconds(
        parser, '--seconds', 20.0, 'length of the measurement'
    )
    cli_types.add_integer(
        parser, '--seed', 1, 'of the changes of phase', least=0
    )
    parser.add_argument(
        '--url', type=_broker, help='use this broker, start none'
    )
    parser.add_argument(
        '--json', type=Path, metavar='FILE', help='write all figures'
    )


def _broker(text: str) -> str:
    """Argparse type of the broker's URL."""
    with contextlib.suppress(ValueError):
        url = urllib.parse.urlsplit(text)
        # Asking for a wrong port complains of it.
        if url.scheme == 'rabbit' and url.hostname and url.port != 0:
            return text
    raise argparse.ArgumentTypeError(
        f"'{text}' is not rabbit://USER:PASSWORD@HOST:PORT/"
    )


class SimulatedAgent:
    """One host: the agent's protocol, and a coin for a controller."""

    def __init__(
        self, number: int, cluster: str, bus: peer_bus.PeerBus, lease_us: int
    ) -> None:
        self.cluster = cluster
        self.host = f'bench{number}'
        self._lock = threading.Lock()
        self._state = protocol.State()
        self._word = protocol.QUIET
        self._rules = protocol.Protocol(
            self.host, 1, protocol.Timers.for_lease(lease_us)
        )
        self._bus = bus
        self.sent = 0

    def step(self, now_us: int, toggle: bool) -> None:
        """What the agent's thread does after a tick."""
        if toggle:
            self._word = (
                protocol.QUIET
                if self._word.phase is Phase.IO
                else ClusterPlan(Phase.IO)
            )
        with self._lock:
            self._state, decided = self._rules.decide(
                self._state, self.cluster, self._word, now_us
            )
            self._state, again = self._rules.tick(
                self._state, self.cluster, now_us
            )
        for message in (decided, again):
            if message is not None:
                self._bus.send(message)
                self.sent += 1

    def hear(self, message: protocol.Message, now_us: int) -> None:
        """What the agent does with a message."""
        with self._lock:
            self._state = self._rules.receive(self._state, message, now_us)


class Ears(threading.Thread):
    """One connection with the fanout queues of many agents.

    :param words: where (sequence number, age in us) of each message goes.
    """

    def __init__(
        self,
        url: str,
        agents: list[SimulatedAgent],
        words: list[tuple[int, int]],
    ) -> None:
        super().__init__(daemon=True)
        self._words = words
        self._ended = False
        self._connection = kombu.Connection(
            url.replace('rabbit://', 'amqp://').rstrip('/') + '//'
        )
        channel = self._connection.channel()
        for agent in agents:
            self._consume(channel, agent)

    def run(self) -> None:
        """Deliver until ended."""
        while not self._ended:
            with contextlib.suppress(TimeoutError):
                self._connection.drain_events(timeout=0.5)

    def end(self) -> None:
        """Close the connection; its queues go with it."""
        self._ended = True
        self.join(5)
        self._connection.release()

    def _consume(self, channel: Any, agent: SimulatedAgent) -> None:
        name = peer_bus.topic(agent.cluster) + '_fanout'
        # As oslo.messaging declares them.
        exchange = kombu.Exchange(
            name, type='fanout', durable=False, auto_delete=True
        )
        queue = kombu.Queue(
            f'{name}_{agent.host}',
            exchange,
            exclusive=True,
        )

        def hear(received: Any) -> None:
            now_us = time.monotonic_ns() // 1000
            received.ack()
            call = json.loads(json.loads(received.body)['oslo.message'])
            message = peer_bus.decode(call['args'])
            if message.host != agent.host:
                # The sequence number is the sender's clock: ours.
                self._words.append((message.seq, now_us - message.seq))
            agent.hear(message, now_us)

        kombu.Consumer(
            channel, [queue], on_message=hear, prefetch_count=100
        ).consume()


def measure(args: argparse.Namespace, url: str) -> dict[str, Any]:
    """Connect all agents, let them talk, and count."""
    conf = cfg.ConfigOpts()
    messaging.get_rpc_transport(conf, url=url).cleanup()
    conf([], default_config_files=[])
    conf.set_override('transport_url', url)
    hush()
    words: list[tuple[int, int]] = []
    begin_s = time.monotonic()
    transport = get_transport(conf)
    bus = peer_bus.PeerBus(transport, 'bench', lambda message: None)
    agents = [
        SimulatedAgent(
            number,
            f'bench-c{number // args.cluster_hosts}',
            bus,
            int(args.lease * 1e6),
        )
        for number in range(args.agents)
    ]
    ears = [
        Ears(url, agents[first::_CONNECTIONS], words)
        for first in range(min(_CONNECTIONS, len(agents)))
    ]
    # Before the broker goes, also when this is broken off.
    with contextlib.ExitStack() as stack:
        stack.callback(transport.cleanup)
        for ear in ears:
            ear.start()
            stack.callback(ear.end)
        connect_s = time.monotonic() - begin_s
        sizes: dict[str, int] = {}
        for agent in agents:
            sizes[agent.cluster] = sizes.get(agent.cluster, 0) + 1

        dice = random.Random(args.seed)
        talk(agents, dice, args.change_seconds, 2 * _STEP_S)
        time.sleep(1)
        before = [agent.sent for agent in agents]
        begin_us = time.monotonic_ns() // 1000
        begin_s = time.monotonic()
        late = talk(agents, dice, args.change_seconds, args.seconds)
        elapsed_s = time.monotonic() - begin_s
        time.sleep(2)
        # Stragglers of the warm-up were sent before.
        heard = sorted(lag_us for seq, lag_us in words if seq >= begin_us)
        sent = [a.sent - b for a, b in zip(agents, before, strict=True)]
        expected = sum(
            count * (sizes[agent.cluster] - 1)
            for agent, count in zip(agents, sent, strict=True)
        )
    return {
        'agents': args.agents,
        'clusters': len(sizes),
        'cluster_hosts': args.cluster_hosts,
        'seconds': round(elapsed_s, 2),
        'connect_s': round(connect_s, 1),
        'sent_per_s': round(sum(sent) / elapsed_s, 1),
        'delivered_per_s': round(len(heard) / elapsed_s, 1),
        'delivered_fraction': round(len(heard) / max(1, expected), 4),
        'late_steps_fraction': round(late, 3),
        'lag_ms_median': _ms(statistics.median(heard) if heard else 0),
        'lag_ms_p99': _ms(heard[int(len(heard) * 0.99)] if heard else 0),
        'lag_ms_max': _ms(heard[-1] if heard else 0),
    }


def talk(
    agents: list[SimulatedAgent],
    dice: random.Random,
    change_s: float,
    seconds: float,
) -> float:
    """Let all agents tick for a while.

    :returns: fraction of the steps that took longer than a tick, for which
        the figures are those of the bench's own process at its limit.
    """
    steps = max(1, int(seconds / _STEP_S))
    late = 0
    for _ in range(steps):
        end_s = time.monotonic() + _STEP_S
        for agent in agents:
            agent.step(
                time.monotonic_ns() // 1000,
                dice.random() < _STEP_S / change_s,
            )
        left_s = end_s - time.monotonic()
        late += left_s < 0
        time.sleep(max(0.0, left_s))
    return late / steps


def run(args: argparse.Namespace) -> int:
    """Measure and print.

    :returns: 0; 1 when it could not be measured.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    try:
        with contextlib.ExitStack() as stack:
            url = args.url
            if url is None:
                url = stack.enter_context(rabbitmq.PrivateRabbitMQ()).url
            result = measure(args, url)
    except (rabbitmq.RabbitMQError, peer_bus.BusError, OSError) as error:
        # Not the URL itself, which holds a password.
        place = f'the broker of --url: {error}' if args.url else error
        print(f'nova-vhpc-bench peers: {place}', file=sys.stderr)
        return 1
    for name, value in result.items():
        print(f'{name:22}{value}')
    outputs.write_json(args.json, result)
    return 0


def _ms(us: float) -> float:
    return round(us / 1000, 2)
