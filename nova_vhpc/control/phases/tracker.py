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

"""Who is in the I/O phase: prediction, threshold, enter and leave rule.

I/O-perception paper, sections III.A to III.C. The members of a virtual
cluster move together, so the phase belongs to a *group*: a cluster's
members on this host, or a VM that has no cluster.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model, quantise
from nova_vhpc.control.phases import group as group_phase
from nova_vhpc.control.phases import otsu
from nova_vhpc.control.predictors import base as predictors_base

MIN_RENEWALS = 16
"""Thresholds that may be renewed in one step, or a tenth of the VMs."""

STALE_STEPS = 10
"""Samples missed in a row until a VM's I/O counts as unknown."""

# To look up a member of an enum takes long, for each VM, each tick.
_COMPUTING, _IO = model.Phase.COMPUTING, model.Phase.IO
_AUTO = model.IoPoolUse.AUTO
_ALWAYS, _NEVER = model.IoPoolUse.ALWAYS, model.IoPoolUse.NEVER


class VmPhase(NamedTuple):
    """Where one VM belongs, and the numbers that say so.

    :ivar effective: with the group, the peers and ``vhpc:io_pool``.
    :ivar predicted_events: of the coming period; None before any sample.
    :ivar threshold_events: None before the first renewal.
    """

    effective: model.Phase
    predicted_events: float | None = None
    threshold_events: float | None = None


_IO_UNKNOWN, _COMPUTING_UNKNOWN = VmPhase(_IO), VmPhase(_COMPUTING)
"""Where nothing is known of a VM's I/O."""


class _TrackedVm:
    """What is remembered of one VM."""

    __slots__ = (
        'cluster',
        'high',
        'key',
        'limit',
        'missed',
        'predicted',
        'predictor',
        'threshold',
    )

    def __init__(self, config: control_config.ControlConfig) -> None:
        # Of the group whose members the predictor learns with.
        self.key = ''
        self.cluster: str | None = None
        self.predictor: predictors_base.Predictor
        self.threshold = otsu.OtsuThreshold(
            config.otsu_history, config.otsu_renewal
        )
        self.predicted: float | None = None
        # The threshold in use: Otsu's, but not below the floor.
        self.limit: float | None = None
        self.high = False
        self.missed = 0

    def miss(self) -> None:
        """There is no sample."""
        self.missed += 1
        if self.missed >= STALE_STEPS:
            self.predicted = None
            self.high = False


