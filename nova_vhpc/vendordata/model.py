# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A virtual cluster as a tenant may see it: members, ranks, distances. Pure.

Hosts, switches and racks have :mod:`.opaque_ids`, never names.
"""

import dataclasses
import enum
import ipaddress
from collections.abc import Iterable, Mapping, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Distance(enum.StrEnum):
    """Distance of a peer by fabric tiers, nearest first."""

    SELF = 'self'
    SAME_HOST = 'same-host'
    SAME_SWITCH = 'same-switch'
    SAME_RACK = 'same-rack'
    FAR = 'far'


@dataclasses.dataclass(frozen=True, slots=True)
class Nic:
    """A guest's NIC.

    :ivar mac: MAC address.
    :ivar addresses: fixed IP addresses.
    """

    mac: str
    addresses: tuple[Address, ...]

    @property
    def address(self) -> Address | None:
        """Address to use, IPv4 before IPv6; None while the NIC has none."""
        return self.of_version(4) or self.of_version(6)

    def of_version(self, version: int) -> Address | None:
        """Return the first address of an IP version, if there is one."""
        return next((a for a in self.addresses if a.version == version), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One server of the virtual cluster.

    :ivar uuid: UUID of the server.
    :ivar name: name of the server.
    :ivar vcpus: number of vCPUs.
    :ivar host: opaque ID of its host; None while it has no host.
    :ivar switch: opaque ID of its host's switch; None if unknown.
    :ivar rack: opaque ID of its host's rack; None if unknown.
    :ivar nics: NICs in the order in which the guest has them.
    :ivar network: network configuration, or None.
    :ivar paradigm: ``mpi``, ``openmp`` or ``hybrid``.
    :ivar wait: how its programs are to wait: ``auto``, ``passive`` or
        ``active``.
    :ivar uplink_nic: index of the NIC on the own uplink; None for the last.
    :ivar running: whether it runs, and will go on, as far as Nova knows.
    :ivar status: Nova's status of the server, such as ``ACTIVE``.
    :ivar hostname: name that Nova tells the guest; None if Nova hides it. It
        stays when the server is renamed.
    """

    uuid: str
    name: str
    vcpus: int
    host: str | None = None
    switch: str | None = None
    rack: str | None = None
    nics: tuple[Nic, ...] = ()
    # From the flavor of the member: members may have different flavors.
    network: str | None = None
    paradigm: str = 'mpi'
    wait: str = 'auto'
    uplink_nic: int | None = None
    running: bool = True
    status: str = 'ACTIVE'
    hostname: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """A virtual cluster.

    :ivar uuid: UUID of the server group.
    :ivar name: name of the server group.
    :ivar members: all members, in rank order (see :func:`ranked`).
    :ivar expected: number of members that the cluster will have, as
        ``vhpc_members`` or ``vhpc:members`` says; 0 if neither does.
    :ivar host_names: names of the members' hosts, by UUID of the member, for
        asking agents; never a part of an answer.
    :ivar shows_ids: whether the answers have the IDs of hosts, switches and
        racks; if not, these only tell which are equal.
    """

    uuid: str
    name: str
    members: tuple[Member, ...]
    expected: int = 0
    host_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shows_ids: bool = True


def ranked(members: Iterable[Member]) -> tuple[Member, ...]:
    """Return members in rank order: neighbours in rank are near each other.

    MPI programs communicate most between neighbouring ranks, so members of a
    rack, a switch and a host follow each other. Places are in the order of
    their first members' names: all members must get the same hostfile,
    whoever asks which server, and IDs of places may differ between servers.
    Members without a host come last.
    """
    named = sorted(members, key=lambda m: (m.host is None, m.name, m.uuid))
    first: dict[tuple[str | None, ...], int] = {}
    keys = []
    for index, member in enumerate(named):
        tiers = (member.rack, member.switch, member.host)
        keys.append(
            tuple(
                first.setdefault(tiers[:length], index)
                for length in range(1, len(tiers) + 1)
            )
        )
    return tuple(
        named[index]
        for index in sorted(
            range(len(named)),
            key=lambda i: (named[i].host is None, keys[i], i),
        )
    )


