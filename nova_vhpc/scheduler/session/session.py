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

from collections.abc import Iterable, Sequence
from typing import Any

from oslo_log import log as logging

from nova_vhpc.scheduler.hosts import fabric, requirements
from nova_vhpc.scheduler.hosts import state as hosts_
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.scheduler.session import candidates as candidates_
from nova_vhpc.scheduler.session import host_fit, plan_score
from nova_vhpc.scheduler.session.host_info import ATTRIBUTE, Record
from nova_vhpc.scheduler.sources import nova_db

LOG = logging.getLogger(__name__)


class Request:
    """A request for members of a virtual cluster.

    :param conf: nova-scheduler's ConfigOpts, with ``[vhpc_scheduler]``.
    :ivar judge: of hosts.
    :ivar members: that are to be placed.
    :ivar moved: whether it is for a member that has been on a host before.
    """

    def __init__(self, spec_obj: Any, conf: Any) -> None:
        self.spec_obj = spec_obj
        self.conf = conf
        group = conf.vhpc_scheduler
        self.fabric = fabric.Fabric(group.switch_key, group.rack_key)
        self._multiplier = group.weight_multiplier
        self.moved = _moved(spec_obj)
        stopping = None
        # Else it is kept from its host, as Nova does by default.
        if self.moved and not (
            'ignore_hosts' in spec_obj and spec_obj.ignore_hosts
        ):
            stopping = nova_db.stopping(spec_obj)
        self.judge = host_fit.Judge(spec_obj, conf, stopping)
        self.wanted = self.judge.wanted
        self._attempts = group.claim_attempts if self.wanted.claims else 0
        self.members = 1
        # A move still names how many its server was booted with.
        if not self.moved and 'num_instances' in spec_obj:
            self.members = int(spec_obj.num_instances)
        self._landed = 0
        self._run = 0
        self._weighed = -1
        self._handed: list[Record] = []
        self.steering = plan_score.Steering(self)

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
            elif (
                record.verdict.reason is None
                and state.allocation_candidates is not record.candidates
            ):
                # NUMATopologyFilter, for one, has made a list of its own.
                self._order(record)
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

    def _judge(self, state: Any) -> Record:
        record = Record(self, state, requirements.Verdict())
        found = state.allocation_candidates
        offered = None
        if found and self.wanted.claims:
            offered = candidates_.offered(found)
        record.verdict = verdict = self.judge.verdict(state, offered)
        state._vhpc = record
        record.multiplier = (
            hosts_.multiplier(state, self._multiplier)
            if state.aggregates
            else self._multiplier
        )
        if record.multiplier < 0:
            # No plan will weigh it, and nothing times below 0 is not avoided.
            record.weight = host_weights.AVOIDED
        if verdict.reason is None:
            if self.wanted.claims:
                record.ledger = candidates_.Ledger(
                    [u for u in verdict.uplinks if u.uuid in (offered or ())],
                    self.wanted.rule,
                    verdict.unknown,
                )
            self._order(record)
        return record

    def _rejudge(self, record: Record) -> None:
        """A member has landed on this host."""
        state = record.state
        record.seen = state.num_instances
        record.landed += 1
        self._landed += 1
        self.steering.landed(record)
        if record.ledger is not None:
            tried = record.candidates
            if tried is None or not tried.handed_out:
                # A filter that comes after ours has replaced them.
                tried = state.allocation_candidates
            record.ledger.settle(tried, gained=True)
        if record.verdict.reason is not None:
            return
        # Uplinks are the ledger's matter from here on; CPUs and devices
        # may have run out.
        reason = self.judge.room_lack(state)
        if reason is None:
            self._order(record)
        else:
            record.verdict = record.verdict._replace(reason=reason)

    def _order(self, record: Record) -> None:
        """Prune and sort a host's candidates for the next member."""
        state = record.state
        if not state.allocation_candidates:
            return
        ordered = self.judge.usable(state)

        def taken() -> None:
            self._handed.append(record)

        state.allocation_candidates = record.candidates = (
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
            elif (
                record.ledger is not None
                and record.candidates is not None
                and record.candidates.handed_out
            ):
                # A lost claim: the next member tries others first.
                record.ledger.settle(record.candidates, gained=False)
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