class PhaseTracker:
    """Follows the I/O phases of all VMs of a host.

    :ivar faults: of predictors, in the last tick. They are plugins: a faulty
        one must not stop the agent. What it did not say is not known.
    """

    def __init__(
        self,
        config: control_config.ControlConfig,
        make_predictor: Callable[[], predictors_base.Predictor],
        follow: bool = True,
    ) -> None:
        """Start with no VM known.

        :param make_predictor: called for each VM, or for one of a group
            where predictors learn together
            (:class:`~.predictors.base.PeerPredictor`).
        :param follow: False where nobody wants to know: nothing is
            predicted then, and only ``vhpc:io_pool`` and peers count.
        """
        self.faults: list[model.Diagnostic] = []
        self._follow = follow
        self._config = config
        self._make_predictor = make_predictor
        self._tracked: dict[str, _TrackedVm] = {}
        self._groups: dict[str, group_phase.GroupPhase] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._elapsed_us = 0
        # The group of each VM, in the last tick.
        self._group_keys: Mapping[str, str] = {}

    def own_phase(self, cluster: str) -> model.Phase:
        """A cluster's phase by its members on this host alone."""
        group = self._groups.get(_cluster_key(cluster))
        return _COMPUTING if group is None else group.phase

    def advance(self, view: model.HostView) -> dict[str, VmPhase]:
        """Take one tick's samples in; returns the phase of every VM.

        Ticks shorter than the sampling period are summed up to it.
        """
        self.faults.clear()
        peers = view.peers
        if not self._follow:
            return {
                vm.uuid: _without_numbers(_allowed(vm, peers, _COMPUTING))
                for vm in view.vms
            }
        keys = self._keys(view)
        self._update(view, keys)
        tracked_vms, groups = self._tracked, self._groups
        vm_phases: dict[str, VmPhase] = {}
        for vm in view.vms:
            uuid = vm.uuid
            group = groups.get(keys[uuid])
            phase = _allowed(
                vm, peers, _COMPUTING if group is None else group.phase
            )
            tracked = tracked_vms.get(uuid)
            vm_phases[uuid] = (
                _without_numbers(phase)
                if tracked is None
                else VmPhase(phase, tracked.predicted, tracked.limit)
            )
        return vm_phases

    def _keys(self, view: model.HostView) -> dict[str, str]:
        """The group of each VM."""
        tracked_vms = self._tracked
        keys: dict[str, str] = {}
        for vm in view.vms:
            tracked = tracked_vms.get(vm.uuid)
            keys[vm.uuid] = (
                tracked.key
                if tracked is not None and tracked.cluster == vm.cluster
                else _group_key(vm)
            )
        return keys

    def _update(self, view: model.HostView, keys: Mapping[str, str]) -> None:
        if keys != self._group_keys:
            self._group_keys = keys
            self._drop_gone(keys)
        self._elapsed_us += view.period_us
        # Ticks come a bit early or late; half a tick is near enough.
        due = self._elapsed_us + view.period_us // 2 >= self._config.sample_us
        if not due or self._sums:
            self._add_to_sums(view)
        if due:
            self._elapsed_us = 0
            self._end_period(view, keys)

    def _drop_gone(self, keys: Mapping[str, str]) -> None:
        """Drop VMs and groups that are no longer there."""
        for gone in self._tracked.keys() - keys.keys():
            del self._tracked[gone]
        for gone in self._sums.keys() - keys.keys():
            del self._sums[gone]
        for gone in self._groups.keys() - set(keys.values()):
            del self._groups[gone]

    def _add_to_sums(self, view: model.HostView) -> None:
        """Remember samples of a tick that is shorter than a period."""
        for vm in view.vms:
            events = vm.sample.io_events
            if events is not None:
                total, count = self._sums.get(vm.uuid, (0.0, 0))
                self._sums[vm.uuid] = (total + events, count + 1)

    def _end_period(
        self, view: model.HostView, keys: Mapping[str, str]
    ) -> None:
        """One sampling period is over: predict and move groups."""
        # Members learn from each other: all observe before one predicts.
        self._observe(view, keys)
        with_threshold, high, predicted_high = self._predict(view)
        groups = self._groups
        for key in with_threshold - groups.keys():
            groups[key] = group_phase.GroupPhase(self._config)
        # Of some nothing is known, or they never move: what the others of
        # the group wanted must not last, here and on the other hosts.
        for key, group in groups.items():
            group.step(key in high, key in predicted_high)

    def _observe(self, view: model.HostView, keys: Mapping[str, str]) -> None:
        """Take one sample of each VM, or note that there is none."""
        tracked_vms = self._tracked
        floor = self._config.io_floor_events
        # All VMs that start together would renew together; some per step
        # keep the time of a tick even.
        renewals_left = max(MIN_RENEWALS, -(-len(view.vms) // 10))
        is_summed = bool(self._sums)
        group_predictors: dict[str, predictors_base.Predictor] | None = None
        for vm in view.vms:
            uuid = vm.uuid
            events = self._mean(uuid) if is_summed else vm.sample.io_events
            try:
                tracked = tracked_vms.get(uuid)
                if tracked is None or tracked.key != keys[uuid]:
                    if group_predictors is None:
                        # Before any has left: from these, too, can be made.
                        group_predictors = {
                            member.key: member.predictor
                            for member in tracked_vms.values()
                        }
                    tracked = self._join_group(
                        vm, keys[uuid], group_predictors
                    )
                if events is None:
                    tracked.miss()
                    continue
                tracked.missed = 0
                threshold = tracked.threshold
                threshold.add(events)
                if threshold.due and renewals_left > 0:
                    renewals_left -= 1
                    threshold.renew()
                    if threshold.value is not None:
                        tracked.limit = max(threshold.value, floor)
                limit = tracked.limit
                tracked.high = limit is not None and events > limit
                tracked.predictor.observe(quantise.to_state(events), events)
            except Exception as error:
                self._fail(uuid, error)
        self._sums.clear()

    def _mean(self, uuid: str) -> float | None:
        """Of the ticks that were shorter than a period."""
        total, count = self._sums.get(uuid, (0.0, 0))
        return total / count if count else None

    def _predict(
        self, view: model.HostView
    ) -> tuple[set[str], set[str], set[str]]:
        """Ask what comes next.

        :returns: the groups in which some member's threshold is known, is
            exceeded, and is predicted to be.
        """
        with_threshold: set[str] = set()
        high: set[str] = set()
        predicted_high: set[str] = set()
        for vm in view.vms:
            tracked = self._tracked.get(vm.uuid)
            if tracked is None:
                continue
            if not tracked.missed:
                try:
                    tracked.predicted = quantise.to_events(
                        tracked.predictor.predict()
                    )
                except Exception as error:
                    tracked.predicted = None
                    self._fail(vm.uuid, error)
            limit = tracked.limit
            if limit is None or vm.io_pool == _NEVER:
                continue
            with_threshold.add(tracked.key)
            if tracked.high:
                high.add(tracked.key)
            if tracked.predicted is not None and tracked.predicted > limit:
                predicted_high.add(tracked.key)
        return with_threshold, high, predicted_high

    def _fail(self, uuid: str, error: Exception) -> None:
        self.faults.append(
            model.Diagnostic(uuid, f'predictor failed: {error!r}')
        )

    def _join_group(
        self,
        vm: model.VmView,
        key: str,
        group_predictors: dict[str, predictors_base.Predictor],
    ) -> _TrackedVm:
        """Begin to follow a VM, or follow it into another group.

        :param group_predictors: one predictor of each group, from which those
            of new members are made.
        """
        predictor = group_predictors[key] = predictors_base.for_member(
            group_predictors.get(key), self._make_predictor
        )
        tracked = self._tracked.get(vm.uuid)
        if tracked is None:
            tracked = self._tracked[vm.uuid] = _TrackedVm(self._config)
        tracked.cluster, tracked.key, tracked.predictor = (
            vm.cluster,
            key,
            predictor,
        )
        return tracked


def _allowed(
    vm: model.VmView,
    peers: Mapping[str, model.PeerView],
    phase: model.Phase,
) -> model.Phase:
    """The phase that peers and the flavor leave to a VM.

    :param phase: of its group.
    """
    if peers and vm.cluster is not None:
        peer = peers.get(vm.cluster)
        if peer is not None and peer.io:
            phase = _IO
    if vm.io_pool != _AUTO:
        if vm.io_pool == _ALWAYS:
            phase = _IO
        elif vm.io_pool == _NEVER:
            phase = _COMPUTING
    return phase


def _without_numbers(phase: model.Phase) -> VmPhase:
    return _IO_UNKNOWN if phase is _IO else _COMPUTING_UNKNOWN


def _cluster_key(cluster: str) -> str:
    return 'cluster ' + cluster


def _group_key(vm: model.VmView) -> str:
    """VMs with the same key move together."""
    if vm.cluster is None:
        return 'vm ' + vm.uuid
    return _cluster_key(vm.cluster)