def distance(one: Member, other: Member) -> Distance:
    """Return the distance between two members."""
    if one.uuid == other.uuid:
        return Distance.SELF
    if one.host is not None and one.host == other.host:
        return Distance.SAME_HOST
    if one.switch is not None and one.switch == other.switch:
        return Distance.SAME_SWITCH
    if one.rack is not None and one.rack == other.rack:
        return Distance.SAME_RACK
    return Distance.FAR


class Places:
    """Knows which members share a host, a switch or a rack.

    All distances of one member are found without a look at each pair: a
    cluster of 1,000 members has a million.

    :param members: members of a cluster, by rank.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        # From the widest: each later distance replaces the earlier ones.
        self._ranks: dict[Distance, dict[str, list[int]]] = {
            Distance.SAME_RACK: {},
            Distance.SAME_SWITCH: {},
            Distance.SAME_HOST: {},
        }
        for rank, member in enumerate(members):
            for distance_, name in _places(member).items():
                if name is not None:
                    ranks = self._ranks[distance_].setdefault(name, [])
                    ranks.append(rank)

    def distances(self, rank: int) -> list[Distance]:
        """Return the distances between one member and each, by rank."""
        found = [Distance.FAR] * len(self._members)
        for distance_, name in _places(self._members[rank]).items():
            if name is not None:
                for other in self._ranks[distance_][name]:
                    found[other] = distance_
        found[rank] = Distance.SELF
        return found


def _places(member: Member) -> dict[Distance, str | None]:
    return {
        Distance.SAME_RACK: member.rack,
        Distance.SAME_SWITCH: member.switch,
        Distance.SAME_HOST: member.host,
    }


def mpi_nics(member: Member) -> tuple[Nic, ...]:
    """Return the NICs that carry MPI messages, by network configuration.

    HPCVirt'09 section 4: two for ``multiple-shared``; the only one for
    ``shared``; the one on the own uplink for ``separate``, ``exported`` and
    ``shared-separate``, where a route, not the address, selects the shared
    bridge.
    """
    if not member.nics:
        return ()
    if member.network == 'multiple-shared':
        return member.nics[-2:]
    return (own_nic(member),)


def mpi_address(member: Member) -> Address | None:
    """Return the address by which a member is named in hostfiles, if any."""
    for nic in mpi_nics(member):
        if nic.address is not None:
            return nic.address
    return None


def mpi_addresses(members: Iterable[Member], position: int) -> list[Address]:
    """Return the addresses of the members' first or second NICs for MPI.

    :param position: 0 for the first NICs, 1 for the second ones.
    """
    return [
        nic.address
        for member in members
        for nic in mpi_nics(member)[position:][:1]
        if nic.address is not None
    ]


def own_nic(member: Member) -> Nic:
    """Return the NIC on the member's own uplink (``vhpc:uplink_nic``)."""
    index = member.uplink_nic
    if index is None or index >= len(member.nics):
        index = -1
    return member.nics[index]


def shared_nic(member: Member) -> Nic | None:
    """Return the first NIC that is not on the own uplink, if any."""
    own = own_nic(member)
    return next((nic for nic in member.nics if nic is not own), None)


def covering(addresses: Iterable[Address]) -> Network | None:
    """Return the smallest subnet of all addresses of the first IP version.

    IPv4 addresses come before IPv6 ones. Guests get subnets rather than
    interface names, because these differ from image to image.
    """
    ordered = sorted(addresses, key=lambda a: (a.version, int(a)))
    if not ordered:
        return None
    first = ordered[0]
    same = [a for a in ordered if a.version == first.version]
    bits = first.max_prefixlen
    differing = (int(first) ^ int(same[-1])).bit_length()
    return ipaddress.ip_network(f'{first}/{bits - differing}', strict=False)
