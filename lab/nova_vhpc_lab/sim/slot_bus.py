# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The message bus over which simulated hosts agree on cluster slots.

The protocol is the real one. Messages arrive late, and some never.
"""

import dataclasses
import random
from collections.abc import Collection, Iterable, Mapping

from nova_vhpc.control import model
from nova_vhpc.control.slots import messages, protocol
from nova_vhpc_lab.sim.agenda import Agenda

STEP_US = 100_000
"""The agent's thread runs the protocol so often."""


@dataclasses.dataclass(frozen=True, slots=True)
class BusSettings:
    """What a message takes from one agent to another over the broker.

    :ivar least_us: least time.
    :ivar mean_us: mean additional time, of exponential distribution.
    :ivar loss: part of the messages that never arrives.
    """

    least_us: float = 1_000.0
    mean_us: float = 3_000.0
    loss: float = 0.0


DEFAULT = BusSettings()


class SlotBus:
    """Carries messages to all hosts with members of a cluster.

    :ivar sent: number of messages that were sent.
    """

    def __init__(
        self, agenda: Agenda, settings: BusSettings, chance: random.Random
    ) -> None:
        self._agenda = agenda
        self._settings = settings
        self._chance = chance
        self._hosts: list[SlotAgent] = []
        self.sent = 0

    def join(self, name: str, clusters: Collection[str]) -> 'SlotAgent':
        """Add a host.

        :param name: unique among the hosts.
        :param clusters: clusters with members on it and on others.
        """
        host = SlotAgent(name, clusters, self, self._agenda)
        self._hosts.append(host)
        self._agenda.at(
            self._agenda.now_us + self._chance.randrange(STEP_US), host.step
        )
        return host

    def send(self, message: messages.Message) -> None:
        """Send a message to all other hosts of its cluster."""
        self.sent += 1
        for host in self._hosts:
            if (
                message.cluster in host.clusters
                and host.name != message.host
                and self._chance.random() >= self._settings.loss
            ):
                late_us = self._settings.least_us + self._chance.expovariate(
                    1 / self._settings.mean_us
                )
                self._agenda.at(
                    self._agenda.now_us + late_us,
                    lambda to=host: to.receive(message),  # type: ignore[misc]
                )


class SlotAgent:
    """One host's part in the agreement on slots.

    :ivar clusters: clusters with members on this host and on others.
    """

    def __init__(
        self,
        name: str,
        clusters: Collection[str],
        bus: SlotBus,
        agenda: Agenda,
    ) -> None:
        self.name = name
        self.clusters = frozenset(clusters)
        self._bus = bus
        self._agenda = agenda
        self._protocol = protocol.SlotProtocol(name, 1)

    def publish(self, gangs: Iterable[model.GangDemand], cpus: int) -> None:
        """Take note of what wants slots on this host."""
        wanted = [
            protocol.Gang(
                one.key,
                one.width,
                one.part,
                one.key in self.clusters,
                one.plays,
            )
            for one in gangs
        ]
        self._protocol.demand(
            wanted,
            self.clusters | {one.key for one in wanted},
            cpus,
            self._agenda.now_us,
        )

    def table(self) -> Mapping[str, model.ClusterSlot | None]:
        """Return the slots agreed on, by cluster."""
        return self._protocol.agreed

    def receive(self, message: messages.Message) -> None:
        """Take a message of another host."""
        self._protocol.receive(message, self._agenda.now_us)

    def step(self) -> None:
        """Decide, send, and come again."""
        for message in self._protocol.step(self._agenda.now_us):
            self._bus.send(message)
        self._agenda.at(self._agenda.now_us + STEP_US, self.step)
