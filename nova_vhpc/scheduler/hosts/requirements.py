# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Check whether a host meets the requirements of one more member.

Pure: shared by the filter and by ``nova-vhpc-explain``. :func:`evaluate` is
the entry point. While the members of one request are placed, a host that was
rejected never passes again: Nova drops a rejected host for all later members.
"""

import dataclasses
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from nova_vhpc.flavor import extra_specs, request_groups
from nova_vhpc.scheduler.hosts import network_fit, ports
from nova_vhpc.scheduler.hosts.networks import Networks
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState

_OVERCOMMIT = extra_specs.BY_NAME['max_overcommit']
_MAX_TIER = extra_specs.BY_NAME['max_tier']

UNLIMITED = 1e6
"""``max_overcommit`` of a request without a limit: more vCPUs per CPU than any
host has, but finite, because the planner divides by it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Requirements:
    """What one member needs of its host.

    :ivar specs: the flavor's ``vhpc:*`` extra specs.
    :ivar vcpus: number of the member's vCPUs that are checked.
    :ivar requested_uplinks: uplinks that one member claims, one for each of
        the flavor's request groups for uplinks.
    :ivar devices: number of PCI devices that one member requests.
    :ivar spare_cpus: number of host CPUs to leave free.
    :ivar max_overcommit: vCPUs per remaining host CPU, at most.
    :ivar limited_by: name of the extra spec or option that sets
        ``max_overcommit``, for operators.
    :ivar rule: uplinks that the network configuration needs, None without
        network configuration.
    :ivar flaw: why no host at all can serve the flavor, or None.
    :ivar port_requests: what the member's ports request, if they bring its
        uplinks; empty if the flavor requests uplinks.
    :ivar networks: networks that the member is on, None if unknown.
    """

    specs: extra_specs.ExtraSpecs
    vcpus: int
    requested_uplinks: int = 0
    devices: int = 0
    spare_cpus: int = 0
    max_overcommit: float = UNLIMITED
    limited_by: str = _OVERCOMMIT.full_name
    rule: network_fit.Rule | None = None
    flaw: str | None = None
    port_requests: tuple[ports.PortRequest, ...] = ()
    networks: Networks | None = None

    @property
    def needs_topology(self) -> bool:
        """Whether the check needs the uplinks that the agent published."""
        return self.rule is not None and bool(
            self.rule.bridges or self.rule.beside
        )

    @property
    def rails_matter(self) -> bool:
        """Whether the rail of an uplink matters to a member's packets.

        It does where the encap IP of one claimed uplink steers them. A member
        with two claims has an uplink on two rails anyway.
        """
        return (
            self.networks is not None
            and self.networks.uses_encap_ips
            and self.requested_uplinks == 1
            and not self.port_requests
        )


class HostView(NamedTuple):
    """Values of one host that the check needs.

    A named tuple, because it is faster to make than a dataclass and a request
    makes thousands.

    :ivar vcpus_total: number of host CPUs.
    :ivar vcpus_used: number of vCPUs of its guests.
    :ivar topology: uplinks that its agent published; None if none were.
    :ivar offered: uuids of the uplinks in its allocation candidates, which
        are newer than the snapshot; None if candidates are unknown.
    :ivar devices_reason: why its PCI devices do not suffice, None if they do.
    """

    vcpus_total: int
    vcpus_used: int
    topology: HostUplinks | None = None
    offered: Set[str] | None = None
    devices_reason: str | None = None


