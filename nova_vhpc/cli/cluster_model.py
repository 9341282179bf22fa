# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A virtual cluster as ``openstack vhpc cluster`` shows it. Pure values.

What the user may not see is None, never an empty list or 0.
"""

import dataclasses
from collections.abc import Mapping

from nova_vhpc.scheduler.planner.model import Tier
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState

UNKNOWN = 'UNKNOWN'
"""Nova's status of servers in a cell that is down."""

SILENT_MINUTES = 20
"""Minutes without a publication after which an agent probably does not run:
the default of ``[vhpc_scheduler] topology_max_age``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One server of a virtual cluster.

    :ivar uuid: UUID of the server.
    :ivar name: name of the server.
    :ivar status: Nova's status of the server, such as ``ACTIVE``.
    :ivar running: whether the server runs; None if Nova does not know.
    :ivar vcpus: number of vCPUs; None if Nova does not say.
    :ivar flavor: name of the flavor; None if Nova does not say.
    :ivar specs: extra specs of the flavor; None if Nova does not say.
    :ivar host_id: Nova's ID of the host, which differs by project; None
        without a host.
    :ivar host: name of the host; None without one or if it may not be seen.
    :ivar project_id: ID of its project; an administrator can put servers of
        several into one group.
    :ivar hostname: name that Nova tells the guest; None if unknown.
    :ivar claims: UUIDs of the uplinks that the server has claimed.
    """

    uuid: str
    name: str
    status: str
    running: bool | None
    vcpus: int | None
    flavor: str | None
    specs: Mapping[str, str] | None
    host_id: str | None = None
    host: str | None = None
    project_id: str = ''
    hostname: str | None = None
    claims: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MemberState:
    """What the agent of a member's host says of the member.

    :ivar received: CPU time received, as a part of what stock Linux would
        give; None if that is not measured.
    :ivar latency_us: synchronisation latency in the last control period.
    :ivar problem: why the agent does not control the member; empty if it
        does.
    :ivar waiting: how its program waits, in words; None if unknown.
    :ivar remedy: what to do about that; empty if unknown.
    :ivar held_up: whether its vCPUs never sleep, and siblings are held up.
    """

    received: float | None = None
    latency_us: float | None = None
    problem: str = ''
    waiting: str | None = None
    remedy: str = ''
    held_up: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """One compute host.

    :ivar name: name of the host in Nova.
    :ivar cpus: number of CPUs.
    :ivar used_vcpus: number of vCPUs of all servers.
    :ivar state: ``up`` or ``down``.
    :ivar switch: switch that the host is at; None if no aggregate names one.
    :ivar rack: rack that the host is in; likewise.
    :ivar uplinks: what its agent has published; None if none has.
    :ivar silent_minutes: minutes since its agent last published; None if
        unknown.
    :ivar published_known: whether the user may see what agents publish.
    """

    name: str
    cpus: int
    used_vcpus: int
    state: str = 'up'
    switch: str | None = None
    rack: str | None = None
    uplinks: HostUplinks | None = None
    silent_minutes: int | None = None
    published_known: bool = True

    @property
    def has_no_agent(self) -> bool:
        """Whether no agent has published its uplinks, as far as is known."""
        return self.uplinks is None and self.published_known

    @property
    def silent(self) -> bool:
        """Whether its agent has published before, but not lately."""
        minutes = self.silent_minutes
        return minutes is not None and minutes > SILENT_MINUTES

    @property
    def overcommit(self) -> float:
        """Number of vCPUs per CPU."""
        return self.used_vcpus / self.cpus if self.cpus else 0.0

    def uplink(self, uuid: str) -> UplinkState | None:
        """Return an uplink of the host; None if it is not of this host."""
        for uplink in self.uplinks.uplinks if self.uplinks else ():
            if uplink.uuid == uuid:
                return uplink
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """A virtual cluster.

    :ivar uuid: UUID of the server group.
    :ivar name: name of the server group.
    :ivar project_id: ID of the project.
    :ivar policy: policy of the server group.
    :ivar members: members, by name.
    :ivar hosts: hosts of the members, by name; None if they may not be seen.
    :ivar states: what agents say of members, by UUID; None if the agents
        cannot be asked from here.
    """

    uuid: str
    name: str
    project_id: str
    policy: str
    members: tuple[Member, ...]
    hosts: Mapping[str, Host] | None = None
    states: Mapping[str, MemberState] | None = None

    @property
    def running(self) -> int | None:
        """Number of members that run; None if Nova does not know of all."""
        if any(member.running is None for member in self.members):
            return None
        return sum(bool(member.running) for member in self.members)

    @property
    def vcpus(self) -> int | None:
        """Number of vCPUs of all members; None if Nova does not say."""
        found = [member.vcpus for member in self.members]
        return None if None in found else sum(filter(None, found))

    @property
    def host_count(self) -> int | None:
        """Number of hosts that members are on; None if Nova does not say."""
        if self._is_cell_down:
            return None
        return len({m.host_id for m in self.members if m.host_id})

    @property
    def _is_cell_down(self) -> bool:
        """Whether Nova tells nothing but the ID of a member."""
        return any(member.status == UNKNOWN for member in self.members)

    @property
    def received(self) -> float | None:
        """CPU time of the member that received least; None if unknown.

        The whole program waits for that member.
        """
        found = [
            state.received
            for member in self.members
            if (state := (self.states or {}).get(member.uuid)) is not None
            and state.received is not None
        ]
        return min(found, default=None)

    @property
    def tier(self) -> Tier | None:
        """Smallest part of the fabric with all members; None if unknown.

        Members that have no host now are left out.
        """
        if self._is_cell_down:
            return None
        if self.host_count == 1:
            return Tier.HOST
        if not self.hosts:
            return None
        if any(m.host not in self.hosts for m in self.members if m.host):
            return None
        hosts = self.hosts.values()
        for tier, places in (
            (Tier.SWITCH, {host.switch for host in hosts}),
            (Tier.RACK, {host.rack for host in hosts}),
        ):
            if len(places) == 1 and None not in places:
                return tier
        if None in {host.rack for host in hosts}:
            return None
        return Tier.ALL
