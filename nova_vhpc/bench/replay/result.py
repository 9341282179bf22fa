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

"""What came of a replay: what was wanted, and what was done.

The phase is what a virtual cluster wants. Where its members are is told
by the pins in their plans: a pool may be too narrow for them, or there may
be none.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from nova_vhpc.control import model, quantise

NO_REASON = 'the pinning policy does not say why'


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Members that are moved into the I/O pool, or out of it, together.

    :ivar period: the first period in the new place.
    :ivar to: ``io``, or ``computing`` for out of the I/O pool.
    """

    period: int
    to: str
    vms: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class VmLine:
    """One VM through the whole trace, a value per period.

    :ivar predicted_events: what had been predicted *for* the period.
    :ivar in_io_pool: whether all its pins were in the I/O pool.
    """

    events: tuple[float | None, ...]
    predicted_events: tuple[float | None, ...]
    threshold_events: tuple[float | None, ...]
    states: tuple[int | None, ...]
    predicted_states: tuple[int | None, ...]
    in_io_pool: tuple[bool, ...]

    @property
    def precision(self) -> float | None:
        """Share of periods whose state was predicted right, 0..1."""
        pairs = [
            state == predicted
            for state, predicted in zip(
                self.states, self.predicted_states, strict=True
            )
            if state is not None and predicted is not None
        ]
        return sum(pairs) / len(pairs) if pairs else None

    @property
    def moves(self) -> int:
        """Times that it was moved into the I/O pool or out of it."""
        return _changes(self.in_io_pool)

    @property
    def io_fraction(self) -> float:
        """Share of periods that it was in the I/O pool, 0..1."""
        return sum(self.in_io_pool) / len(self.in_io_pool)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            **dataclasses.asdict(self),
            'precision': self.precision,
            'moves': self.moves,
            'io_fraction': self.io_fraction,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """What the controller did.

    :ivar phases: of the cluster, one per period, as it was *in* it.
    :ivar moves: of its members.
    :ivar writes: VMs that had to be written to, summed over all periods.
    :ivar ignored: remarks of all plans.
    :ivar not_followed: by reason, in how many periods a VM was in the I/O
        phase but not in the I/O pool, summed over the VMs.
    """

    rule: str
    vms: dict[str, VmLine]
    phases: tuple[str, ...]
    moves: tuple[Move, ...]
    writes: int
    ignored: int
    not_followed: Mapping[str, int]

    @property
    def io_fraction(self) -> float:
        """Share of the time spent in the I/O pool, 0..1; mean of the VMs."""
        lines = self.vms.values()
        return sum(line.io_fraction for line in lines) / len(lines)

    @property
    def io_phase_fraction(self) -> float:
        """Share of the time that the cluster was in the I/O phase, 0..1."""
        return self.phases.count(str(model.Phase.IO)) / len(self.phases)

    @property
    def phase_changes(self) -> int:
        """How often the phase changed, whether it was followed or not."""
        return _changes(self.phases)

    def share(self, vm_periods: int) -> float:
        """As a share of the time, 0..1: mean of the VMs."""
        return vm_periods / len(self.phases) / len(self.vms)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            'leave_rule': self.rule,
            'periods': len(self.phases),
            'moves': len(self.moves),
            'move_list': [dataclasses.asdict(move) for move in self.moves],
            'io_fraction': self.io_fraction,
            'io_phase_fraction': self.io_phase_fraction,
            'phase_changes': self.phase_changes,
            'not_followed': {
                'fraction': self.share(sum(self.not_followed.values())),
                'vm_periods': sum(self.not_followed.values()),
                'reasons': dict(self.not_followed),
            },
            'writes': self.writes,
            'ignored': self.ignored,
            'phases': list(self.phases),
            'vms': {name: line.as_json() for name, line in self.vms.items()},
        }


def summarise(
    rule: str,
    cluster: str,
    events: Mapping[str, tuple[float | None, ...]],
    plans: Sequence[model.Plan],
    writes: int,
) -> Replay:
    """Lay decisions beside the periods that they were made for.

    :param cluster: that all VMs belong to.
    :param events: I/O events per period, by VM.
    :param plans: the decision after each period; it is in force in the
        next one.
    """
    in_force = plans[:-1]
    lines: dict[str, VmLine] = {}
    not_followed: collections.Counter[str] = collections.Counter()
    for name, measured in events.items():
        vm_plans = [plan.vms[name] for plan in in_force]
        predicted = (None, *(plan.predicted_events for plan in vm_plans))
        in_io_pool = [_in_io_pool(plan, name) for plan in in_force]
        lines[name] = VmLine(
            events=measured,
            predicted_events=predicted,
            threshold_events=(
                None,
                *(plan.threshold_events for plan in vm_plans),
            ),
            states=tuple(map(_state, measured)),
            predicted_states=tuple(map(_state, predicted)),
            # Nobody is moved before the first decision.
            in_io_pool=(False, *in_io_pool),
        )
        for plan, inside in zip(in_force, in_io_pool, strict=True):
            if plan.vms[name].phase is model.Phase.IO and not inside:
                not_followed[_reason(plan, name)] += 1
    return Replay(
        rule=rule,
        vms=lines,
        phases=(
            str(model.Phase.COMPUTING),
            *(str(plan.clusters[cluster].phase) for plan in in_force),
        ),
        moves=_moves(lines),
        writes=writes,
        ignored=sum(len(plan.ignored) for plan in plans),
        not_followed=dict(not_followed.most_common()),
    )


def _in_io_pool(plan: model.Plan, name: str) -> bool:
    """Whether the plan has every vCPU of a VM inside of the I/O pool."""
    pins = plan.vms[name].tune.vcpu_pins
    # CPUs that are lent belong to the computing pool.
    if plan.pools is None or plan.pools.lent or not pins:
        return False
    return all(pin <= plan.pools.io for pin in pins)


def _reason(plan: model.Plan, name: str) -> str:
    """Why a VM is not in the I/O pool: a remark of the plan's.

    The last one on it: remarks on its sample come first, on its pins later.
    Without pools it is a remark on the host.
    """
    for uuid in ('', name) if plan.pools is None else (name, ''):
        for remark in reversed(plan.ignored):
            if remark.uuid == uuid:
                return remark.reason
    return NO_REASON


def _moves(lines: Mapping[str, VmLine]) -> tuple[Move, ...]:
    together: dict[tuple[int, bool], list[str]] = {}
    for name, line in lines.items():
        before = False
        for period, now in enumerate(line.in_io_pool):
            if now != before:
                together.setdefault((period, now), []).append(name)
            before = now
    return tuple(
        Move(
            period,
            str(model.Phase.IO if to_io else model.Phase.COMPUTING),
            tuple(names),
        )
        for (period, to_io), names in sorted(together.items())
    )


def _changes(values: Sequence[object]) -> int:
    return sum(now != before for before, now in itertools.pairwise(values))


def _state(events: float | None) -> int | None:
    return None if events is None else quantise.to_state(events)
