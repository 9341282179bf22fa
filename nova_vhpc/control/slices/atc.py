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

"""``atc``: adaptive time slice control, the ATC paper's Algorithms 1 and 2.

Algorithm 1 (section III.A) shortens a parallel VM's slice while its
synchronisation latency grows and lengthens it while there is none;
Algorithm 2 (section III.C) gives every parallel VM of the host the least
of their slices. The pseudo-code is kept line by line, with these gaps:

* *A slice equal to alpha*: line 2 wants it above, line 4 below, so as
  printed it never goes below alpha, although minThreshold is 0.3 ms and
  the text steps by 1 ms. We let line 4 take it (``<=``), so the minimum
  can be reached.
* *A slice equal to DEFAULT - alpha*: line 13 wants it above, line 15
  below, so as printed line 18 adds beta and only the period after that
  reaches DEFAULT. We let line 15 take it (``<=``): one step, same end.
* *Line 18 has no upper bound*: with beta below alpha it cannot pass
  DEFAULT, with other constants it could. Bounded by DEFAULT.
* The paper has latency in whole scheduling periods of Xen, where zero
  occurs; on Linux a few microseconds always remain, so a latency up to
  ``latency_floor_us`` counts as zero.
* A period without a measurement changes nothing and is no history. A VM
  without one for longer than the history has no say: it would keep the
  slice of all others from ever getting longer.

``atc_literal`` undoes all but the bound and the last. The :mod:`guard
<nova_vhpc.control.slices.feedback_guard>` is ours; without it
(``guard = false``) the algorithms run as they are.
"""

import collections
import dataclasses
import functools
from collections.abc import Sequence

from nova_vhpc.control import bandwidth, model
from nova_vhpc.control import config as control_config
from nova_vhpc.control.slices import base, feedback_guard

# To look up a member of an enum takes long, for each VM, each tick.
_PARALLEL = model.Workload.PARALLEL

HISTORY = 3
"""Periods looked back on: i-3, i-2 and i-1."""


@dataclasses.dataclass(frozen=True, slots=True)
class Constants:
    """Constants of Algorithm 1, us.

    :ivar literal: leave the pseudo-code's gaps as they are printed.
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
    """Algorithm 1: the time slice of the coming period *i*, us.

    :param latencies_us: up to three, of the periods ..., i-2, i-1; zero is
        exactly zero. With fewer than three, a condition that needs the
        missing ones does not hold.
    :param slices_us: slices of the same periods; at least one.
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
    """Less than a limit; the gap at the limit itself is ours to close."""
    return slice_us < limit_us or (
        slice_us == limit_us and not constants.literal
    )


class _History:
    """Latencies and slices of one VM's last three periods."""

    __slots__ = ('latencies_us', 'missed', 'slices_us')

    def __init__(self) -> None:
        # Periods without a measurement, until now.
        self.missed = 0
        self.latencies_us: collections.deque[float] = collections.deque(
            maxlen=HISTORY
        )
        self.slices_us: collections.deque[int] = collections.deque(
            maxlen=HISTORY
        )


class HostSlice:
    """Algorithm 2's one slice for all parallel VMs of a host.

    Apart from :class:`AtcPolicy`, which says who gets it.
    """

    def __init__(
        self, config: control_config.ControlConfig, start_us: int
    ) -> None:
        """Start all VMs at a slice, us."""
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
        """Take in one period's latencies and set :attr:`applied_us`.

        :param vms: the parallel VMs; others are forgotten.
        :param peers_us: slices that other hosts ask for.
        :returns: what each VM alone would get (Algorithm 1); None where
            that is not known.
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
        """Whether the guard is keeping the slice from getting shorter."""
        return self._guard is not None and self._guard.holding


@functools.lru_cache(maxsize=1_024)
def _vm_slice(
    slice_us: int | None, reason: str, own_us: int | None
) -> base.VmSlice:
    """The same object for what is alike, also in the next tick.

    It is quicker compared then.
    """
    return base.VmSlice(slice_us, reason=reason, own_us=own_us)


class AtcPolicy:
    """Algorithm 2, with the guard if it is switched on."""

    uses_io = False

    def __init__(self, config: control_config.ControlConfig) -> None:
        """Start with every VM at DEFAULT."""
        self._config = config
        self._host = HostSlice(config, config.default_slice_us)

    def decide(self, context: base.SliceContext) -> base.SliceDecision:
        """Lines 1-23 of Algorithm 2."""
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
            # Lines 8-11: DEFAULT for all, even where one is specified.
            return base.SliceDecision()
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
        alike = {
            own: _vm_slice(slice_us, reason, own)
            for own in set(own_us.values())
        }
        for vm in context.view.vms:  # line 14
            if vm.uuid in own_us:  # lines 15-16
                choices[vm.uuid] = alike[own_us[vm.uuid]]
            elif (
                vm.time_slice_us is not None and vm.workload != _PARALLEL
            ):  # 17
                choices[vm.uuid] = base.VmSlice(
                    vm.time_slice_us, reason='specified', specified=True
                )  # line 18; all others stay at DEFAULT, lines 19-20
        return base.SliceDecision(vms=choices)

    def _peers_us(
        self,
        context: base.SliceContext,
        parallel: Sequence[model.VmView],
    ) -> list[int]:
        """Least slices of the other hosts that share our clusters."""
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
