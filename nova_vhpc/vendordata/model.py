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

"""A virtual cluster as a tenant may see it: members, ranks, distances.

Pure values. Hosts are named by Nova's ``hostId``, a hash that differs per
project, so that nobody learns the cloud's host names here.
"""

import dataclasses
import enum
import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Distance(enum.StrEnum):
    """How far a peer is, nearest first (DESIGN.md: fabric tiers)."""

    SELF = 'self'
    SAME_HOST = 'same-host'
    SAME_SWITCH = 'same-switch'
    SAME_RACK = 'same-rack'
    FAR = 'far'


@dataclasses.dataclass(frozen=True, slots=True)
class Nic:
    """One guest NIC: its MAC address and its fixed addresses."""

    mac: str
    addresses: tuple[Address, ...]

    @property
    def address(self) -> Address | None:
        """The address to use, IPv4 before IPv6; None while there is none."""
        ordered = sorted(self.addresses, key=lambda a: a.version)
        return ordered[0] if ordered else None


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One server of the virtual cluster.

    :ivar host: opaque id of its host; None while it has none.
    :ivar switch: fabric tier of its host, or None where unknown.
    :ivar nics: guest NICs in guest order.
    :ivar network: network configuration, or None.
    :ivar uplink_nic: index of the NIC for the own uplink; None: the last.
    """

    uuid: str
    name: str
    vcpus: int
    host: str | None = None
    switch: str | None = None
    rack: str | None = None
    nics: tuple[Nic, ...] = ()
    # Of its own flavor: a group may hold servers of several.
    network: str | None = None
    paradigm: str = 'mpi'
    uplink_nic: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """All members, in rank order (see :func:`ranked`)."""

    uuid: str
    name: str
    members: tuple[Member, ...]

    def rank(self, uuid: str) -> int | None:
        """Rank of a member; None for a stranger."""
        for rank, member in enumerate(self.members):
            if member.uuid == uuid:
                return rank
        return None


def ranked(members: Iterable[Member]) -> tuple[Member, ...]:
    """Members in rank order: neighbours in rank are near in the fabric.

    MPI programs talk most to neighbouring ranks, so ranks follow rack,
    switch and host. The order is the same whoever asks: every member
    must compute the same hostfile. Members that have no host yet are last.
    """
    return tuple(
        sorted(
            members,
            key=lambda m: (
                m.host is None,
                m.rack or '',
                m.switch or '',
                m.host or '',
                m.name,
                m.uuid,
            ),
        )
    )


def distance(one: Member, other: Member) -> Distance:
    """How far two members are from each other."""
    if one.uuid == other.uuid:
        return Distance.SELF
    if one.host is not None and one.host == other.host:
        return Distance.SAME_HOST
    if one.switch is not None and one.switch == other.switch:
        return Distance.SAME_SWITCH
    if one.rack is not None and one.rack == other.rack:
        return Distance.SAME_RACK
    return Distance.FAR


def mpi_nics(member: Member) -> tuple[Nic, ...]:
    """NICs that carry MPI messages, by network configuration.

    HPCVirt'09 section 4: two for ``multiple-shared``; the own uplink's for
    ``separate``, ``exported`` and ``shared-separate`` (the route, not the
    address, chooses the shared bridge there); ``shared`` has one.
    """
    if not member.nics:
        return ()
    if member.network == 'multiple-shared':
        return member.nics[-2:]
    return (own_nic(member),)


def own_nic(member: Member) -> Nic:
    """The NIC on the member's own uplink (``vhpc:uplink_nic``)."""
    index = member.uplink_nic
    if index is None or index >= len(member.nics):
        index = -1
    return member.nics[index]


def shared_nic(member: Member) -> Nic | None:
    """The first NIC that is not on the own uplink, if there is one."""
    own = own_nic(member)
    return next((nic for nic in member.nics if nic is not own), None)


def covering(addresses: Iterable[Address]) -> Network | None:
    """The smallest network that holds all addresses of one IP version.

    Guests are told subnets rather than interface names, which differ from
    image to image.
    """
    numbers = sorted(addresses, key=lambda a: (a.version, int(a)))
    if not numbers:
        return None
    first = numbers[0]
    same = [a for a in numbers if a.version == first.version]
    bits = first.max_prefixlen
    differing = (int(first) ^ int(same[-1])).bit_length()
    return ipaddress.ip_network(f'{first}/{bits - differing}', strict=False)