class FitResult(NamedTuple):
    """Whether a host can take one more member.

    :ivar reason: why it cannot, for operators; None if it can.
    :ivar uplinks: uplinks that serve the network configuration.
    :ivar slots: number of further members whose uplinks can be claimed.
    :ivar link_mbps: speed of the slowest link that a member may get, in
        Mbit/s; 0 if unknown.
    :ivar unknown: whether the host passes although its topology is unknown.
    """

    reason: str | None = None
    uplinks: tuple[UplinkState, ...] = ()
    slots: int = NO_LIMIT
    link_mbps: int = 0
    unknown: bool = False

    @property
    def passes(self) -> bool:
        """Whether the host can take one more member."""
        return self.reason is None


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How old or incomplete topology may be.

    :ivar now_minutes: present time, in minutes since the epoch.
    :ivar max_age_s: age in seconds from which topology is stale; 0 for never.
    :ivar allow_unknown: whether hosts of unknown or stale topology pass.
    :ivar snapshot_reason: why there is no usable snapshot, None if there is.
    """

    now_minutes: float = 0.0
    max_age_s: int = 0
    allow_unknown: bool = False
    snapshot_reason: str | None = None


NO_LIMITS = Limits()


def of_flavor(
    flavor_specs: Mapping[str, str],
    vcpus: int,
    devices: int = 0,
    default_spare_cpus: int = 0,
    default_max_overcommit: Mapping[str, float] | None = None,
    port_requests: tuple[ports.PortRequest, ...] = (),
    networks: Networks | None = None,
) -> Requirements:
    """Return what one member of a flavor needs of its host.

    :param flavor_specs: all extra specs of the flavor.
    :param vcpus: number of the member's vCPUs that are checked; 0 counts as 1.
    :param devices: number of PCI devices requested by alias or SR-IOV port.
    :param default_spare_cpus: host CPUs to leave free if the flavor has no
        ``vhpc:spare_cpus``.
    :param default_max_overcommit: limit by paradigm for flavors without
        ``vhpc:max_overcommit``; a paradigm that is not in it has no limit.
    :param port_requests: bandwidth that the member's ports request.
    :param networks: networks that the member is on, None if unknown.
    """
    specs = extra_specs.parse(flavor_specs)
    uplinks = request_groups.requested_uplinks(flavor_specs)
    spare_cpus = (
        default_spare_cpus if specs.spare_cpus is None else specs.spare_cpus
    )
    overcommit = specs.max_overcommit
    limited_by = _OVERCOMMIT.full_name
    if overcommit is None:
        overcommit = (default_max_overcommit or {}).get(specs.paradigm)
        limited_by = f'[vhpc_scheduler] max_overcommit of {specs.paradigm}'
    if overcommit is None and spare_cpus:
        # With more vCPUs than other CPUs, guests would use the spare CPUs.
        overcommit = 1.0
        limited_by = (
            f'with spare CPUs and no {_OVERCOMMIT.full_name} the limit'
        )
    rule = None
    if specs.network is not None:
        rule = network_fit.RULES[specs.network]
    elif specs.min_link_mbps or uplinks:
        rule = network_fit.ANY
    by_ports = rule is not None and request_groups.by_ports(
        specs.network, uplinks, len(port_requests)
    )
    return Requirements(
        specs=specs,
        vcpus=max(1, vcpus),
        requested_uplinks=uplinks,
        devices=devices,
        spare_cpus=spare_cpus,
        max_overcommit=UNLIMITED if overcommit is None else overcommit,
        limited_by=limited_by,
        rule=rule,
        flaw=_limit_flaw(flavor_specs, specs)
        or request_groups.flaw(
            specs.network, uplinks, devices, len(port_requests)
        ),
        port_requests=port_requests if by_ports else (),
        networks=networks,
    )


def evaluate(
    host: HostView, requirements: Requirements, limits: Limits = NO_LIMITS
) -> FitResult:
    """Return whether a host can take one more member.

    :returns: fit result; its reason, if any, names CPU count, bridge, NIC or
        link.
    """
    if requirements.flaw is not None:
        return FitResult(requirements.flaw)
    reason = capacity_reason(host, requirements)
    if reason is not None:
        return FitResult(reason)
    rule = requirements.rule
    if rule is None or not (rule.bridges or rule.beside):
        return FitResult()
    if limits.snapshot_reason is not None:
        return FitResult(limits.snapshot_reason)
    topology = host.topology
    reason = _topology_reason(topology, limits)
    if topology is None or reason is not None:
        if limits.allow_unknown:
            slots = len(host.offered) if host.offered else NO_LIMIT
            return FitResult(
                slots=1 if requirements.port_requests else slots, unknown=True
            )
        return FitResult(reason)
    min_link_mbps = requirements.specs.min_link_mbps
    if requirements.port_requests:
        port_fit = ports.fit(
            rule, requirements.port_requests, topology, min_link_mbps
        )
        return FitResult(
            port_fit.reason, (), port_fit.slots, port_fit.link_mbps
        )
    fit = network_fit.fit(
        rule, topology.uplinks, min_link_mbps, requirements.networks
    )
    if fit.reason is not None:
        return FitResult(fit.reason)
    slots = NO_LIMIT
    slowest = fit.uplinks[-1]
    if requirements.requested_uplinks:
        uplinks = claimable(host, fit.uplinks)
        slots = network_fit.members(
            rule, [(u.path, u.free or 1) for u in uplinks]
        )
        if not slots:
            return FitResult(
                'Placement offers none of its fitting uplinks: '
                + network_fit.taken(fit.uplinks)
            )
        slowest = uplinks[-1]
    return FitResult(None, fit.uplinks, slots, slowest.mbps)


def claimable(
    host: HostView, uplinks: Sequence[UplinkState]
) -> list[UplinkState]:
    """Return those of a host's uplinks that a member can still claim."""
    offered = host.offered
    if offered is None:
        return [u for u in uplinks if u.free]
    # Allocation candidates are newer than the snapshot's counts.
    return [u for u in uplinks if u.uuid in offered]


