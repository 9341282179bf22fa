# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""Hosts that agree on slots over a network that loses and delays messages.

The hosts run the real protocol (:mod:`nova_vhpc.control.slots.protocol`); only
the message bus is simulated. Time is simulated, too, and runs in steps.
"""

import collections
import dataclasses
import heapq
import itertools
import random
from collections.abc import Iterable, Mapping

from nova_vhpc.control.slots import frame, protocol
from nova_vhpc.control.slots.messages import Message

STEP_US = 100_000
"""Interval at which each host steps."""


@dataclasses.dataclass(slots=True)
class Faults:
    """What the network does to messages.

    :ivar loss: part of the messages that is lost, for each receiver.
    :ivar duplication: part that arrives twice.
    :ivar delay_us: least and most delay, in microseconds.
    """

    loss: float = 0.0
    duplication: float = 0.0
    delay_us: tuple[int, int] = (1_000, 10_000)


@dataclasses.dataclass(slots=True)
class Host:
    """A simulated host.

    :ivar cpus: number of its CPUs.
    :ivar gangs: its gangs, by key.
    :ivar phase_us: how much later than the first host it steps.
    :ivar clock_us: what its monotonic clock shows at time zero.
    """

    name: str
    cpus: int
    gangs: dict[str, protocol.Gang]
    phase_us: int
    clock_us: int
    protocol: protocol.SlotProtocol
    is_alive: bool = True
    side: int = 0
    sent: int = 0


class SlotNetwork:
    """Hosts and the bus between them.

    :param hosts: by host, its number of CPUs and its gangs.
    :ivar faults: what the network does to messages from now on.
    :ivar now_us: time that has passed.
    :ivar messages: the last messages that were sent.
    """

    def __init__(
        self,
        hosts: Mapping[str, tuple[int, Iterable[protocol.Gang]]],
        seed: int = 1,
    ) -> None:
        self.faults = Faults()
        self.now_us = 0
        self._random = random.Random(seed)
        self._counter = itertools.count()
        self._queue: list[tuple[int, int, str, Message | None]] = []
        self._listeners: dict[str, set[str]] = {}
        self.messages: collections.deque[Message] = collections.deque(
            maxlen=1000
        )
        self.hosts: dict[str, Host] = {}
        for name, (cpus, gangs) in hosts.items():
            self.hosts[name] = Host(
                name,
                cpus,
                {},
                self._random.randrange(STEP_US),
                self._random.randrange(10**12),
                protocol.SlotProtocol(name, 1),
            )
            self.set_gangs(name, gangs)
            self._push(self.hosts[name].phase_us, name, None)

    def set_gangs(self, name: str, gangs: Iterable[protocol.Gang]) -> None:
        """Replace the gangs of a host."""
        host = self.hosts[name]
        for key in host.gangs:
            self._listeners[key].discard(name)
        host.gangs = {gang.key: gang for gang in gangs}
        for key in host.gangs:
            self._listeners.setdefault(key, set()).add(name)

    def kill(self, name: str) -> None:
        """Let a host die without a word."""
        self.hosts[name].is_alive = False

    def restart(self, name: str, clock_change: int = 1) -> None:
        """Start a host's agent again, without its memory.

        :param clock_change: by how much its wall clock was set meanwhile.
        """
        host = self.hosts[name]
        host.protocol = protocol.SlotProtocol(
            name, host.protocol.boot + clock_change
        )
        host.is_alive = True

    def run(self, duration_us: int) -> int:
        """Let time pass.

        :returns: number of messages that the hosts sent.
        """
        end_us = self.now_us + duration_us
        before = sum(host.sent for host in self.hosts.values())
        while self._queue and self._queue[0][0] <= end_us:
            self.now_us, _, name, message = heapq.heappop(self._queue)
            host = self.hosts[name]
            if message is None:
                self._push(self.now_us + STEP_US, name, None)
                if host.is_alive:
                    self._step(host)
            elif host.is_alive and message.cluster in host.gangs:
                host.protocol.receive(message, self.now_us + host.clock_us)
        self.now_us = end_us
        return sum(host.sent for host in self.hosts.values()) - before

    def broadcast(self, message: Message) -> None:
        """Deliver a message, in whatever name, to all hosts of its cluster."""
        for host in self.living(message.cluster):
            host.protocol.receive(message, self.now_us + host.clock_us)

    def living(self, key: str) -> list[Host]:
        """Return the living hosts of a cluster, in order of their names."""
        return [
            self.hosts[name]
            for name in sorted(self._listeners.get(key, ()))
            if self.hosts[name].is_alive
        ]

    def faults_found(self) -> list[str]:
        """Return what is wrong with the hosts' tables now.

        Hosts must agree on the slots of each cluster, and no slot may hold
        more than a host has CPUs.
        """
        faults: list[str] = []
        for key in sorted(self._listeners):
            living = self.living(key)
            if not living[1:]:
                continue
            places = {
                host.name: host.protocol.table.get(key) for host in living
            }
            decided = {
                host.name: host.protocol.clusters[key].decision
                for host in living
                if key in host.protocol.clusters
            }
            if len(set(places.values())) > 1 or len(set(decided.values())) > 1:
                faults.append(f'{key}: {places}')
        faults.extend(
            f'{name}: too full'
            for name, host in self.hosts.items()
            if host.is_alive and overloaded(host)
        )
        return faults

    def settle_us(self, limit_us: int, quiet_us: int = 2_000_000) -> int:
        """Let time pass until the tables are right, and stay as they are.

        :returns: time until the last change of a table; the limit if they are
            not right by then.
        """
        start_us = self.now_us
        last_us = start_us
        before = self._tables()
        while self.now_us - start_us < limit_us:
            self.run(STEP_US)
            tables = self._tables()
            if tables != before:
                last_us, before = self.now_us, tables
            if self.now_us - last_us >= quiet_us and not self.faults_found():
                return last_us - start_us
        return limit_us

    def _tables(self) -> dict[str, dict[str, object]]:
        return {
            name: dict(host.protocol.table)
            for name, host in self.hosts.items()
            if host.is_alive
        }

    def _step(self, host: Host) -> None:
        now_us = self.now_us + host.clock_us
        host.protocol.demand(
            host.gangs.values(), host.gangs, host.cpus, now_us
        )
        for message in host.protocol.step(now_us):
            host.sent += 1
            self.messages.append(message)
            for name in sorted(self._listeners.get(message.cluster, ())):
                if name != host.name:
                    self._send(message, host, self.hosts[name])

    def _send(self, message: Message, sender: Host, receiver: Host) -> None:
        faults = self.faults
        if sender.side != receiver.side or self._random.random() < faults.loss:
            return
        copies = 1 + (self._random.random() < faults.duplication)
        for _ in range(copies):
            delay_us = self._random.randint(*faults.delay_us)
            self._push(self.now_us + delay_us, receiver.name, message)

    def _push(self, at_us: int, name: str, message: Message | None) -> None:
        heapq.heappush(
            self._queue, (at_us, next(self._counter), name, message)
        )


def change_some(network: SlotNetwork, part: float, seed: int) -> None:
    """Let some hosts change at once: each gets a new cluster for an old one.

    :param part: part of the hosts that change.
    """
    chooser = random.Random(seed)
    names = chooser.sample(
        sorted(network.hosts), max(2, round(part * len(network.hosts)))
    )
    for number, (first, second) in enumerate(
        zip(names[::2], names[1::2], strict=False)
    ):
        for name in (first, second):
            host = network.hosts[name]
            kept = dict(host.gangs)
            old = kept.pop(chooser.choice(sorted(kept)))
            new = old._replace(key=f'n{seed}-{number:05d}')
            network.set_gangs(name, (*kept.values(), new))


def overloaded(host: Host) -> bool:
    """Return whether a host's table puts too many CPUs in a slot."""
    load = [0] * frame.SLOTS
    for key, slot in host.protocol.table.items():
        gang = host.gangs.get(key)
        for number in frame.numbers(slot.slots):
            load[number] += 0 if gang is None else gang.width
    return max(load) > host.cpus


def random_cloud(
    host_count: int,
    seed: int,
    cpus: int = 8,
    span: int = 8,
    clusters_per_host: int = 4,
) -> dict[str, tuple[int, list[protocol.Gang]]]:
    """Return hosts with random clusters, which fill each host as told.

    :param span: most hosts of a cluster.
    :param clusters_per_host: so many clusters share a host's time.
    """
    chooser = random.Random(seed)
    names = [f'h{number:05d}' for number in range(host_count)]
    gangs: dict[str, list[protocol.Gang]] = {name: [] for name in names}
    for number in itertools.count():
        room = [name for name in names if len(gangs[name]) < clusters_per_host]
        if not room:
            break
        # Clusters lie near each other, but not in the same rows.
        first = chooser.randrange(len(room))
        size = min(len(room), chooser.randint(2, span))
        part = 1 / clusters_per_host
        for name in (room[first:] + room[:first])[:size]:
            gangs[name].append(
                protocol.Gang(f'c{number:05d}', cpus, part, True)
            )
    return {name: (cpus, gangs[name]) for name in names}
