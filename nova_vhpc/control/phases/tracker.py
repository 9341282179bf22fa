# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Track the phase of every VM: prediction, threshold, enter and leave rule.

I/O-perception paper, sections III.A to III.C. The members of a virtual cluster
move together, so a phase belongs to a *group*: the members of a cluster on
this host, or a single VM without a cluster.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nova_vhpc.control import config as control_config
from nova_vhpc.control import model
from nova_vhpc.control.phases import group as group_phase
from nova_vhpc.control.phases import otsu
from nova_vhpc.control.predictors import base as predictors_base

MIN_RENEWALS = 16
"""Thresholds renewed per sampling period, at most; but a tenth of the VMs if
that is more."""

STALE_STEPS = 10
"""Missing samples in a row after which the I/O of a VM counts as unknown."""

# Looking up enum members for each VM in each tick takes 3% of a decision.
_COMPUTING, _IO = model.Phase.COMPUTING, model.Phase.IO
_AUTO = model.IoPoolUse.AUTO
_ALWAYS, _NEVER = model.IoPoolUse.ALWAYS, model.IoPoolUse.NEVER


class VmPhase(NamedTuple):
    """Phase of one VM and the numbers that it follows from.

    :ivar effective: phase with regard to the group, the cluster's members on
        other hosts, and ``vhpc:io_pool``.
    :ivar predicted_events: I/O events predicted for the next period; None if
        unknown.
    :ivar threshold_events: I/O events above which I/O is high; None before
        the first renewal.
    """

    effective: model.Phase
    predicted_events: float | None = None
    threshold_events: float | None = None


_IO_UNKNOWN, _COMPUTING_UNKNOWN = VmPhase(_IO), VmPhase(_COMPUTING)
"""Phases of VMs whose I/O is unknown or not tracked. To make one for each VM
in each tick takes 3% more of a decision (gang and balance, 200 VMs)."""


class _TrackedVm:
    """State of one VM."""

    __slots__ = (
        'high',
        'key',
        'limit',
        'missed',
        'predicted',
        'predictor',
        'threshold',
    )

    def __init__(self, config: control_config.ControlConfig) -> None:
        # Key of the group whose members the predictor learns with.
        self.key = ''
        self.predictor: predictors_base.Predictor
        self.threshold = otsu.OtsuThreshold(
            config.otsu_history, config.otsu_renewal
        )
        self.predicted: float | None = None
        # Otsu's threshold, but at least [vhpc_control] io_floor_events.
        self.limit: float | None = None
        self.high = False
        self.missed = 0

    def miss(self) -> None:
        """Record that the VM has no sample in this period."""
        self.missed += 1
        if self.missed >= STALE_STEPS:
            self.predicted = None
            self.high = False


