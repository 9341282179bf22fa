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

RENEWALS = 16
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


_IO_BLINDLY, _COMPUTING_BLINDLY = VmPhase(_IO), VmPhase(_COMPUTING)
"""Where nothing is known of a VM's I/O."""


class _Watch:
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
        self._watches: dict[str, _Watch] = {}
        self._groups: dict[str, group_phase.GroupPhase] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._elapsed_us = 0
        # The group of each VM, in the last tick.
        self._shown: Mapping[str, str] = {}

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
                vm.uuid: _blindly(_allowed(vm, peers, _COMPUTING))
                for vm in view.vms
            }
        keys = self._keys(view)
        self._follow_on(view, keys)
        watches, groups = self._watches, self._groups
        vm_phases: dict[str, VmPhase] = {}
        for vm in view.vms:
            uuid = vm.uuid
            group = groups.get(keys[uuid])
            phase = _allowed(
                vm, peers, _COMPUTING if group is None else group.phase
            )
            watch = watches.get(uuid)
            vm_phases[uuid] = (
                _blindly(phase)
                if watch is None
                else VmPhase(phase, watch.predicted, watch.limit)
            )
        return vm_phases

    def _keys(self, view: model.HostView) -> dict[str, str]:
        """The group of each VM."""
        watches = self._watches
        keys: dict[str, str] = {}
        for vm in view.vms:
            watch = watches.get(vm.uuid)
            keys[vm.uuid] = (
                watch.key
                if watch is not None and watch.cluster == vm.cluster
                else _group_key(vm)
            )
        return keys

    def _follow_on(
        self, view: model.HostView, keys: Mapping[str, str]
    ) -> None:
        if keys != self._shown:
            self._shown = keys
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
        # Members learn from each other: all observe before one predicts.
        self._observe(view, keys)
        known, high, predicted_high = self._predict(view)
        groups = self._groups
        for key in known - groups.keys():
            groups[key] = group_phase.GroupPhase(self._config)
        # Of some nothing is known, or they never move: what the others of
        # the group wanted must not last, here and on the other hosts.
        for key, group in groups.items():
            group.step(key in high, key in predicted_high)

    def _observe(self, view: model.HostView, keys: Mapping[str, str]) -> None:
        """Take one sample of each VM, or note that there is none."""
        watches = self._watches
        floor = self._config.io_floor_events
        # All VMs that start together would renew together; some per step
        # keep the time of a tick even.
        renewals_left = max(RENEWALS, -(-len(view.vms) // 10))
        summed_up = bool(self._sums)
        known: dict[str, predictors_base.Predictor] | None = None
        for vm in view.vms:
            uuid = vm.uuid
            events = self._mean(uuid) if summed_up else vm.sample.io_events
            try:
                watch = watches.get(uuid)
                if watch is None or watch.key != keys[uuid]:
                    if known is None:
                        # Before any has left: from these, too, can be made.
                        known = {
                            one.key: one.predictor for one in watches.values()
                        }
                    watch = self._join(vm, keys[uuid], known)
                if events is None:
                    watch.miss()
                    continue
                watch.missed = 0
                threshold = watch.threshold
                threshold.add(events)
                if threshold.due and renewals_left > 0:
                    renewals_left -= 1
                    threshold.renew()
                    if threshold.value is not None:
                        watch.limit = max(threshold.value, floor)
                limit = watch.limit
                watch.high = limit is not None and events > limit
                watch.predictor.observe(quantise.to_state(events), events)
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
        known: set[str] = set()
        high: set[str] = set()
        predicted_high: set[str] = set()
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
            known.add(watch.key)
            if watch.high:
                high.add(watch.key)
            if watch.predicted is not None and watch.predicted > limit:
                predicted_high.add(watch.key)
        return known, high, predicted_high

    def _fail(self, uuid: str, error: Exception) -> None:
        self.faults.append(
            model.Diagnostic(uuid, f'predictor failed: {error!r}')
        )

    def _join(
        self,
        vm: model.VmView,
        key: str,
        known: dict[str, predictors_base.Predictor],
    ) -> _Watch:
        """Begin to follow a VM, or follow it into another group.

        :param known: a predictor of each group, to make new members' from.
        """
        predictor = known[key] = predictors_base.for_member(
            known.get(key), self._make_predictor
        )
        watch = self._watches.get(vm.uuid)
        if watch is None:
            watch = self._watches[vm.uuid] = _Watch(self._config)
        watch.cluster, watch.key, watch.predictor = vm.cluster, key, predictor
        return watch


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


def _blindly(phase: model.Phase) -> VmPhase:
    return _IO_BLINDLY if phase is _IO else _COMPUTING_BLINDLY


def _cluster_key(cluster: str) -> str:
    return 'cluster ' + cluster


def _group_key(vm: model.VmView) -> str:
    """VMs with the same key move together."""
    if vm.cluster is None:
        return 'vm ' + vm.uuid
    return _cluster_key(vm.cluster)
