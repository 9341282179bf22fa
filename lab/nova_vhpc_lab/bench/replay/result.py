# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of a replay.

The phase of a virtual cluster and the place of its members are counted apart.
Members of a cluster in the I/O phase may be outside of the I/O pool, because
the pool is too small for them or does not exist. The pins in the plans tell.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from nova_vhpc.control import model
from nova_vhpc.control.predictors import base as predictors_base

NO_REASON = 'the pinning policy gives no reason'


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A move of members into the I/O pool, or out of it, in one period.

    :ivar period: first period in the new place.
    :ivar to: ``io``, or ``computing`` for out of the I/O pool.
    :ivar vms: names of the VMs.
    """

    period: int
    to: str
    vms: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class VmLine:
    """One VM's values, each with one element per period of the trace.

    :ivar events: measured I/O events; None if not measured.
    :ivar predicted_events: I/O events that were predicted *for* the period.
    :ivar threshold_events: threshold between computing and I/O.
    :ivar states: quantised ``events``.
    :ivar predicted_states: quantised ``predicted_events``.
    :ivar in_io_pool: whether all pins were inside of the I/O pool.
    """

    events: tuple[float | None, ...]
    predicted_events: tuple[float | None, ...]
    threshold_events: tuple[float | None, ...]
    states: tuple[int | None, ...]
    predicted_states: tuple[int | None, ...]
    in_io_pool: tuple[bool, ...]

    @property
    def precision(self) -> float | None:
        """Fraction of periods whose state was predicted right, 0..1."""
        hits = [
            state == predicted
            for state, predicted in zip(
                self.states, self.predicted_states, strict=True
            )
            if state is not None and predicted is not None
        ]
        return sum(hits) / len(hits) if hits else None

    @property
    def moves(self) -> int:
        """Number of moves into the I/O pool or out of it."""
        return _changes(self.in_io_pool)

    @property
    def io_fraction(self) -> float:
        """Fraction of periods in the I/O pool, 0..1."""
        return sum(self.in_io_pool) / len(self.in_io_pool)

    def as_json(self) -> dict[str, Any]:
        """Return the values by their JSON keys."""
        return {
            **dataclasses.asdict(self),
            'precision': self.precision,
            'moves': self.moves,
            'io_fraction': self.io_fraction,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """The controller's decisions on a trace.

    :ivar rule: leave rule, a key of ``run.RULES``.
    :ivar vms: values of each VM, by name.
    :ivar phases: phase of the cluster in each period.
    :ivar moves: moves of the members.
    :ivar writes: number of VMs to write to, summed over all periods.
    :ivar ignored: number of diagnostics in all plans.
    :ivar not_followed: number of periods in which a VM was in the I/O phase
        but outside of the I/O pool, summed over all VMs, by reason.
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
        """Fraction of the time in the I/O pool, 0..1; mean over the VMs."""
        lines = self.vms.values()
        return sum(line.io_fraction for line in lines) / len(lines)

    @property
    def io_phase_fraction(self) -> float:
        """Fraction of the time in the I/O phase, 0..1."""
        return self.phases.count(str(model.Phase.IO)) / len(self.phases)

    @property
    def phase_changes(self) -> int:
        """Number of changes of phase, followed by a move or not."""
        return _changes(self.phases)

    def share(self, vm_periods: int) -> float:
        """Return VM periods as a fraction of the time, 0..1, per VM."""
        return vm_periods / len(self.phases) / len(self.vms)

    def as_json(self) -> dict[str, Any]:
        """Return the values by their JSON keys."""
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
    """Return the figures of a replay.

    :param rule: leave rule.
    :param cluster: virtual cluster of all VMs.
    :param events: I/O events per period, by VM.
    :param plans: plan made after each period, which is in force in the next.
    :param writes: number of VMs to write to, summed over all periods.
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
            # Before the first plan no VM is moved.
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
    """Tell whether a plan pins all vCPUs of a VM inside of the I/O pool."""
    pins = plan.vms[name].tune.vcpu_pins
    # A lent I/O pool serves the computing pool.
    if plan.pools is None or plan.pools.lent or not pins:
        return False
    return all(pin <= plan.pools.io for pin in pins)


def _reason(plan: model.Plan, name: str) -> str:
    """Return why a VM is not in the I/O pool, by the plan's diagnostics.

    The VM's last diagnostic is taken, because diagnostics on its sample come
    before those on its pins. Without pools, the host's last one is taken.
    """
    for uuid in ('', name) if plan.pools is None else (name, ''):
        for diagnostic in reversed(plan.ignored):
            if diagnostic.uuid == uuid:
                return diagnostic.reason
    return NO_REASON


def _moves(lines: Mapping[str, VmLine]) -> tuple[Move, ...]:
    names_by_move: dict[tuple[int, bool], list[str]] = {}
    for name, line in lines.items():
        was_inside = False
        for period, inside in enumerate(line.in_io_pool):
            if inside != was_inside:
                names_by_move.setdefault((period, inside), []).append(name)
            was_inside = inside
    return tuple(
        Move(
            period,
            str(model.Phase.IO if to_io else model.Phase.COMPUTING),
            tuple(names),
        )
        for (period, to_io), names in sorted(names_by_move.items())
    )


def _changes(values: Sequence[object]) -> int:
    return sum(now != before for before, now in itertools.pairwise(values))


def _state(events: float | None) -> int | None:
    return None if events is None else predictors_base.to_state(events)