class PhaseTracker:
    """Tracks the phases of all VMs of a host.

    :param config: settings of the control core.
    :param make_predictor: factory of predictors, called for each VM; or once
        per group if predictors learn together
        (:class:`~.predictors.base.PeerPredictor`).
    :param follow: False if no policy uses phases: nothing is predicted then,
        and only ``vhpc:io_pool`` and the members on other hosts count.
    :ivar faults: exceptions of predictors in the last tick. Predictors are
        plugins: a faulty one must not stop the agent, and a prediction that
        it did not make is unknown.
    """

    def __init__(
        self,
        config: control_config.ControlConfig,
        make_predictor: Callable[[], predictors_base.Predictor],
        follow: bool = True,
    ) -> None:
        self.faults: list[model.Diagnostic] = []
        self._follow = follow
        self._config = config
        self._make_predictor = make_predictor
        self._tracked: dict[str, _TrackedVm] = {}
        self._groups: dict[str, group_phase.GroupPhase] = {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._elapsed_us = 0
        # By VM: key of its group in the last tick.
        self._group_keys: Mapping[str, str] = {}

    def own_phase(self, cluster: str) -> model.Phase:
        """Return the phase of a cluster by its members on this host alone."""
        group = self._groups.get(_cluster_key(cluster))
        return _COMPUTING if group is None else group.phase

    def advance(self, view: model.HostView) -> dict[str, VmPhase]:
        """Take the samples of one tick and return the phase of every VM.

        If ticks are shorter than the sampling period, their samples are
        averaged over it.
        """
        self.faults.clear()
        peers = view.peers
        if not self._follow:
            return {
                vm.uuid: _without_numbers(_allowed(vm, peers, _COMPUTING))
                for vm in view.vms
            }
        keys = {vm.uuid: _group_key(vm) for vm in view.vms}
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

    def _update(self, view: model.HostView, keys: Mapping[str, str]) -> None:
        if keys != self._group_keys:
            self._group_keys = keys
            self._drop_gone(keys)
        self._elapsed_us += view.period_us
        # A tick may come early or late: half a tick less is enough.
        due = self._elapsed_us + view.period_us // 2 >= self._config.sample_us
        if not due or self._sums:
            self._add_to_sums(view)
        if due:
            self._elapsed_us = 0
            self._end_period(view, keys)

    def _drop_gone(self, keys: Mapping[str, str]) -> None:
        """Drop VMs and groups that the host no longer has."""
        for gone in self._tracked.keys() - keys.keys():
            del self._tracked[gone]
        for gone in self._sums.keys() - keys.keys():
            del self._sums[gone]
        for gone in self._groups.keys() - set(keys.values()):
            del self._groups[gone]

    def _add_to_sums(self, view: model.HostView) -> None:
        """Add the samples of a tick to the sums of the sampling period."""
        for vm in view.vms:
            events = vm.sample.io_events
            if events is not None:
                total, count = self._sums.get(vm.uuid, (0.0, 0))
                self._sums[vm.uuid] = (total + events, count + 1)

    def _end_period(
        self, view: model.HostView, keys: Mapping[str, str]
    ) -> None:
        """Predict the next sampling period and renew the phases of groups."""
        # Members learn together: all observe before the first predicts.
        self._observe(view, keys)
        with_threshold, high, predicted_high = self._predict(view)
        groups = self._groups
        for key in with_threshold - groups.keys():
            groups[key] = group_phase.GroupPhase(self._config)
        # Every group is stepped, also if no threshold of its members is
        # known or all of them may never move. Otherwise the phase would
        # last, here and on the other hosts of the cluster.
        for key, group in groups.items():
            group.step(key in high, key in predicted_high)

    def _observe(self, view: model.HostView, keys: Mapping[str, str]) -> None:
        """Let each VM's predictor and threshold observe its sample."""
        tracked_vms = self._tracked
        floor = self._config.io_floor_events
        # VMs that started together would all renew in the same period; a
        # limit keeps the time of a tick even.
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
                        # Taken before any VM changes its group.
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
                tracked.predictor.observe(
                    predictors_base.to_state(events), events
                )
            except Exception as error:
                self._fail(uuid, error)
        self._sums.clear()

    def _mean(self, uuid: str) -> float | None:
        """Return the mean of a VM's samples in this sampling period."""
        total, count = self._sums.get(uuid, (0.0, 0))
        return total / count if count else None

    def _predict(
        self, view: model.HostView
    ) -> tuple[set[str], set[str], set[str]]:
        """Predict the next period of each VM that has a sample.

        :returns: keys of the groups in which the threshold of any member is
            known; in which it was exceeded; and in which it is predicted to
            be exceeded. Members that may never move are left out.
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
                    tracked.predicted = predictors_base.to_events(
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
        """Start to track a VM, or move it to another group.

        :param group_predictors: by group, a predictor from which those of
            new members are made.
        """
        predictor = group_predictors[key] = predictors_base.for_member(
            group_predictors.get(key), self._make_predictor
        )
        tracked = self._tracked.get(vm.uuid)
        if tracked is None:
            tracked = self._tracked[vm.uuid] = _TrackedVm(self._config)
        tracked.key, tracked.predictor = key, predictor
        return tracked


def _allowed(
    vm: model.VmView,
    peers: Mapping[str, model.PeerView],
    phase: model.Phase,
) -> model.Phase:
    """Return the phase of a VM with regard to peers and its flavor.

    :param peers: by cluster, state of its members on other hosts.
    :param phase: phase of the VM's group.
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
    """Return the key of a VM's group; VMs with the same key move together."""
    if vm.cluster is None:
        return 'vm ' + vm.uuid
    return _cluster_key(vm.cluster)
