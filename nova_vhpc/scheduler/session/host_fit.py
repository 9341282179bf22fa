# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Whether, and for how many members, a host fits a request."""

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_vhpc.scheduler.hosts import (
    capacity,
    networks,
    pci,
    ports,
    requirements,
)
from nova_vhpc.scheduler.hosts import state as host_state
from nova_vhpc.scheduler.hosts.fabric import Fabric
from nova_vhpc.scheduler.planner.model import HostFacts
from nova_vhpc.scheduler.session import candidates
from nova_vhpc.scheduler.sources import claimed_rails, uplink_cache
from nova_vhpc.scheduler.sources import snapshot as snapshots
from nova_vhpc.scheduler.sources.nova_db import MoveSource

ATTRIBUTE = '_vhpc'
"""Attribute of a host state that holds its :class:`HostInfo`."""


class HostInfo:
    """Facts about one host in one session; the host state holds it.

    :ivar session: the :class:`SchedulingSession` that the host belongs to.
    :ivar seen: ``HostState.num_instances`` when last examined; it
        grows when a member is placed.
    :ivar placed: members of the request that Nova has placed on it.
    :ivar weight: raw weight for the next member.
    :ivar multiplier: weight multiplier of the host.
    :ivar candidates: ordered allocation candidates for the next member; other
        filters may have replaced them on the host state.
    """

    __slots__ = (
        'candidates',
        'fit_result',
        'multiplier',
        'name',
        'placed',
        'reservations',
        'seen',
        'session',
        'state',
        'weight',
    )

    def __init__(
        self,
        state: Any,
        session: Any,
        fit_result: requirements.FitResult,
    ) -> None:
        self.state = state
        self.session = session
        self.fit_result = fit_result
        self.seen: int = state.num_instances
        self.placed = 0
        self.weight = 0.0
        self.multiplier = 1.0
        self.name = ''
        self.reservations: candidates.UplinkReservations | None = None
        self.candidates: candidates.Candidates | None = None


