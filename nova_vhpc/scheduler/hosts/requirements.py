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

"""What a request asks of a host, and whether a host can give it.

Pure: shared by the filter and by ``nova-vhpc-explain``.
:func:`evaluate` is the door. No answer of it ever changes from no to yes
while the members of one request are placed one after another, which Nova
relies on: it drops a rejected host for all later members.
"""

import dataclasses
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from nova_vhpc.flavor import extra_specs, request_groups
from nova_vhpc.scheduler.hosts import network_fit
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources.snapshot import HostUplinks, UplinkState

_OVERCOMMIT = extra_specs.BY_NAME['max_overcommit']

UNLIMITED = 1e6
"""Over-commit of a request that sets no limit: more vCPUs per CPU than
any host has. Finite, since the planner divides by it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Requirements:
    """What one member asks of its host.

    :ivar specs: the flavor's ``vhpc:*`` extra specs.
    :ivar vcpus: of one member.
    :ivar requested_uplinks: uplinks that one member claims, one for each of
        the flavor's request groups for uplinks.
    :ivar devices: PCI devices that one member asks for.
    :ivar spare_cpus: host CPUs to leave free.
    :ivar max_overcommit: vCPUs per other host CPU at most.
    :ivar limited_by: who says so, for operators.
    :ivar rule: of the network configuration, None without one.
    :ivar flaw: why no host at all can serve the flavor, or None.
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

    @property
    def needs_topology(self) -> bool:
        """Whether it matters what the agent published."""
        return self.rule is not None and bool(
            self.rule.bridges or self.rule.beside
        )


class HostView(NamedTuple):
    """What is known of one host; a named tuple as there are thousands.

    :ivar vcpus_total: host CPUs.
    :ivar vcpus_used: vCPUs of its guests.
    :ivar topology: what its agent published; None if nothing.
    :ivar offered: uuids of the uplinks that Placement offers in its
        allocation candidates, which is newer than the snapshot; None when
        there are no candidates to go by.
    :ivar devices_reason: why its PCI devices do not serve, None if they do.
    """

    vcpus_total: int
    vcpus_used: int
    topology: HostUplinks | None = None
    offered: Set[str] | None = None
    devices_reason: str | None = None


class FitResult(NamedTuple):
    """Whether a host can serve a member.

    :ivar reason: why not, for operators; None if it can.
    :ivar uplinks: those that serve the network configuration.
    :ivar slots: members whose uplink claims the host can still take.
    :ivar link_mbps: slowest link among those that a member can still have;
        0 if unknown.
    :ivar unknown: whether it was let through with unknown topology.
    """

    reason: str | None = None
    uplinks: tuple[UplinkState, ...] = ()
    slots: int = NO_LIMIT
    link_mbps: int = 0
    unknown: bool = False

    @property
    def passes(self) -> bool:
        """Whether the host stays in."""
        return self.reason is None


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How strictly topology is judged.

    :ivar now_minutes: minutes since the epoch.
    :ivar max_age_s: older stamps are stale; 0 for never.
    :ivar allow_unknown: whether unknown or stale topology passes.
    :ivar snapshot_reason: why there is no usable snapshot at all.
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
) -> Requirements:
    """What a flavor asks of a host.

    :param flavor_specs: all extra specs of the flavor.
    :param devices: PCI devices asked for by alias or SR-IOV port.
    :param default_max_overcommit: by paradigm, for flavors without
        ``vhpc:max_overcommit``; absent for no limit.
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
        # A CPU is not spare while the guests outnumber the others.
        overcommit = 1.0
        limited_by = (
            f'with spare CPUs and no {_OVERCOMMIT.full_name} the limit'
        )
    rule = None
    if specs.network is not None:
        rule = network_fit.RULES[specs.network]
    elif specs.min_link_mbps or uplinks:
        rule = network_fit.ANY
    return Requirements(
        specs=specs,
        vcpus=max(1, vcpus),
        requested_uplinks=uplinks,
        devices=devices,
        spare_cpus=spare_cpus,
        max_overcommit=UNLIMITED if overcommit is None else overcommit,
        limited_by=limited_by,
        rule=rule,
        flaw=_overcommit_flaw(flavor_specs, specs)
        or request_groups.flaw(specs.network, uplinks, devices),
    )


def evaluate(
    host: HostView, requirements: Requirements, limits: Limits = NO_LIMITS
) -> FitResult:
    """Whether a host can serve one more member.

    :returns: a fit_result whose reason names CPU count, bridge, NIC or link.
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
            return FitResult(
                slots=len(host.offered) if host.offered else NO_LIMIT,
                unknown=True,
            )
        return FitResult(reason)
    fit = network_fit.fit(
        rule, topology.uplinks, requirements.specs.min_link_mbps
    )
    if fit.reason is not None:
        return FitResult(fit.reason)
    slots = NO_LIMIT
    slowest = fit.uplinks[-1]
    if requirements.requested_uplinks:
        left = claimable(host, fit.uplinks)
        slots = network_fit.members(
            rule, [(u.bridge, u.free or 1) for u in left]
        )
        if not slots:
            return FitResult(
                'Placement offers none of its fitting uplinks: '
                + network_fit.taken(fit.uplinks)
            )
        slowest = left[-1]
    return FitResult(None, fit.uplinks, slots, slowest.mbps)


def claimable(
    host: HostView, uplinks: Sequence[UplinkState]
) -> list[UplinkState]:
    """Of these uplinks of a host, those that a member can still claim."""
    offered = host.offered
    if offered is None:
        return [u for u in uplinks if u.free]
    # Placement's offer is newer than our count of what is used.
    return [u for u in uplinks if u.uuid in offered]


def _overcommit_flaw(
    flavor_specs: Mapping[str, str], specs: extra_specs.ExtraSpecs
) -> str | None:
    """Why a limit that cannot be read, or is zero, leaves no host.

    Only an API older than microversion 2.86 lets it through. To go on with
    another limit, or none, would put guests where they were not to be.
    """
    name = _OVERCOMMIT.full_name
    if name not in flavor_specs or specs.max_overcommit is not None:
        return None
    return (
        f'the flavor says {name}={flavor_specs[name]}, which leaves no '
        f'host: it takes {_OVERCOMMIT.allowed}; 1.0 is one vCPU per CPU'
    )


def capacity_reason(host: HostView, requirements: Requirements) -> str | None:
    """Why a host's CPUs or PCI devices do not serve one more member."""
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
        # The stamp counts whole minutes, so it may be one behind.
        age_s = (limits.now_minutes - topology.stamp_minutes - 1) * 60
        if age_s > limits.max_age_s:
            return (
                f'its agent last published {age_s / 60:.0f} minutes ago, '
                f'topology_max_age is {limits.max_age_s} s: is '
                'nova-vhpc-agent running there?'
            )
    return None
