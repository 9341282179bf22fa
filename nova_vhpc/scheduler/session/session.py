# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""One multi-create request, from its first member to its last.

All requests of a scheduler worker share its filter and its weigher, and run
at the same time. The state of one request is therefore kept on its host
states: Nova builds them anew for each request, and passes the same ones for
all members of the request.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from oslo_log import log as logging

from nova_vhpc.flavor import request_groups
from nova_vhpc.scheduler.hosts import fabric, requirements
from nova_vhpc.scheduler.hosts import state as host_state
from nova_vhpc.scheduler.planner import host_weights
from nova_vhpc.scheduler.session import (
    candidates,
    host_fit,
    plan_score,
    server_group,
)
from nova_vhpc.scheduler.session.host_fit import ATTRIBUTE, HostInfo
from nova_vhpc.scheduler.sources import cost_table_file, nova_db

LOG = logging.getLogger(__name__)


class SchedulingSession:
    """The filtering and weighing of one request for a virtual cluster.

    :param conf: nova-scheduler's ConfigOpts, with ``[vhpc_scheduler]``.
    :ivar host_fit: whether and how hosts fit one member.
    :ivar plan_score: weights of the hosts by the plan of the whole cluster.
    """

    def __init__(self, spec_obj: Any, conf: Any) -> None:
        self.spec_obj = spec_obj
        self.conf = conf
        group = conf.vhpc_scheduler
        self._multiplier = group.weight_multiplier
        is_move = _is_move(spec_obj)
        move_source = None
        # With ignore_hosts, Nova's default, the server leaves its host.
        if is_move and not (
            'ignore_hosts' in spec_obj and spec_obj.ignore_hosts
        ):
            move_source = nova_db.move_source(spec_obj)
        self.host_fit = host_fit.HostFit(
            spec_obj, conf, move_source, _networks(spec_obj, is_move)
        )
        self.requirements = self.host_fit.requirements
        self._attempts = 0
        if self.requirements.requested_uplinks:
            self._attempts = group.claim_attempts
        self._subset_size = conf.filter_scheduler.host_subset_size
        self._member_count = 1
        # A move still carries the num_instances of the boot request.
        if not is_move and 'num_instances' in spec_obj:
            self._member_count = int(spec_obj.num_instances)
        size = server_group.cluster_size(spec_obj, self.requirements.specs)
        # Members that may still need uplinks of the same hosts.
        self._most_members = (
            self._member_count if is_move else max(size, self._member_count)
        )
        self._placed = 0
        self._run = 0
        self._weighed = -1
        self._handed_out: list[HostInfo] = []
        self.plan_score = plan_score.PlanScore(
            spec_obj,
            self.host_fit,
            fabric.Fabric(group.switch_key, group.rack_key),
            group.weight_of_unknown,
            self._member_count,
            is_move,
            size,
            self._subset_size,
            cost_table_file.read(group.cost_table),
            self._order,
        )

    @classmethod
    def of_host_state(
        cls, state: Any, spec_obj: Any
    ) -> 'SchedulingSession | None':
        """Return a host state's session if it is for this very request."""
        host_info = getattr(state, ATTRIBUTE, None)
        if host_info is None or host_info.session.spec_obj is not spec_obj:
            return None
        assert isinstance(host_info.session, cls)
        return host_info.session

    def filter(self, states: Iterable[Any]) -> list[Any]:
        """Return the hosts that may take the next member.

        Nova calls the filter for every member, with the hosts that passed
        before, and once more for alternates. A host is examined once, and
        again only after a member was placed there or its candidates changed.
        """
        self._run += 1
        placed = self._placed
        self._settle()
        rejected: list[tuple[Any, str]] = []
        kept = []
        if self.plan_score.duplicates:
            # The last run added them (_further_entries).
            states = dict.fromkeys(states)
        # All hosts are visited for every member, so nothing here is called
        # for each: at 1,000 hosts and 64 members, host_info() made filter and
        # weigher 6% slower.
        for state in states:
            try:
                host_info = state._vhpc
            except AttributeError:
                host_info = None
            if host_info is None or host_info.session is not self:
                host_info = self._examine(state)
            reason = host_info.fit_result.reason
            if host_info.seen != state.num_instances:
                self._examine_again(host_info)
                reason = host_info.fit_result.reason
            elif (
                reason is None
                and state.allocation_candidates is not host_info.candidates
            ):
                # Another filter replaced the list; NUMATopologyFilter does.
                self._order(host_info)
                reason = host_info.fit_result.reason
            if reason is None:
                kept.append(state)
            else:
                rejected.append((state, reason))
        if self.requirements.specs.max_tier is not None:
            kept, outside = self._within_tier(kept)
            if placed < self._placed >= self._member_count:
                # Alternates must be in the part of the fabric, too.
                return kept
            rejected += outside
        if placed < self._placed >= self._member_count:
            # All members are placed: Nova now looks for alternates, and
            # skips hosts without candidates itself.
            return kept + [state for state, _ in rejected]
        if rejected:
            self._log(rejected, len(kept))
        further = self._further_entries(kept)
        self.plan_score.duplicates = bool(further)
        return kept + further

    def _within_tier(
        self, kept: Sequence[Any]
    ) -> tuple[list[Any], list[tuple[Any, str]]]:
        """Divide hosts by whether the cluster may use them.

        :returns: hosts within ``vhpc:max_tier``; other hosts with reasons.
        """
        reasons = self.plan_score.beyond_tier(
            [self.host_info(state) for state in kept]
        )
        inside = []
        outside = []
        for state in kept:
            reason = reasons.get(self.host_info(state))
            if reason is None:
                inside.append(state)
            else:
                outside.append((state, reason))
        return inside, outside

    def weigh(self, states: Sequence[Any]) -> list[float]:
        """Return one raw weight per host, 0.0 to 1.0, for the next member."""
        if self._weighed == self._run:
            # The filter is not enabled, so it has not settled the last claim.
            self._settle()
        self._weighed = self._run
        try:
            # Not by host_info(): at 1,000 hosts and 64 members, the calls
            # made filter and weigher 6% slower.
            host_infos = [state._vhpc for state in states]
        except AttributeError:
            # Forced hosts, for example, did not pass the filter.
            host_infos = [self.host_info(state) for state in states]
        return self.plan_score.score(host_infos)

    def host_info(self, state: Any) -> HostInfo:
        """Return a host's info; examine the host if the filter has not."""
        host_info: HostInfo | None = getattr(state, ATTRIBUTE, None)
        if host_info is None or host_info.session is not self:
            return self._examine(state)
        return host_info

    def _examine(self, state: Any) -> HostInfo:
        host_info = HostInfo(state, self, requirements.FitResult())
        offers = state.allocation_candidates
        offered = None
        if offers and self.requirements.requested_uplinks:
            offered = candidates.offered(offers)
        host_info.fit_result = fit_result = self.host_fit.fit_result(
            state, offered
        )
        setattr(state, ATTRIBUTE, host_info)
        host_info.multiplier = (
            host_state.weight_multiplier(state, self._multiplier)
            if state.aggregates
            else self._multiplier
        )
        host_info.weight = host_weights.unplanned_weight(host_info.multiplier)
        if fit_result.reason is None:
            if self.requirements.requested_uplinks:
                host_info.reservations = candidates.UplinkReservations(
                    [
                        u
                        for u in fit_result.uplinks
                        if u.uuid in (offered or ())
                    ],
                    self.requirements.rule,
                    fit_result.unknown,
                )
            self._order(host_info)
        return host_info

    def _examine_again(self, host_info: HostInfo) -> None:
        """Take note that Nova placed a member on this host."""
        state = host_info.state
        host_info.seen = state.num_instances
        host_info.placed += 1
        self._placed += 1
        self.plan_score.placed(host_info)
        if host_info.reservations is not None:
            claimed_from = host_info.candidates
            if claimed_from is None or not claimed_from.handed_out:
                # A filter after ours replaced the candidates.
                claimed_from = state.allocation_candidates
            host_info.reservations.note_outcome(claimed_from, placed=True)
        if host_info.fit_result.reason is not None:
            return
        # The reservations count uplinks from here on; CPUs and devices may
        # have run out.
        reason = self.host_fit.capacity_reason(state)
        if reason is None:
            self._order(host_info)
        else:
            host_info.fit_result = host_info.fit_result._replace(reason=reason)

    def _order(self, host_info: HostInfo) -> None:
        """Prune and sort a host's candidates for the next member."""
        state = host_info.state
        if not state.allocation_candidates:
            return
        ordered = self.host_fit.usable(state)

        def taken() -> None:
            self._handed_out.append(host_info)

        state.allocation_candidates = host_info.candidates = (
            candidates.Candidates(ordered, taken)
            if host_info.reservations is None
            else host_info.reservations.order(
                ordered, taken, more=self._most_members - self._placed - 1
            )
        )
        if not state.allocation_candidates:
            host_info.fit_result = host_info.fit_result._replace(
                reason='Placement offers no (more) uplink or device there '
                'that serves this flavor and is not claimed by another '
                'member'
            )

    def _settle(self) -> None:
        """Take note of whether the last member's claims succeeded.

        Another filter may have dropped the hosts concerned, so this cannot
        wait until :meth:`filter` gets them again.
        """
        handed_out, self._handed_out = self._handed_out, []
        for host_info in (*handed_out, *self.plan_score.planned()):
            state = host_info.state
            if host_info.seen != state.num_instances:
                self._examine_again(host_info)
            elif (
                host_info.reservations is not None
                and host_info.candidates is not None
                and host_info.candidates.handed_out
            ):
                # The claim was lost: the next member tries others first.
                host_info.reservations.note_outcome(
                    host_info.candidates, placed=False
                )
                self._order(host_info)

    def _further_entries(self, kept: Sequence[Any]) -> list[Any]:
        """Return the entries of the list by which hosts are in it again.

        Nova claims once per entry of the list. If another scheduler took
        the first uplink of a host, its second entry makes Nova try the next.

        Of the ``[filter_scheduler] host_subset_size`` best entries, Nova takes
        one by chance. A planned host has so many that no other is among them.
        """
        further: list[Any] = []
        chances = self._subset_size - 1
        if chances > 0 and len(kept) > 1:
            for state in kept:
                if self.plan_score.may_come_next(self.host_info(state)):
                    further.extend([state] * chances)
        spare = self._attempts - len(kept)
        for state in kept:
            if spare <= 0:
                break
            count = len(state.allocation_candidates) - 1
            if count > 0:
                further.extend([state] * min(count, spare))
                spare -= count
        return further

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


def _networks(spec_obj: Any, is_move: bool) -> Any:
    """Return Nova's NetworkMetadata of a server, None if unknown."""
    if not is_move:
        return (
            spec_obj.network_metadata
            if 'network_metadata' in spec_obj
            else None
        )
    # Nova 34 says of every moved server that one of its networks is tunneled
    # (RequestSpec.ensure_network_information); earlier releases say nothing.
    if request_groups.requested_uplinks(spec_obj.flavor.extra_specs):
        return nova_db.network_metadata(spec_obj)
    return None


def _is_move(spec_obj: Any) -> bool:
    """Return whether a server is moved.

    Nova restricts only the requests of moves to a cell.
    """
    if 'requested_destination' not in spec_obj:
        return False
    destination = spec_obj.requested_destination
    return (
        destination is not None
        and 'cell' in destination
        and destination.cell is not None
    )
