# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""``nova-vhpc-bench peers``: the phase exchange of many hosts.

Messages and lag are measured with the agent's own protocol and sending code
and a real RabbitMQ, which is started for the run unless ``--url`` names one.
Phases change at random. Each simulated agent has its own fanout queue, as in
production, but all of them share a few connections: with one connection and
thread each, the bench would measure its own threads.
"""

import argparse
import collections
import contextlib
import importlib
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.clusters import protocol
from nova_vhpc.agent.clusters.bus import BusError, PeerBus, topic
from nova_vhpc.agent.clusters.messages import decode_phase
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import get_transport, hush
from nova_vhpc.control.model import ClusterPlan, Phase
from nova_vhpc_lab.bench.common import cli_types, outputs
from nova_vhpc_lab.testbed import rabbitmq

HELP = 'Measure the phase exchange of simulated hosts by a real RabbitMQ.'

# Not imported directly: kombu has type hints for a part, and wrong ones.
kombu: Any = importlib.import_module('kombu')

_TICK_S = 0.1
_CONNECTIONS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the subcommand."""
    for name, default, about in (
        ('--agents', 500, 'number of simulated hosts'),
        ('--cluster-hosts', 8, 'hosts per virtual cluster'),
    ):
        cli_types.add_integer(parser, name, default, about)
    cli_types.add_seconds(
        parser,
        '--change-seconds',
        5.0,
        "mean time between two changes of a host's phase",
        least=0.001,
    )
    cli_types.add_seconds(
        parser,
        '--lease',
        6.0,
        'time for which a statement holds without renewal',
        least=0.001,
    )
    cli_types.add_seconds(
        parser, '--seconds', 20.0, 'length of the measurement'
    )
    cli_types.add_integer(
        parser, '--seed', 1, 'seed of the random changes of phase', least=0
    )
    parser.add_argument(
        '--url', type=_broker, help='use this broker instead of starting one'
    )
    outputs.add_json(parser)


def _broker(text: str) -> str:
    """Return the broker's URL if it is valid; type of an argument."""
    with contextlib.suppress(ValueError):
        url = urllib.parse.urlsplit(text)
        # ``url.port`` raises ValueError if the port is invalid.
        if url.scheme == 'rabbit' and url.hostname and url.port != 0:
            return text
    raise argparse.ArgumentTypeError(
        f"'{text}' is not rabbit://USER:PASSWORD@HOST:PORT/"
    )


class SimulatedAgent:
    """One host, with the agent's protocol and random changes of phase.

    :param number: makes the host's name unique.
    :param lease_us: lease of its statements, in microseconds.
    :ivar sent: number of messages sent.
    """

    def __init__(
        self, number: int, cluster: str, bus: PeerBus, lease_us: int
    ) -> None:
        self.cluster = cluster
        self.host = f'bench{number}'
        self._lock = threading.Lock()
        self._state = protocol.State()
        self._statement = protocol.QUIET
        self._protocol = protocol.Protocol(
            self.host, 1, protocol.Timers.for_lease(lease_us)
        )
        self._bus = bus
        self.sent = 0

    def step(self, now_us: int, toggle: bool) -> None:
        """Send what the agent sends after a tick.

        :param now_us: monotonic time, in microseconds.
        :param toggle: whether the host's phase changes.
        """
        if toggle:
            self._statement = (
                protocol.QUIET
                if self._statement.phase is Phase.IO
                else ClusterPlan(Phase.IO)
            )
        with self._lock:
            self._state, decided = self._protocol.decide(
                self._state, self.cluster, self._statement, now_us
            )
            self._state, renewal = self._protocol.tick(
                self._state, self.cluster, now_us
            )
        for message in (decided, renewal):
            if message is not None:
                self._bus.send(message)
                self.sent += 1

    def receive(self, message: protocol.Message, now_us: int) -> None:
        """Take a message of any host, as the agent does."""
        with self._lock:
            self._state = self._protocol.receive(self._state, message, now_us)


class Receiver(threading.Thread):
    """One connection that receives for many agents.

    :param received: gets (sequence number, lag in microseconds) of each
        message.
    """

    def __init__(
        self,
        url: str,
        agents: list[SimulatedAgent],
        received: list[tuple[int, int]],
    ) -> None:
        super().__init__(daemon=True)
        self._received = received
        self._ended = False
        self._connection = kombu.Connection(
            url.replace('rabbit://', 'amqp://').rstrip('/') + '//'
        )
        channel = self._connection.channel()
        for agent in agents:
            self._consume(channel, agent)

    def run(self) -> None:
        """Hand messages to the agents until ``end()`` is called."""
        while not self._ended:
            with contextlib.suppress(TimeoutError):
                self._connection.drain_events(timeout=0.5)

    def end(self) -> None:
        """Close the connection; the broker then deletes its queues."""
        self._ended = True
        self.join(5)
        self._connection.release()

    def _consume(self, channel: Any, agent: SimulatedAgent) -> None:
        name = topic(agent.cluster) + '_fanout'
        # Exchange and queue must be declared as oslo.messaging does.
        exchange = kombu.Exchange(
            name, type='fanout', durable=False, auto_delete=True
        )
        queue = kombu.Queue(
            f'{name}_{agent.host}',
            exchange,
            exclusive=True,
        )

        def receive(delivery: Any) -> None:
            now_us = time.monotonic_ns() // 1000
            delivery.ack()
            call = json.loads(json.loads(delivery.body)['oslo.message'])
            message = decode_phase(call['args'])
            if message.host != agent.host:
                # The sequence number is the monotonic time of sending, and
                # all agents share this process's clock.
                self._received.append((message.seq, now_us - message.seq))
            agent.receive(message, now_us)

        kombu.Consumer(
            channel, [queue], on_message=receive, prefetch_count=100
        ).consume()


