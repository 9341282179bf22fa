# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``atc``: adaptive time slice control, the ATC paper's Algorithms 1 and 2.

Algorithm 1 (section III.A) shortens a parallel VM's time slice while its
synchronisation latency ("spinlock latency" in the paper) grows, and lengthens
it while there is none. Algorithm 2 (section III.C) gives every parallel VM of
the host the minimum of their slices. The code follows the pseudo-code line by
line, except for these gaps in it:

* *A slice equal to alpha*: line 2 requires more, line 4 less. As printed, a
  slice never gets below alpha, although minThreshold is 0.3 ms and the text
  steps by 1 ms. Here line 4 includes it (``<=``), so that the minimum can be
  reached.
* *A slice equal to DEFAULT - alpha*: line 13 requires more, line 15 less. As
  printed, line 18 adds beta, and DEFAULT is reached one period later. Here
  line 15 includes it (``<=``), which takes one step to the same end.
* *Line 18 has no upper bound*: with beta below alpha it cannot exceed
  DEFAULT, but with other constants it could. Bounded by DEFAULT here.
* *Zero latency*: the paper measures whole scheduling periods of Xen, where
  zero occurs. On Linux a few microseconds always remain, so a latency up to
  ``latency_floor_us`` counts as zero.
* *No measurement*: such a period changes nothing and does not enter the
  history. A VM without a measurement for longer than the history is left out
  of the minimum, or it would keep all other slices from getting longer.

The option ``atc_literal`` undoes all of these except for the bound and the
last one. The :mod:`feedback guard <nova_vhpc.control.slices.feedback_guard>`
is ours; without it (``guard = false``) the algorithms run as described.
"""

import collections
import dataclasses
from collections.abc import Sequence

from nova_vhpc.control import bandwidth, model
from nova_vhpc.control import config as control_config
from nova_vhpc.control.slices import base, feedback_guard

# Looking up enum members for each VM in each tick takes 3% of a decision.
_PARALLEL = model.Workload.PARALLEL

_NOT_PARALLEL = base.VmSlice(reason='ATC: not vhpc:workload=parallel')

HISTORY = 3
"""Periods of the history: i-3, i-2 and i-1."""


@dataclasses.dataclass(frozen=True, slots=True)
class Constants:
    """Constants of Algorithm 1, in microseconds.

    :ivar alpha_us: large step, alpha.
    :ivar beta_us: small step, beta.
    :ivar default_us: DEFAULT, the longest slice.
    :ivar minimum_us: minThreshold, the shortest slice.
    :ivar literal: whether to keep the gaps of the pseudo-code.
    """

    alpha_us: int
    beta_us: int
    default_us: int
    minimum_us: int
    literal: bool = False


def compute_time_slice(
    latencies_us: Sequence[float],
    slices_us: Sequence[int],
    constants: Constants,
) -> int:
    """Return the time slice of period *i*, in microseconds (Algorithm 1).

    :param latencies_us: synchronisation latencies of the periods i-3, i-2
        and i-1, the last of them last. With fewer, a condition that needs a
        missing one does not hold.
    :param slices_us: time slices of the same periods, at least one.
    :param constants: constants of the algorithm.
    """
    last_us = slices_us[-1]
    slice_us = last_us  # lines 6-7 and 9-10
    if _rising(latencies_us) or (
        _falling(latencies_us) and _shortened(slices_us)
    ):  # line 1; "and" binds closer than "or", as the text has it
        if (
            last_us > constants.alpha_us
            and last_us - constants.alpha_us >= constants.minimum_us
        ):  # line 2
            slice_us = last_us - constants.alpha_us  # line 3
        elif (
            last_us > constants.beta_us
            and _below(last_us, constants.alpha_us, constants)
            and last_us - constants.beta_us >= constants.minimum_us
        ):  # line 4
            slice_us = last_us - constants.beta_us  # line 5
    if len(latencies_us) >= HISTORY and not (
        latencies_us[-1] or latencies_us[-2] or latencies_us[-3]
    ):  # line 12
        slack_us = constants.default_us - constants.alpha_us
        if last_us > slack_us:  # line 13
            slice_us = constants.default_us  # line 14
        elif last_us > constants.alpha_us and _below(
            last_us, slack_us, constants
        ):  # line 15
            slice_us = last_us + constants.alpha_us  # line 16
        else:
            slice_us = min(
                last_us + constants.beta_us, constants.default_us
            )  # line 18
    return slice_us  # line 21


def _rising(latencies_us: Sequence[float]) -> bool:
    return len(latencies_us) >= 2 and latencies_us[-2] < latencies_us[-1]


def _falling(latencies_us: Sequence[float]) -> bool:
    return (
        len(latencies_us) >= HISTORY
        and latencies_us[-3] > latencies_us[-2] > latencies_us[-1]
    )


def _shortened(slices_us: Sequence[int]) -> bool:
    return len(slices_us) >= 2 and slices_us[-2] > slices_us[-1]


def _below(slice_us: int, limit_us: int, constants: Constants) -> bool:
    """Return whether a slice is below a limit; or at it, unless literal."""
    return slice_us < limit_us or (
        slice_us == limit_us and not constants.literal
    )


class _History:
    """Latencies and time slices of one VM's last three periods."""

    __slots__ = ('latencies_us', 'missed', 'slices_us')

    def __init__(self) -> None:
        # Number of periods without a measurement, in a row until now.
        self.missed = 0
        self.latencies_us: collections.deque[float] = collections.deque(
            maxlen=HISTORY
        )
        self.slices_us: collections.deque[int] = collections.deque(
            maxlen=HISTORY
        )


