# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bridges, uplinks and guests' NICs of a cluster, by network configuration.

Pure. HPCVirt'09 section 4, on several hosts: each network has a switch of its
own, as a cloud's networks have segments of their own, and every uplink is a
cable to it.
"""

import dataclasses
import re
from collections.abc import Iterator

from nova_vhpc.flavor import extra_specs
from nova_vhpc.scheduler.planner import cost_table

CONFIGURATIONS = extra_specs.NETWORKS
"""The network configurations, in the order in which they are shown."""

NATIVE = cost_table.NATIVE
"""Without guests: ranks are processes of the host, each with a NIC of it."""

ROWS = (NATIVE, *CONFIGURATIONS)
"""Rows of the tables, in the order in which they are shown."""

CLUSTERS = ('2x4', '8x2', '8x1', '1x4')
"""HPCVirt'09 section 6: hosts x guests on each of them."""

SHARED, OWN, SECOND = range(3)
"""Networks: of the shared bridge in ``shared-separate``; of MPI messages; of
the second NIC in ``multiple-shared``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """Number of hosts, and of guests on each of them."""

    hosts: int
    guests: int

    @classmethod
    def parse(cls, text: str) -> 'Cluster':
        """Return the cluster that a text such as ``2x4`` means.

        :raises ValueError: the text means none, or less than two guests.
        """
        found = re.fullmatch(r'(\d{1,2})x(\d{1,2})', text)
        if found is None:
            raise ValueError(f"'{text}' is not hosts x guests, such as 2x4")
        cluster = cls(*map(int, found.groups()))
        if cluster.members < 2:
            raise ValueError(f'{text}: two guests are the least')
        return cluster

    @property
    def members(self) -> int:
        """Number of guests on all hosts."""
        return self.hosts * self.guests

    def __str__(self) -> str:
        return f'{self.hosts}x{self.guests}'


@dataclasses.dataclass(frozen=True, slots=True)
class Uplink:
    """A physical NIC of a host.

    :ivar name: name of the link; that of the switch's port is the same with
        an ``x``.
    :ivar bridge: bridge on the host whose port it is.
    :ivar network: network whose switch it is connected to.
    """

    name: str
    bridge: str
    network: int


@dataclasses.dataclass(frozen=True, slots=True)
class Nic:
    """A NIC of a guest.

    :ivar name: name in the guest.
    :ivar outside: name of the other end of the link.
    :ivar network: network that the NIC is in.
    :ivar bridge: bridge on the host; None if the NIC is an exported uplink,
        which is connected to the switch.
    :ivar address: IPv4 address, in a network of 16 bits.
    """

    name: str
    outside: str
    network: int
    bridge: str | None
    address: str


@dataclasses.dataclass(frozen=True, slots=True)
class Guest:
    """A guest; natively a host.

    :ivar name: name of its network namespace.
    :ivar host: name of its host.
    :ivar nics: NICs, the one on its own uplink last.
    """

    name: str
    host: str
    nics: tuple[Nic, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """All links of a cluster.

    :ivar switches: bridges that stand for the switches of the networks.
    :ivar bridges: bridges on the hosts.
    :ivar guests: guests in rank order, those of one host one after the other.
    :ivar ranks: ranks of each guest.
    """

    switches: tuple[str, ...]
    bridges: tuple[str, ...]
    uplinks: tuple[Uplink, ...]
    guests: tuple[Guest, ...]
    ranks: int = 1


def switch(network: int) -> str:
    """Return the name of a network's switch."""
    return f'switch{network}'


def plan(cluster: Cluster, configuration: str) -> Layout:
    """Return the links of a cluster in one network configuration.

    :param configuration: one of :data:`ROWS`.
    """
    if configuration == NATIVE:
        return _native(cluster)
    uplinks: list[Uplink] = []
    guests: list[Guest] = []
    for host in range(cluster.hosts):
        name = f'h{host}'
        uplinks += _uplinks(name, cluster.guests, configuration)
        for number in range(cluster.guests):
            rank = host * cluster.guests + number
            nics = tuple(_nics(name, number, rank, configuration))
            guests.append(Guest(f'g{rank}', name, nics))
    networks = {nic.network for guest in guests for nic in guest.nics}
    return Layout(
        switches=tuple(switch(network) for network in sorted(networks)),
        bridges=tuple(uplink.bridge for uplink in uplinks),
        uplinks=tuple(uplinks),
        guests=tuple(guests),
    )


def _native(cluster: Cluster) -> Layout:
    """Return the links of hosts without guests: as many NICs as ranks."""
    guests = tuple(
        Guest(
            f'g{host}',
            f'h{host}',
            tuple(
                _nic(host * cluster.guests + number, OWN, None, number)
                for number in range(cluster.guests)
            ),
        )
        for host in range(cluster.hosts)
    )
    return Layout(
        switches=(switch(OWN),),
        bridges=(),
        uplinks=(),
        guests=guests,
        ranks=cluster.guests,
    )


def _uplinks(host: str, guests: int, configuration: str) -> Iterator[Uplink]:
    """Yield the uplinks of a host, each with a bridge of its own."""
    shared = {
        'shared': (OWN,),
        'multiple-shared': (OWN, SECOND),
        'shared-separate': (SHARED,),
    }
    for network in shared.get(configuration, ()):
        yield Uplink(f'{host}s{network}', f'{host}shared{network}', network)
    if configuration in ('separate', 'shared-separate'):
        for number in range(guests):
            yield Uplink(f'{host}u{number}', f'{host}own{number}', OWN)


def _nics(
    host: str, number: int, rank: int, configuration: str
) -> Iterator[Nic]:
    """Yield the NICs of a guest in the guest's order."""
    shared = {network: f'{host}shared{network}' for network in range(3)}
    own = f'{host}own{number}'
    by_configuration: dict[str, dict[int, str | None]] = {
        'shared': {OWN: shared[OWN]},
        'multiple-shared': {OWN: shared[OWN], SECOND: shared[SECOND]},
        'separate': {OWN: own},
        'shared-separate': {SHARED: shared[SHARED], OWN: own},
        'exported': {OWN: None},
    }
    bridges = by_configuration[configuration]
    for network, bridge in bridges.items():
        yield _nic(rank, network, bridge, network)


def _nic(rank: int, network: int, bridge: str | None, number: int) -> Nic:
    """Return a NIC of a rank's guest, or natively of the rank.

    :param number: number of the NIC in its guest.
    """
    return Nic(
        name=f'eth{number}',
        outside=f'g{rank}n{network}',
        network=network,
        bridge=bridge,
        address=f'10.{96 + network}.0.{rank + 1}',
    )
