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

"""One request for members, from its first member to its last.

Filters and weighers are objects that all requests of a scheduler worker
share, and requests run at the same time. What belongs to one request is
therefore kept on its host states, which Nova builds anew for each request
and shares among its members.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from oslo_log import log as logging

from nova_vhpc.scheduler import candidates as candidates_
from nova_vhpc.scheduler import (
    devices,
    fabric,
    requirements,
    room,
    steering,
    uplinks,
    whereabouts,
)
from nova_vhpc.scheduler import hosts as hosts_
from nova_vhpc.scheduler import snapshot as snapshots
from nova_vhpc.scheduler.record import ATTRIBUTE, Record

LOG = logging.getLogger(__name__)


class Request:
    """A request for members of a virtual cluster.

    :param conf: nova-scheduler's ConfigOpts, with ``[vhpc_scheduler]``.
    :ivar members: that are to be placed.
    :ivar moved: whether it is for a member that has been on a host before.
    """

    def __init__(self, spec_obj: Any, conf: Any) -> None:
        self.spec_obj = spec_obj
        self.conf = conf
        group = conf.vhpc_scheduler
        self.pci_requests = devices.requested(spec_obj)
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
            devices.asked(self.pci_requests),
            group.spare_cpus,
            group.max_overcommit,
        )
        self._judges_devices = (
            self.wanted.rule is not None and self.wanted.rule.devices
        )
        self.fabric = fabric.Fabric(group.switch_key, group.rack_key)
        self.defaults = room.Defaults.of(conf)
        self._multiplier = group.weight_multiplier
        self._attempts = group.claim_attempts if self.wanted.claims else 0
        self._read: snapshots.Snapshot | None = None
        self._topology, self.limits = self._read_topology()
        self.moved = _moved(spec_obj)
        self._stopping = None
        # Else it is kept from its host, as Nova does by default.
        if self.moved and not (
            'ignore_hosts' in spec_obj and spec_obj.ignore_hosts
        ):
            self._stopping = whereabouts.stopping(spec_obj)
        self.members = 1
        # A move still names how many its server was booted with.
        if not self.moved and 'num_instances' in spec_obj:
            self.members = int(spec_obj.num_instances)
        self._landed = 0
        self._run = 0
        self._weighed = -1
        self._handed: list[Record] = []
        self.steering = steering.Steering(self)

    @classmethod
    def of(cls, state: Any, spec_obj: Any) -> 'Request | None':
        """The request that a host state is part of, if it is this one."""
        record = getattr(state, ATTRIBUTE, None)
        if record is None or record.request.spec_obj is not spec_obj:
            return None
        found: Request = record.request
        return found

    def filter(self, states: Iterable[Any]) -> list[Any]:
        """The hosts that may take the next member.

        Nova calls this for every member, with the hosts that were left
        over, and once more for alternates. What was judged stays judged;
        only hosts on which something happened are looked at again.
        """
        self._run += 1
        run = self._run
        landed = self._landed
        self._settle()
        rejected: list[tuple[Any, str]] = []
        kept = []
        for state in states:
            record = getattr(state, ATTRIBUTE, None)
            if record is None or record.request is not self:
                record = self._judge(state)
            if record.run == run:
                # One of the duplicates that the last run has added.
                continue
            record.run = run
            if record.seen != state.num_instances:
                self._rejudge(record)
            if record.verdict.reason is None:
                kept.append(state)
            else:
                rejected.append((state, record.verdict.reason))
        if landed < self._landed >= self.members:
            # All members are placed; Nova only looks for alternates, and
            # passes over those without candidates by itself.
            return kept + [state for state, _ in rejected]
        if rejected:
            self._log(rejected, len(kept))
        spare = self._attempts - len(kept)
        if spare > 0:
            kept.extend(self._further_attempts(kept, spare))
        return kept

    def weigh(self, states: Sequence[Any]) -> list[float]:
        """Raw weights of hosts for the next member."""
        if self._weighed == self._run:
            # The filter is not enabled: nobody has looked since.
            self._settle()
        self._weighed = self._run
        return self.steering.weigh(states)

    def record(self, state: Any) -> Record:
        """A host's record, made now if the filter was not asked."""
        record = getattr(state, ATTRIBUTE, None)
        if record is None or record.request is not self:
            record = self._judge(state)
        return record

    def slots(self, record: Record) -> int:
        """Members whose uplinks, devices and disk the host can still give."""
        slots = record.verdict.slots
        state = record.state
        if record.ledger is not None and (
            record.landed or not state.allocation_candidates
        ):
            # Before that, the verdict says the same.
            slots = min(slots, record.ledger.members_left())
        if self._judges_devices:
            slots = min(slots, devices.members(state, self.pci_requests))
        asked = candidates_.asked(state.allocation_candidates, state.uuid)
        return min(
            slots,
            hosts_.members_beside(
                state,
                asked,
                self.defaults,
                self.pinned,
                self.resources(record),
                record.landed,
            ),
        )

    def resources(self, record: Record) -> room.Resources:
        """What Placement has of a host's own; empty if unknown."""
        found = self._read and self._read.hosts.get(record.state.uuid)
        return found.resources if found else hosts_.NOTHING

    def stopping_vcpus(self, state: Any) -> int:
        """vCPUs in use on a host that the member frees by its resize there.

        Nova counts them until the resize is confirmed, but the old ones and
        the new ones never run at the same time. It wants both to be free of
        dedicated CPUs.
        """
        stopping = self._stopping
        if stopping is None or self.pinned or state.host != stopping.host:
            return 0
        return stopping.vcpus if state.nodename == stopping.node else 0

    def _judge(self, state: Any) -> Record:
        record = Record(self, state, requirements.Verdict())
        found = state.allocation_candidates
        offered = None
        if found and self.wanted.claims:
            offered = candidates_.offered(found)
        record.verdict = verdict = self._verdict(state, offered)
        state._vhpc = record
        record.multiplier = (
            hosts_.multiplier(state, self._multiplier)
            if state.aggregates
            else self._multiplier
        )
        if verdict.reason is None:
            if self.wanted.claims:
                record.ledger = candidates_.Ledger(
                    [u for u in verdict.uplinks if u.uuid in (offered or ())],
                    self.wanted.rule,
                    verdict.unknown,
                )
            self._order(record)
        return record

    def _verdict(
        self, state: Any, offered: frozenset[str] | None
    ) -> requirements.Verdict:
        topology = None
        if self._topology is not None:
            topology = self._topology.hosts.get(state.uuid)
        view = self._view(state, topology, offered)
        return requirements.evaluate(view, self.wanted, self.limits)

    def _view(
        self,
        state: Any,
        topology: snapshots.HostUplinks | None = None,
        offered: frozenset[str] | None = None,
    ) -> requirements.HostView:
        cpus = hosts_.cpus(state, self.pinned)
        return requirements.HostView(
            cpus.total,
            cpus.used - self.stopping_vcpus(state),
            topology,
            offered,
            (
                devices.lack(state, self.pci_requests)
                if self._judges_devices
                else None
            ),
        )

    def _rejudge(self, record: Record) -> None:
        """A member has landed on this host."""
        state = record.state
        record.seen = state.num_instances
        record.landed += 1
        self._landed += 1
        self.steering.landed(record)
        if record.ledger is not None:
            record.ledger.settle(state.allocation_candidates, gained=True)
        if record.verdict.reason is not None:
            return
        # Uplinks are the ledger's matter from here on; CPUs and devices
        # may have run out.
        reason = requirements.room_lack(self._view(state), self.wanted)
        if reason is None:
            self._order(record)
        else:
            record.verdict = record.verdict._replace(reason=reason)

    def _order(self, record: Record) -> None:
        """Prune and sort a host's candidates for the next member."""
        state = record.state
        found = state.allocation_candidates
        if not found:
            return
        if self.pinned:
            found = candidates_.dedicated(found)
        ordered: Iterable[Any] = found
        if self._judges_devices:
            ordered = [
                candidate
                for candidate in found
                if devices.supported(state, self.pci_requests, candidate)
            ]

        def taken() -> None:
            self._handed.append(record)

        state.allocation_candidates = (
            candidates_.Candidates(ordered, taken)
            if record.ledger is None
            else record.ledger.order(
                ordered, taken, more=self.members - self._landed - 1
            )
        )
        if not state.allocation_candidates:
            record.verdict = record.verdict._replace(
                reason='Placement offers no (more) uplink or device there '
                'that serves this flavor and is not claimed by another '
                'member'
            )

    def _settle(self) -> None:
        """Note what became of the last member's claims.

        Hosts that another filter has dropped since are among them, so
        this cannot wait until they are seen again.
        """
        handed, self._handed = self._handed, []
        for record in (*handed, *self.steering.planned()):
            state = record.state
            if record.seen != state.num_instances:
                self._rejudge(record)
            elif record.ledger is not None and getattr(
                state.allocation_candidates, 'handed_out', None
            ):
                # A lost claim: the next member tries others first.
                record.ledger.settle(state.allocation_candidates, gained=False)
                self._order(record)

    def _further_attempts(self, kept: Sequence[Any], spare: int) -> list[Any]:
        """Hosts once more for each further candidate, up to a number.

        Nova claims once per entry of the list. When other schedulers have
        taken a host's first uplink, its next one is tried at a second
        entry.
        """
        more: list[Any] = []
        for state in kept:
            count = len(state.allocation_candidates) - 1
            if count > 0:
                more.extend([state] * min(count, spare - len(more)))
                if len(more) >= spare:
                    break
        self.steering.duplicates = bool(more)
        return more

    def _read_topology(
        self,
    ) -> tuple[Any, requirements.Limits]:
        reader = uplinks.reader(self.conf)
        if not self.wanted.needs_topology:
            # The planner does better with it, and well enough without.
            self._read = reader.latest()
            return None, requirements.NO_LIMITS
        snapshot, lack = reader.snapshot()
        self._read = snapshot
        group = self.conf.vhpc_scheduler
        return snapshot, requirements.Limits(
            now_minutes=time.time() / 60,
            max_age_s=group.topology_max_age,
            allow_unknown=group.unknown_topology == 'allow',
            snapshot_lack=lack,
        )

    def _log(self, rejected: Sequence[tuple[Any, str]], kept: int) -> None:
        uuid = self.spec_obj.instance_uuid
        for state, reason in rejected:
            LOG.debug(
                'Host %s cannot take a member of this virtual cluster: %s',
                state.host,
                reason,
                instance_uuid=uuid,
            )
        if not kept:
            state, reason = rejected[0]
            LOG.info(
                'None of %d host(s) can take a member of this virtual '
                'cluster; %s, for one: %s',
                len(rejected),
                state.host,
                reason,
                instance_uuid=uuid,
            )


def _moved(spec_obj: Any) -> bool:
    """Whether a server is moved; only moves are bound to a cell by Nova."""
    if 'requested_destination' not in spec_obj:
        return False
    wish = spec_obj.requested_destination
    return wish is not None and 'cell' in wish and wish.cell is not None
