# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A model of three hosts and an unreliable network, for protocol tests.

One unit of time is a renewal; a lease is three of them. The network is a
set of (receiver, message, when sent): a message in it can be delivered any
number of times (duplication), in any order (reordering) or never (loss),
until it is older than a lease, when the network has dropped it for good.
"""

import dataclasses
from collections.abc import Iterator

from nova_vhpc.agent.clusters import protocol
from nova_vhpc.control.model import ClusterPlan, Phase

LEASE = 3
TIMERS = protocol.Timers(lease_us=LEASE, renew_us=1, gap_us=1)
CLUSTER = 'c'
IO = ClusterPlan(Phase.IO)

Sent = tuple[int, protocol.Message, int]


@dataclasses.dataclass(frozen=True)
class Host:
    """One agent: its controller's statement, and the protocol's state."""

    index: int
    boot: int = 1
    alive: bool = True
    statement: ClusterPlan = protocol.QUIET
    state: protocol.State = dataclasses.field(default_factory=protocol.State)

    @property
    def rules(self) -> protocol.Protocol:
        return protocol.Protocol(f'host{self.index}', self.boot, TIMERS)

    def key(self, now: int) -> object:
        """Return a key that is equal for states shifted only in time."""
        own = self.state.own
        return (
            self.boot,
            self.alive,
            self.statement,
            own
            and (
                own.sent,
                own.statement,
                own.sent_us - now,
                max(own.changed_us - now, -LEASE - 1),
                own.decided_us - now,
                own.seq - now,
            ),
            frozenset(
                (
                    name,
                    lease.boot,
                    lease.statement,
                    max(lease.until_us - now, 0),
                    max(lease.closed_us - now, 0),
                    # The network has no older messages.
                    tuple(
                        (heard.boot, max(heard.seq - now, -LEASE - 1))
                        for heard in lease.heard
                    ),
                )
                for name, lease in self.state.received.items()
            ),
        )


@dataclasses.dataclass(frozen=True)
class World:
    """All hosts, the network, and the numbers of faults still to come."""

    now: int = 10
    hosts: tuple[Host, ...] = (Host(0), Host(1), Host(2))
    net: frozenset[Sent] = frozenset()
    toggles: int = 2
    restarts: int = 1
    deaths: int = 1

    @property
    def key(self) -> object:
        hosts = tuple(host.key(self.now) for host in self.hosts)
        net = frozenset(
            (
                index,
                message.host,
                message.boot,
                message.seq - self.now,
                message.statement,
                message.lease_us,
                sent - self.now,
            )
            for index, message, sent in self.net
        )
        return hosts, net, self.toggles, self.restarts, self.deaths

    def successors(self) -> Iterator['World']:
        """Yield the worlds after each event that can happen next."""
        yield self.time_passes()
        for host in self.hosts:
            if not host.alive:
                continue
            if self.toggles:
                yield self.toggle(host.index)
            if self.restarts:
                yield self.restart(host.index)
                yield self.restart(host.index, -1)
            if self.deaths:
                yield self.die(host.index)
        for sent in self.net:
            yield self.deliver(sent)

    def toggle(self, index: int) -> 'World':
        """Return the world after a controller's decision has changed."""
        host = self.hosts[index]
        statement = IO if host.statement == protocol.QUIET else protocol.QUIET
        world = self._put(dataclasses.replace(host, statement=statement))
        return dataclasses.replace(world, toggles=self.toggles - 1)._decide(
            index
        )

    def restart(self, index: int, clock_change: int = 1) -> 'World':
        """Return the world after an agent was killed and started again.

        :param clock_change: by how much its clock was set meanwhile.
        """
        boot = self.hosts[index].boot + clock_change
        world = self._put(Host(index, boot))
        return dataclasses.replace(world, restarts=self.restarts - 1)

    def die(self, index: int) -> 'World':
        """Return the world after a host stopped for ever."""
        world = self._put(dataclasses.replace(self.hosts[index], alive=False))
        return dataclasses.replace(world, deaths=self.deaths - 1)

    def deliver(self, sent: Sent) -> 'World':
        """Return the world after a delivery, which may happen again."""
        index, message, _ = sent
        host = self.hosts[index]
        if not host.alive:
            return self
        state = host.rules.receive(host.state, message, self.now)
        return self._put(dataclasses.replace(host, state=state))

    def time_passes(self) -> 'World':
        """Return the world after one unit of time.

        Every living controller decides, and every timer runs.
        """
        now = self.now + 1
        world = dataclasses.replace(
            self,
            now=now,
            net=frozenset(s for s in self.net if now - s[2] <= LEASE),
        )
        for host in self.hosts:
            if host.alive:
                world = world._decide(host.index)._tick(host.index)
        return world

    def settle(self) -> Iterator['World']:
        """Yield the worlds of one lease and one more unit without faults.

        Earlier messages are lost; every new message arrives once, at once.
        """
        world = dataclasses.replace(self, net=frozenset())
        for _ in range(LEASE + 1):
            world = world.time_passes()
            for sent in sorted(world.net, key=repr):
                world = world.deliver(sent)
            world = dataclasses.replace(world, net=frozenset())
            yield world

    def phases(self) -> list[Phase]:
        """Return the cluster's phase as each living host sees it."""
        return [
            protocol.group_phase(host.rules, host.state, self.now)
            for host in self.hosts
            if host.alive
        ]

    def truth(self) -> Phase:
        """Return the phase that follows from the living hosts' statements."""
        statements = {
            host.statement.phase for host in self.hosts if host.alive
        }
        return Phase.IO if Phase.IO in statements else Phase.COMPUTING

    def _decide(self, index: int) -> 'World':
        host = self.hosts[index]
        state, message = host.rules.decide(
            host.state, CLUSTER, host.statement, self.now
        )
        return self._put(dataclasses.replace(host, state=state))._send(
            index, message
        )

    def _tick(self, index: int) -> 'World':
        host = self.hosts[index]
        state, message = host.rules.tick(host.state, CLUSTER, self.now)
        return self._put(dataclasses.replace(host, state=state))._send(
            index, message
        )

    def _send(self, index: int, message: protocol.Message | None) -> 'World':
        if message is None:
            return self
        return dataclasses.replace(
            self,
            net=self.net
            | {
                (other.index, message, self.now)
                for other in self.hosts
                if other.index != index
            },
        )

    def _put(self, host: Host) -> 'World':
        hosts = list(self.hosts)
        hosts[host.index] = host
        return dataclasses.replace(self, hosts=tuple(hosts))