def measure(args: argparse.Namespace, url: str) -> dict[str, Any]:
    """Run all agents and return the figures by their JSON keys."""
    conf = cfg.ConfigOpts()
    messaging.get_rpc_transport(conf, url=url).cleanup()
    conf([], default_config_files=[])
    conf.set_override('transport_url', url)
    hush()
    received: list[tuple[int, int]] = []
    begin_s = time.monotonic()
    transport = get_transport(conf)
    bus = PeerBus(transport, 'bench', lambda message: None)
    agents = [
        SimulatedAgent(
            number,
            f'bench-c{number // args.cluster_hosts}',
            bus,
            int(args.lease * 1e6),
        )
        for number in range(args.agents)
    ]
    receivers = [
        Receiver(url, agents[first::_CONNECTIONS], received)
        for first in range(min(_CONNECTIONS, len(agents)))
    ]
    # Close connections before the broker ends, also after an exception.
    with contextlib.ExitStack() as stack:
        stack.callback(transport.cleanup)
        for receiver in receivers:
            receiver.start()
            stack.callback(receiver.end)
        connect_s = time.monotonic() - begin_s
        sizes = collections.Counter(agent.cluster for agent in agents)
        dice = random.Random(args.seed)
        run_ticks(agents, dice, args.change_seconds, 2 * _TICK_S)
        time.sleep(1)
        sent_before = [agent.sent for agent in agents]
        begin_us = time.monotonic_ns() // 1000
        begin_s = time.monotonic()
        late_fraction = run_ticks(
            agents, dice, args.change_seconds, args.seconds
        )
        elapsed_s = time.monotonic() - begin_s
        time.sleep(2)
        # Messages of the warm-up that arrive late do not count.
        lags_us = sorted(lag for seq, lag in received if seq >= begin_us)
        sent = [
            agent.sent - before
            for agent, before in zip(agents, sent_before, strict=True)
        ]
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
        'delivered_per_s': round(len(lags_us) / elapsed_s, 1),
        'delivered_fraction': round(len(lags_us) / max(1, expected), 4),
        'late_steps_fraction': round(late_fraction, 3),
        'lag_ms_median': _ms(statistics.median(lags_us) if lags_us else 0),
        'lag_ms_p99': _ms(lags_us[int(len(lags_us) * 0.99)] if lags_us else 0),
        'lag_ms_max': _ms(lags_us[-1] if lags_us else 0),
    }


def run_ticks(
    agents: list[SimulatedAgent],
    dice: random.Random,
    change_s: float,
    seconds: float,
) -> float:
    """Run the ticks of all agents.

    :param dice: source of the changes of phase.
    :param change_s: mean time between two changes of a host's phase, in
        seconds.
    :param seconds: duration, in seconds.
    :returns: fraction of ticks in which the bench needed more time for all
        agents than one tick has; if it is not small, the figures show the
        limit of the bench and not of the broker.
    """
    ticks = max(1, int(seconds / _TICK_S))
    late_ticks = 0
    for _ in range(ticks):
        end_s = time.monotonic() + _TICK_S
        for agent in agents:
            agent.step(
                time.monotonic_ns() // 1000,
                dice.random() < _TICK_S / change_s,
            )
        remaining_s = end_s - time.monotonic()
        late_ticks += remaining_s < 0
        time.sleep(max(0.0, remaining_s))
    return late_ticks / ticks


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the JSON file.

    :returns: 0; 1 if the measurement failed.
    :raises OutputError: if the JSON file cannot be written.
    """
    outputs.check(args.json)
    try:
        with contextlib.ExitStack() as stack:
            url = args.url
            if url is None:
                url = stack.enter_context(rabbitmq.PrivateRabbitMQ()).url
            figures = measure(args, url)
    except (rabbitmq.RabbitMQError, BusError, OSError) as error:
        # The URL is not printed because it holds a password.
        problem = f'the broker of --url: {error}' if args.url else error
        print(f'nova-vhpc-bench peers: {problem}', file=sys.stderr)
        return 1
    for name, value in figures.items():
        print(f'{name:22}{value}')
    outputs.write_json(args.json, figures)
    return 0


def _ms(us: float) -> float:
    return round(us / 1000, 2)
