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

"""What one request asks of a host, and whether the host has it."""

import time
from collections.abc import Sequence
from typing import Any

from nova_vhpc.scheduler.hosts import capacity, pci, requirements
from nova_vhpc.scheduler.hosts import state as hosts_
from nova_vhpc.scheduler.session import candidates
from nova_vhpc.scheduler.session.host_info import HostInfo
from nova_vhpc.scheduler.sources import snapshot as snapshots
from nova_vhpc.scheduler.sources import uplink_cache
from nova_vhpc.scheduler.sources.nova_db import MoveSource


class HostFit:
    """Judges hosts for the members of one request, all of them alike.

    :param conf: nova-scheduler's ConfigOpts, with ``[vhpc_scheduler]``.
    :param move_source: what a member that is moved has where it is.
    :ivar wanted: what the flavor asks of a host.
    :ivar pinned: whether each member has dedicated CPUs only.
    """

    def __init__(
        self, spec_obj: Any, conf: Any, move_source: MoveSource | None = None
    ) -> None:
        group = conf.vhpc_scheduler
        self._pci_requests = pci.requested(spec_obj)
        pinned = hosts_.pinned_vcpus(spec_obj)
        shared = spec_obj.vcpus - pinned
        self.pinned = shared <= 0
        if self.pinned:
            pinned += hosts_.emulator_cpus(spec_obj)
        self.wanted = requirements.requirements(
            spec_obj.flavor.extra_specs,
            # Of a server with both kinds, those that share CPUs are judged;
            # Nova itself counts the dedicated ones.
            pinned if self.pinned else shared,
            pci.asked(self._pci_requests),
            group.spare_cpus,
            group.max_overcommit,
        )
        self._by_devices = (
            self.wanted.rule is not None and self.wanted.rule.devices
        )
        self.defaults = capacity.Defaults.of(conf)
        self._move_source = move_source
        self._read: snapshots.Snapshot | None = None
        self._topology, self._limits = self._read_topology(conf)

    def fit_result(
        self, state: Any, offered: frozenset[str] | None
    ) -> requirements.FitResult:
        """Whether a host can serve one more member.

        :param offered: uplinks that Placement offers; None without a claim.
        """
        topology = None
        if self._topology is not None:
            topology = self._topology.hosts.get(state.uuid)
        view = self._view(state, topology, offered)
        return requirements.evaluate(view, self.wanted, self._limits)

    def _view(
        self,
        state: Any,
        topology: snapshots.HostUplinks | None = None,
        offered: frozenset[str] | None = None,
    ) -> requirements.HostView:
        cpus = hosts_.cpus(state, self.pinned)
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
        """Why CPUs or devices do not serve one more member, or None."""
        return requirements.capacity_reason(self._view(state), self.wanted)

    def usable(self, state: Any) -> Sequence[Any]:
        """Allocation candidates of a host that serve a member."""
        found: Sequence[Any] = state.allocation_candidates
        if self.pinned:
            found = candidates.dedicated(found)
        if self._by_devices:
            return [
                candidate
                for candidate in found
                if pci.supported(state, self._pci_requests, candidate)
            ]
        return found

    def slots(self, host_info: HostInfo) -> int:
        """Members whose uplinks, devices and disk the host can still give."""
        slots = host_info.fit_result.slots
        state = host_info.state
        if host_info.reservations is not None and (
            host_info.placed or not state.allocation_candidates
        ):
            # Before that, the fit result says the same.
            slots = min(slots, host_info.reservations.members_left())
        if self._by_devices:
            slots = min(slots, pci.members(state, self._pci_requests))
        asked = candidates.asked(state.allocation_candidates, state.uuid)
        return min(
            slots,
            hosts_.members_beside(
                state,
                asked,
                self.defaults,
                self.pinned,
                self.resources(host_info),
                host_info.placed,
            ),
        )

    def resources(self, host_info: HostInfo) -> capacity.Resources:
        """What Placement has of a host's own; empty if unknown."""
        found = self._read and self._read.hosts.get(host_info.state.uuid)
        return found.resources if found else hosts_.NOTHING

    def source_vcpus(self, state: Any) -> int:
        """vCPUs in use on a host that the member frees by its resize there.

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
        if not hosts_.cpus(state, pinned=True).dedicated:
            # All vCPUs count together there.
            return move_source.shared + move_source.dedicated
        return 0 if self.pinned else move_source.shared

    def _read_topology(
        self, conf: Any
    ) -> tuple[snapshots.Snapshot | None, requirements.Limits]:
        reader = uplink_cache.reader(conf)
        if not self.wanted.needs_topology:
            # The planner does better with it, and well enough without.
            self._read = reader.latest()
            return None, requirements.NO_LIMITS
        snapshot, reason = reader.snapshot()
        self._read = snapshot
        group = conf.vhpc_scheduler
        return snapshot, requirements.Limits(
            now_minutes=time.time() / 60,
            max_age_s=group.topology_max_age,
            allow_unknown=group.unknown_topology == 'allow',
            snapshot_reason=reason,
        )