class HostFit:
    """Checks hosts against the requirements of one request's members.

    All members of a multi-create request have the same requirements.

    :param conf: nova-scheduler's ConfigOpts, with ``[vhpc_scheduler]``.
    :param move_source: host and vCPUs of a member that is moved, else None.
    :param network_metadata: Nova's NetworkMetadata of a member, None if
        unknown.
    :ivar requirements: what one member asks of its host.
    :ivar pinned: whether all vCPUs of a member have dedicated CPUs.
    """

    def __init__(
        self,
        spec_obj: Any,
        conf: Any,
        move_source: MoveSource | None = None,
        network_metadata: Any = None,
    ) -> None:
        group = conf.vhpc_scheduler
        self._pci_requests = pci.requested(spec_obj)
        pinned = host_state.pinned_vcpus(spec_obj)
        shared = spec_obj.vcpus - pinned
        self.pinned = shared <= 0
        if self.pinned:
            pinned += host_state.emulator_cpus(spec_obj)
        port_requests = ports.requested(spec_obj)
        wanted = requirements.of_flavor(
            spec_obj.flavor.extra_specs,
            # For a server with both kinds, the vCPUs that share CPUs are
            # checked; Nova itself counts the dedicated ones.
            pinned if self.pinned else shared,
            pci.device_count(self._pci_requests),
            group.spare_cpus,
            group.max_overcommit,
            port_requests,
            networks.of_member(
                network_metadata,
                [trait for each in port_requests for trait in each.physnets],
            ),
        )
        rule = wanted.rule
        if rule is not None and wanted.port_requests and wanted.flaw is None:
            wanted = dataclasses.replace(
                wanted,
                flaw=ports.flaw(network_metadata, rule, wanted.port_requests),
            )
        self.requirements = wanted
        self._member = host_state.Member(
            self.pinned, wanted.vcpus, spec_obj.memory_mb
        )
        self._by_devices = rule is not None and rule.devices
        self.defaults = capacity.Defaults.from_conf(conf)
        self._move_source = move_source
        self._snapshot: snapshots.Snapshot | None = None
        self._cache = uplink_cache.for_process(conf)
        self._topology, self._limits = self._read_topology(conf)
        if wanted.networks is not None and self._topology is not None:
            self.requirements = dataclasses.replace(
                wanted,
                networks=wanted.networks.with_encap_ips(
                    self._topology.has_tunnels
                ),
            )

    def fit_result(
        self, state: Any, offered: frozenset[str] | None
    ) -> requirements.FitResult:
        """Return whether a host can take one more member.

        :param offered: uuids of the uplinks in the host's allocation
            candidates; None if the flavor has no request group
            for uplinks.
        """
        view = self._view(state, self._uplinks_of(state), offered)
        return requirements.evaluate(view, self.requirements, self._limits)

    def _uplinks_of(self, state: Any) -> snapshots.HostUplinks | None:
        if self._topology is None:
            return None
        return self._topology.hosts.get(state.uuid)

    def _view(
        self,
        state: Any,
        topology: snapshots.HostUplinks | None = None,
        offered: frozenset[str] | None = None,
    ) -> requirements.HostView:
        cpus = host_state.cpus(state, self.pinned)
        return requirements.HostView(
            cpus.total,
            cpus.used - self.source_vcpus(state),
            topology,
            offered,
            (
                pci.shortage(state, self._pci_requests)
                if self._by_devices
                else None
            ),
        )

    def capacity_reason(self, state: Any) -> str | None:
        """Return why CPUs or devices do not suffice, None if they do."""
        return requirements.capacity_reason(
            self._view(state), self.requirements
        )

    def usable(self, state: Any) -> Sequence[Any]:
        """Return the host's allocation candidates that suit a member."""
        usable: Sequence[Any] = state.allocation_candidates
        if self.pinned:
            usable = candidates.dedicated(usable)
        wanted = self.requirements
        topology = self._uplinks_of(state) if wanted.port_requests else None
        if topology is not None:
            assert wanted.rule is not None
            port_fit = ports.fit(
                wanted.rule,
                wanted.port_requests,
                topology,
                wanted.specs.min_link_mbps,
            )
            return [
                candidate
                for candidate in usable
                if port_fit.allows(wanted.rule, candidate)
            ]
        if self._by_devices:
            return [
                candidate
                for candidate in usable
                if pci.supported(state, self._pci_requests, candidate)
            ]
        return usable

    def slots(self, host_info: HostInfo) -> int:
        """Return how many members its uplinks, devices and disk serve."""
        slots = host_info.fit_result.slots
        state = host_info.state
        if host_info.reservations is not None and (
            host_info.placed or not state.allocation_candidates
        ):
            # Before that, the fit result says the same.
            slots = min(slots, host_info.reservations.members_left())
        if self.requirements.port_requests and not host_info.placed:
            # That Placement offers the host is newer than the snapshot.
            slots = max(1, slots)
        if self._by_devices:
            slots = min(slots, pci.members(state, self._pci_requests))
        host_resources = candidates.host_resources(
            state.allocation_candidates, state.uuid
        )
        return min(
            slots,
            host_state.members_beside(
                state,
                host_resources,
                self.defaults,
                self.pinned,
                self.resources(host_info),
                host_info.placed,
            ),
        )

    def facts(self, host_info: HostInfo, fabric: Fabric) -> HostFacts:
        """Return what the planner needs to know about a named host."""
        state = host_info.state
        facts = host_state.facts(
            state,
            host_info.name,
            self.slots(host_info),
            host_info.fit_result.link_mbps,
            fabric,
            self.defaults,
            self._member,
            self.resources(host_info),
            host_info.placed,
        )
        reservations = host_info.reservations
        if self.requirements.rails_matter and reservations is not None:
            facts = facts._replace(rails=reservations.free_rails())
        if source_vcpus := self.source_vcpus(state):
            facts = facts._replace(used_vcpus=facts.used_vcpus - source_vcpus)
        return facts

    def resources(self, host_info: HostInfo) -> capacity.Resources:
        """Return the host's own resources in Placement; empty if unknown."""
        uplinks = self._snapshot and self._snapshot.hosts.get(
            host_info.state.uuid
        )
        return uplinks.resources if uplinks else host_state.NOTHING

    def claimed_rails(
        self, uuids: Iterable[str]
    ) -> Mapping[str, Mapping[str, int]]:
        """Return the rails that members have claimed, as far as known.

        :param uuids: UUIDs of members that may run.
        :returns: number of members by rail, by UUID of the host.
        """
        if self._topology is None:
            return {}
        return claimed_rails.of_members(
            uuids, self._topology.hosts, self._cache.get
        )

    def source_vcpus(self, state: Any) -> int:
        """Return the vCPUs that a resize on the same host frees.

        Nova counts them until the resize is confirmed, but the old ones and
        the new ones never run at the same time. Of a host's dedicated CPUs it
        wants both to be free.
        """
        move_source = self._move_source
        if (
            move_source is None
            or state.host != move_source.host
            or state.nodename != move_source.node
        ):
            return 0
        if not host_state.cpus(state, pinned=True).dedicated:
            # All vCPUs count together there.
            return move_source.shared + move_source.dedicated
        return 0 if self.pinned else move_source.shared

    def _read_topology(
        self, conf: Any
    ) -> tuple[snapshots.Snapshot | None, requirements.Limits]:
        cache = self._cache
        if not self.requirements.needs_topology:
            # The planner uses a snapshot if there is one; never wait for it.
            self._snapshot = cache.latest()
            return None, requirements.NO_LIMITS
        snapshot, reason = cache.snapshot()
        self._snapshot = snapshot
        group = conf.vhpc_scheduler
        return snapshot, requirements.Limits(
            now_minutes=time.time() / 60,
            max_age_s=group.topology_max_age,
            allow_unknown=group.unknown_topology == 'allow',
            snapshot_reason=reason,
        )
