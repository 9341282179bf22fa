# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A request to explain, before the hosts are known."""

import dataclasses
import time
from collections.abc import Iterable, Mapping

from nova_vhpc.explain import member_ports, model
from nova_vhpc.flavor import (
    cpu_policy,
    extra_specs,
    pci_aliases,
    validation,
)
from nova_vhpc.scheduler.hosts.requirements import (
    Limits,
    of_flavor,
)
from nova_vhpc.scheduler.planner.cost_table import PAPER, CostTable
from nova_vhpc.scheduler.session.assembly import Cluster

MOST_MEMBERS = extra_specs.BY_NAME['members'].maximum or 0
"""Most members of a cluster of which some are to come."""


class RequestError(ValueError):
    """The request cannot be read; the message names place and problem."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options of ``[vhpc_scheduler]`` that an explanation depends on."""

    spare_cpus: int = 0
    max_overcommit: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: {'openmp': 1.0, 'hybrid': 1.0}
    )
    allow_unknown: bool = False
    topology_max_age_s: int = 1200
    weight_of_unknown: float = -1.0
    weight_multiplier: float = 20.0
    costs: CostTable = PAPER


@dataclasses.dataclass(frozen=True, slots=True)
class Flavor:
    """The part of a flavor that an explanation depends on.

    :ivar vcpus: number of vCPUs.
    :ivar ram_mb: RAM in MB.
    :ivar extra_specs: all extra specs.
    :ivar disk_gb: root disk, ephemeral disk and swap, in GB.
    :ivar name: name of the flavor, or None.
    """

    vcpus: int
    ram_mb: int
    extra_specs: Mapping[str, str]
    disk_gb: int = 0
    name: str | None = None

    @property
    def pinned(self) -> bool:
        """Whether all vCPUs get a dedicated CPU each."""
        return self.checked_vcpus[1]

    @property
    def checked_vcpus(self) -> tuple[int, bool]:
        """Number of vCPUs that filter and planner check; whether dedicated.

        Of a flavor with both kinds, the vCPUs that share CPUs are checked. If
        all have dedicated CPUs, that of the emulator threads counts, too.
        """
        dedicated = cpu_policy.dedicated(self.vcpus, self.extra_specs)
        shared = self.vcpus - dedicated
        if shared > 0:
            return shared, False
        emulator_cpus = cpu_policy.emulator_cpus(dedicated, self.extra_specs)
        return dedicated + emulator_cpus, True


@dataclasses.dataclass(frozen=True, slots=True)
class ExplainRequest:
    """A request to explain, without the hosts.

    :ivar flavor: the flavor, None if it must be looked up.
    :ivar flavor_name: name or ID of a flavor to look up, or None.
    :ivar members: number of members to place now.
    :ivar group_name: name or ID of a server group to look up, or None.
    :ivar policy: policy of the server group, None without a group.
    :ivar max_server_per_host: rule of the policy ``anti-affinity``, or None.
    :ivar existing: number of running members by host name.
    :ivar running_members: UUIDs of these members.
    :ivar unlocated: number of members of which Nova does not tell whether and
        where they run.
    :ivar running_rails: number of them by rail, by host name, as far as known.
    :ivar cluster_members: number of members that the cluster will have, as in
        the scheduler hint ``vhpc_members``; None if there is no hint.
    :ivar devices: number of PCI devices of one member's ports.
    :ivar ports: ports of one member on provider networks.
    :ivar tunneled: whether one member has a port on a tunneled network.
    :ivar options: options of ``[vhpc_scheduler]``.
    """

    flavor: Flavor | None = None
    flavor_name: str | None = None
    members: int = 1
    group_name: str | None = None
    policy: str | None = None
    max_server_per_host: int | None = None
    existing: Mapping[str, int] = dataclasses.field(default_factory=dict)
    running_members: tuple[str, ...] = ()
    unlocated: int = 0
    running_rails: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict
    )
    cluster_members: int | None = None
    devices: int = 0
    ports: tuple[member_ports.Port, ...] = ()
    tunneled: bool = False
    options: Options = dataclasses.field(default_factory=Options)

    def question(
        self, hosts: tuple[model.Host, ...], now_s: float | None = None
    ) -> model.Question:
        """Return the question for :func:`explain.explain`.

        :param now_s: present time in seconds since the epoch; the clock's if
            None.
        """
        options = self.options
        flavor = self.flavor
        if flavor is None:
            raise RequestError('flavor: it has not been looked up')
        networks = member_ports.networks(self.ports, self.tunneled)
        if networks is not None:
            networks = networks.with_encap_ips(_has_encap_ips(hosts))
        requirements = of_flavor(
            flavor.extra_specs,
            flavor.checked_vcpus[0],
            self.devices + pci_aliases.devices(flavor.extra_specs),
            options.spare_cpus,
            options.max_overcommit,
            member_ports.requests(self.ports),
            networks,
        )
        if self.cluster_members is not None:
            if self.policy is None:
                raise RequestError('cluster_members: needs a server group')
            if self.cluster_members > MOST_MEMBERS:
                raise RequestError(
                    f'cluster_members: {self.cluster_members} is more than '
                    f'{MOST_MEMBERS}, nova-scheduler would ignore it'
                )
        size = self.cluster_members or requirements.specs.members or 0
        known = self.members + sum(self.existing.values()) + self.unlocated
        # Without a server group, the scheduler does not know the others.
        expected = max(0, size - known) if self.policy else 0
        return model.Question(
            cluster=Cluster(
                requirements,
                flavor.ram_mb,
                self.members + expected,
                expected,
                self.existing,
                self.policy,
                self.max_server_per_host,
                options.costs,
                self.running_rails if requirements.rails_matter else {},
            ),
            hosts=hosts,
            limits=Limits(
                now_minutes=(time.time() if now_s is None else now_s) / 60,
                max_age_s=options.topology_max_age_s,
                allow_unknown=options.allow_unknown,
            ),
            weight_of_unknown=options.weight_of_unknown,
            multiplier=options.weight_multiplier,
            unlocated=self.unlocated,
            flaws=tuple(validation.problems(flavor.extra_specs)),
        )


def _has_encap_ips(hosts: Iterable[model.Host]) -> bool:
    """Return whether any host has an uplink with an encap IP of OVN."""
    return any(
        uplink.tunnel
        for host in hosts
        if host.view.topology is not None
        for uplink in host.view.topology.uplinks
    )