class HostSlice:
    """The time slice that all parallel VMs of a host share (Algorithm 2).

    Which VMs these are is decided by :class:`AtcPolicy`.

    :param config: settings of the control core.
    :param start_us: slice of the first period, in microseconds.
    :ivar applied_us: present slice, in microseconds.
    """

    def __init__(
        self, config: control_config.ControlConfig, start_us: int
    ) -> None:
        self.applied_us = start_us
        self._floor_us = 0.0 if config.atc_literal else config.latency_floor_us
        self._histories: dict[str, _History] = {}
        self._guard: feedback_guard.FeedbackGuard | None = None
        if config.guard and not config.atc_literal:
            self._guard = feedback_guard.FeedbackGuard(
                config.guard_window, config.guard_margin, config.guard_hold
            )

    def advance(
        self,
        vms: Sequence[model.VmView],
        constants: Constants,
        peers_us: Sequence[int] = (),
    ) -> dict[str, int | None]:
        """Take the latencies of one period and set :attr:`applied_us`.

        :param vms: parallel VMs that share the slice; the histories of all
            other VMs are dropped.
        :param constants: constants of Algorithm 1.
        :param peers_us: slices, in microseconds, of other hosts that share a
            virtual cluster with this one.
        :returns: by VM, the slice of Algorithm 1 for it alone; None if it is
            unknown.
        """
        for gone in self._histories.keys() - {vm.uuid for vm in vms}:
            del self._histories[gone]
        if not vms:
            self.applied_us = constants.default_us
            if self._guard is not None:
                self._guard.step(
                    constants.default_us,
                    constants.default_us,
                    None,
                    frozenset(),
                )
            return {}
        own_us: dict[str, int | None] = {}
        measured_us: list[float] = []
        for vm in vms:
            history = self._histories.get(vm.uuid)
            if history is None:
                history = self._histories[vm.uuid] = _History()
            latency_us = vm.sample.sync_latency_us
            if latency_us is None:
                history.missed += 1
                own_us[vm.uuid] = (
                    self.applied_us if history.missed <= HISTORY else None
                )
                continue
            history.missed = 0
            measured_us.append(latency_us)
            history.latencies_us.append(
                0.0 if latency_us <= self._floor_us else latency_us
            )
            history.slices_us.append(self.applied_us)
            own_us[vm.uuid] = compute_time_slice(
                history.latencies_us, history.slices_us, constants
            )
        known_own_us = [own for own in own_us.values() if own is not None]
        wanted_us = max(
            min([*(known_own_us or [self.applied_us]), *peers_us]),
            constants.minimum_us,
        )
        if self._guard is not None:
            wanted_us = self._guard.step(
                self.applied_us,
                wanted_us,
                sum(measured_us) / len(measured_us) if measured_us else None,
                frozenset(own_us),
            )
        self.applied_us = wanted_us
        return own_us

    @property
    def held(self) -> bool:
        """Whether the feedback guard keeps the slice from getting shorter."""
        return self._guard is not None and self._guard.holding


class AtcPolicy:
    """Algorithm 2, with the feedback guard if the option ``guard`` is set."""

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start all VMs with the slice DEFAULT."""
        self._config = config
        self._host = HostSlice(config, config.default_slice_us)

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Carry out lines 1-23 of Algorithm 2."""
        config = self._config
        constants = Constants(
            alpha_us=config.alpha_us,
            beta_us=config.beta_us,
            default_us=config.default_slice_us,
            minimum_us=min(
                config.default_slice_us,
                max(
                    config.min_threshold_us,
                    bandwidth.shortest_slice_us(context.view.limits),
                ),
            ),
            literal=config.atc_literal,
        )
        list_p = [
            vm for vm in context.view.vms if vm.workload == _PARALLEL
        ]  # lines 1-7
        # The I/O pool has a slice of its own.
        parallel = [vm for vm in list_p if vm.uuid not in context.in_io_pool]
        own_us = self._host.advance(
            parallel, constants, self._peers_us(context, parallel)
        )
        if not list_p:
            # Lines 8-11: DEFAULT for all VMs, even if they specify a slice.
            return base.SliceDecision(
                {vm.uuid: _NOT_PARALLEL for vm in context.view.vms}
            )
        applied_us = self._host.applied_us  # line 13
        reason = 'ATC'
        if applied_us == config.default_slice_us:
            reason = 'ATC: DEFAULT'
        elif self._host.held:
            reason = 'ATC: held by the guard'
        choices: dict[str, base.VmSlice] = {}
        slice_us = (
            None if applied_us >= config.default_slice_us else applied_us
        )
        for vm in context.view.vms:  # line 14
            if vm.uuid in own_us:  # lines 15-16
                choices[vm.uuid] = base.VmSlice(
                    slice_us, reason=reason, own_us=own_us[vm.uuid]
                )
            elif (
                vm.time_slice_us is not None and vm.workload != _PARALLEL
            ):  # 17
                # Line 18; all others stay at DEFAULT, lines 19-20.
                choices[vm.uuid] = base.specified(vm.time_slice_us)
            elif vm.workload != _PARALLEL:
                choices[vm.uuid] = _NOT_PARALLEL
        return base.SliceDecision(vms=choices)

    def _peers_us(
        self,
        context: base.SliceContext,
        parallel: Sequence[model.VmView],
    ) -> list[int]:
        """Return the shortest slices of hosts that share a cluster with us."""
        if not self._config.share_slices:
            return []
        peers = context.view.peers
        return [
            peer.min_slice_us
            for cluster in {vm.cluster for vm in parallel} - {None}
            if (peer := peers.get(cluster or '')) is not None
            and peer.min_slice_us is not None
            and peer.min_slice_us > 0
        ]