def _limit_flaw(
    flavor_specs: Mapping[str, str], specs: extra_specs.ExtraSpecs
) -> str | None:
    """Return why an invalid limit of the flavor leaves no host, or None.

    Nova's API accepts such a flavor below microversion 2.86 only. Another
    limit, or none, would place guests where the operator did not want them.
    """
    for key, value, example in (
        (_OVERCOMMIT, specs.max_overcommit, '; 1.0 is one vCPU per CPU'),
        (_MAX_TIER, specs.max_tier, ''),
    ):
        name = key.full_name
        if name in flavor_specs and value is None:
            return (
                f'the flavor says {name}={flavor_specs[name]}, which leaves '
                f'no host: it takes {key.allowed}{example}'
            )
    return None


def capacity_reason(host: HostView, requirements: Requirements) -> str | None:
    """Return why CPUs or PCI devices do not suffice for one more member."""
    return _cpu_reason(host, requirements) or host.devices_reason


def _cpu_reason(host: HostView, requirements: Requirements) -> str | None:
    total = host.vcpus_total
    if not total:
        return 'its nova-compute has reported no CPUs yet'
    used = host.vcpus_used + requirements.vcpus
    usable = total - requirements.spare_cpus
    if used <= usable * requirements.max_overcommit + 1e-9:
        return None
    return (
        f'with this member {used} vCPUs would share '
        f'{max(0, usable)} CPUs ({total} less '
        f'{requirements.spare_cpus} spare); {requirements.limited_by} is '
        f'{requirements.max_overcommit:g}'
    )


def _topology_reason(
    topology: HostUplinks | None, limits: Limits
) -> str | None:
    if topology is None:
        return (
            'no agent has published its uplinks to Placement: is '
            'nova-vhpc-agent running there?'
        )
    if limits.max_age_s and topology.stamp_minutes is not None:
        # The stamp is rounded down to minutes.
        age_s = (limits.now_minutes - topology.stamp_minutes - 1) * 60
        if age_s > limits.max_age_s:
            return (
                f'its agent last published {age_s / 60:.0f} minutes ago, '
                f'topology_max_age is {limits.max_age_s} s: is '
                'nova-vhpc-agent running there?'
            )
    return None
