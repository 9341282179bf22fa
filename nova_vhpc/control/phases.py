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
from nova_vhpc.control import group_phase, model, otsu, quantise
from nova_vhpc.control.predictors import base as predictors_base

RENEWALS = 16
"""Thresholds that may be renewed in one step, or a tenth of the VMs."""

STALE_STEPS = 10
"""Samples missed in a row until a VM's I/O counts as unknown."""

# To look up a member of an enum takes long, for each VM, each tick.
_COMPUTING, _IO = model.Phase.COMPUTING, model.Phase.IO
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


class _Watch:
    """What is remembered of one VM."""

    __slots__ = (
        'high',
        'key',
        'limit',
        'missed',
        'predicted',
        'predictor',
        'threshold',
    )

    def __init__(
        self,
        config: control_config.ControlConfig,
        key: str,
        predictor: predictors_base.Predictor,
    ) -> None:
        # Of the group whose members the predictor learns with.
        self.key = key
        self.predictor = predictor
        self.threshold = otsu.OtsuThreshold(
            config.otsu_history, config.otsu_renewal
        )
        self.predicted: float | None = None
        # The threshold in use: Otsu's, but not below the floor.
        self.limit: float | None = None
        self.high = False
        self.missed = 0


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
        self.faults: list[model.Ignored] = []
        self._follow = follow
        self._config = config
        self._make_predictor = make_predictor
        self._watches: dict[str, _Watch] = {}
        self._groups: dict[str, group_phase.GroupPhase] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._elapsed_us = 0
        self._renewals_left = 0

    def own_phase(self, cluster: str) -> model.Phase:
        """A cluster's phase by its members on this host alone."""
        group = self._groups.get(_cluster_key(cluster))
        return _COMPUTING if group is None else group.phase

    def advance(self, view: model.HostView) -> dict[str, VmPhase]:
        """Take one tick's samples in; returns the phase of every VM.

        Ticks shorter than the sampling period are summed up to it.
        """
        self.faults.clear()
        keys = {vm.uuid: _group_key(vm) for vm in view.vms}
        if self._follow:
            self._follow_on(view, keys)
        return {
            vm.uuid: self._vm_phase(vm, keys[vm.uuid], view.peers)
            for vm in view.vms
        }

    def _follow_on(
        self, view: model.HostView, keys: Mapping[str, str]
    ) -> None:
        self._forget(keys)
        self._elapsed_us += view.period_us
        # Ticks come a bit early or late; half a tick is near enough.
        due = self._elapsed_us + view.period_us // 2 >= self._config.sample_us
        if not due or self._sums:
            self._collect(view)
        if due:
            self._elapsed_us = 0
            self._step(view, keys)

    def _forget(self, keys: Mapping[str, str]) -> None:
        """Drop VMs and groups that are no longer there."""
        for gone in self._watches.keys() - keys.keys():
            del self._watches[gone]
        for gone in self._sums.keys() - keys.keys():
            del self._sums[gone]
        for gone in self._groups.keys() - set(keys.values()):
            del self._groups[gone]

    def _collect(self, view: model.HostView) -> None:
        """Remember samples of a tick that is shorter than a period."""
        for vm in view.vms:
            events = vm.sample.io_events
            if events is not None:
                total, count = self._sums.get(vm.uuid, (0.0, 0))
                self._sums[vm.uuid] = (total + events, count + 1)

    def _step(self, view: model.HostView, keys: Mapping[str, str]) -> None:
        """One sampling period is over: predict and move groups."""
        # All VMs that start together would renew together; some per step
        # keep the time of a tick even.
        self._renewals_left = max(RENEWALS, -(-len(view.vms) // 10))
        means = {
            uuid: total / count for uuid, (total, count) in self._sums.items()
        }
        summed_up = bool(means)
        self._sums.clear()
        # A predictor of each group, to make those of new members from.
        known = {
            watch.key: watch.predictor for watch in self._watches.values()
        }
        # Members learn from each other: all observe before one predicts.
        for vm in view.vms:
            uuid = vm.uuid
            try:
                self._observe(
                    self._watch(uuid, keys[uuid], known),
                    means.get(uuid) if summed_up else vm.sample.io_events,
                )
            except Exception as error:
                self._fail(uuid, error)
        votes: dict[str, tuple[bool, bool]] = {}
        for vm in view.vms:
            watch = self._watches.get(vm.uuid)
            if watch is None:
                continue
            if not watch.missed:
                try:
                    watch.predicted = quantise.to_events(
                        watch.predictor.predict()
                    )
                except Exception as error:
                    watch.predicted = None
                    self._fail(vm.uuid, error)
            limit = watch.limit
            if limit is None or vm.io_pool == _NEVER:
                continue
            key = watch.key
            high, predicted_high = votes.get(key, (False, False))
            votes[key] = (
                high or watch.high,
                predicted_high
                or (watch.predicted is not None and watch.predicted > limit),
            )
        for key, (high, predicted_high) in votes.items():
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = group_phase.GroupPhase(
                    self._config
                )
            group.step(high, predicted_high)
        # Of those that are left nothing is known, or they never move: what
        # the others wanted must not last, here and on the other hosts.
        for key in self._groups.keys() - votes.keys():
            self._groups[key].step(False, False)

    def _fail(self, uuid: str, error: Exception) -> None:
        self.faults.append(model.Ignored(uuid, f'predictor failed: {error!r}'))

    def _watch(
        self,
        uuid: str,
        key: str,
        known: dict[str, predictors_base.Predictor],
    ) -> _Watch:
        """What is remembered of a VM; its group may be news."""
        watch = self._watches.get(uuid)
        if watch is not None and watch.key == key:
            return watch
        predictor = known[key] = predictors_base.for_member(
            known.get(key), self._make_predictor
        )
        if watch is None:
            watch = _Watch(self._config, key, predictor)
            self._watches[uuid] = watch
        else:
            watch.key = key
            watch.predictor = predictor
        return watch

    def _observe(self, watch: _Watch, events: float | None) -> None:
        """Take one sample of one VM, or note that there is none."""
        if events is None:
            watch.missed += 1
            if watch.missed >= STALE_STEPS:
                watch.predicted = None
                watch.high = False
            return
        watch.missed = 0
        threshold = watch.threshold
        threshold.add(events)
        if threshold.due and self._renewals_left > 0:
            self._renewals_left -= 1
            threshold.renew()
            if threshold.value is not None:
                watch.limit = max(
                    threshold.value, self._config.io_floor_events
                )
        watch.high = watch.limit is not None and events > watch.limit
        watch.predictor.observe(quantise.to_state(events), events)

    def _vm_phase(
        self,
        vm: model.VmView,
        key: str,
        peers: Mapping[str, model.PeerView],
    ) -> VmPhase:
        watch = self._watches.get(vm.uuid)
        group = self._groups.get(key)
        phase = _COMPUTING if group is None else group.phase
        if peers and vm.cluster is not None:
            peer = peers.get(vm.cluster)
            if peer is not None and peer.io:
                phase = _IO
        if vm.io_pool == _ALWAYS:
            phase = _IO
        elif vm.io_pool == _NEVER:
            phase = _COMPUTING
        if watch is None:
            return VmPhase(phase)
        return VmPhase(phase, watch.predicted, watch.limit)


def _cluster_key(cluster: str) -> str:
    return 'cluster ' + cluster


def _group_key(vm: model.VmView) -> str:
    """VMs with the same key move together."""
    if vm.cluster is None:
        return 'vm ' + vm.uuid
    return _cluster_key(vm.cluster)
