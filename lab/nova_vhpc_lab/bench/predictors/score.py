# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Precision of a predictor on a trace, as the io-perception paper counts."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from nova_vhpc.control.predictors import base
from nova_vhpc_lab.bench.common import traces


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a predictor's results on one VM.

    Every period except the first is predicted and counted, the predictor's
    warm-up included.

    :ivar periods: number of predictions.
    :ivar hits: number of correct predictions.
    :ivar transitions: number of periods whose state differed from the state
        of the period before.
    :ivar predicted_transitions: number of transitions whose new state was
        predicted.
    :ivar changes: number of predictions that differed from the current state.
    :ivar seconds: CPU time, in seconds: the time for all VMs of the trace
        divided by their number.
    :ivar state_bytes: memory of the predictor, in bytes.
    """

    periods: int
    hits: int
    transitions: int
    predicted_transitions: int
    changes: int
    seconds: float
    state_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """Mean over the VMs of a trace; precisions are 0..1.

    :ivar overall: fraction of correct predictions (paper, table II).
    :ivar transition: fraction of the transitions whose new state was
        predicted (paper, table III); None without a transition on any VM.
    :ivar change_precision: fraction of the predicted changes that came true;
        None if no change was predicted on any VM.
    :ivar transitions: number of transitions per VM.
    :ivar us_per_prediction: CPU time per prediction, in microseconds.
    :ivar state_bytes: greatest memory of a VM's predictor, in bytes.
    """

    overall: float
    transition: float | None
    change_precision: float | None
    transitions: float
    us_per_prediction: float
    state_bytes: int

    def as_json(self) -> dict[str, float | int]:
        """Return the figures by their JSON keys, 0 instead of None."""
        return {
            name: 0.0 if value is None else value
            for name, value in dataclasses.asdict(self).items()
        }


def run_trace(
    make: Callable[[], base.Predictor], trace: traces.Trace
) -> list[Counts]:
    """Run new predictors, one per VM, through a trace.

    The VMs count as members of one virtual cluster. As in the agent, the
    predictors of all VMs observe a period before any predicts the next.

    :param make: returns a new predictor.
    :returns: the counts of each VM.
    """
    vms = [
        [(base.to_state(number), number) for number in events]
        for events in trace.events
    ]
    periods = list(zip(*vms, strict=True))
    first = make()
    predictors = [first, *(base.for_member(first, make) for _ in vms[1:])]
    predictions: list[list[int]] = []
    start = time.thread_time()
    for period in periods:
        for predictor, (state, number) in zip(predictors, period, strict=True):
            predictor.observe(state, number)
        predictions.append([predictor.predict() for predictor in predictors])
    seconds = time.thread_time() - start
    # The prediction after the last period cannot be checked.
    seconds *= (len(periods) - 1) / len(periods) / len(predictors)
    return [
        _count(
            [state for state, _ in vm],
            predicted,
            seconds,
            predictor.state_bytes,
        )
        for vm, predicted, predictor in zip(
            vms, zip(*predictions, strict=True), predictors, strict=True
        )
    ]


def _count(
    states: Sequence[int],
    predictions: Sequence[int],
    seconds: float,
    state_bytes: int,
) -> Counts:
    """Compare the predictions for one VM to its states."""
    hits = transitions = predicted_transitions = changes = 0
    for origin, predicted, actual in zip(
        states, predictions, states[1:], strict=False
    ):
        hit = predicted == actual
        hits += hit
        changes += predicted != origin
        if actual != origin:
            transitions += 1
            predicted_transitions += hit
    return Counts(
        len(states) - 1,
        hits,
        transitions,
        predicted_transitions,
        changes,
        seconds,
        state_bytes,
    )


def score(
    make: Callable[[], base.Predictor], trace: traces.Trace, rounds: int = 1
) -> Score:
    """Return the score of a predictor on a trace.

    :param make: returns a new predictor.
    :param rounds: number of runs, of which the fastest counts.
    """
    runs = [run_trace(make, trace) for _ in range(rounds)]
    vms = runs[0]
    return Score(
        overall=statistics.fmean(vm.hits / vm.periods for vm in vms),
        transition=_mean(
            vm.predicted_transitions / vm.transitions
            for vm in vms
            if vm.transitions
        ),
        change_precision=_mean(
            vm.predicted_transitions / vm.changes for vm in vms if vm.changes
        ),
        transitions=statistics.fmean(vm.transitions for vm in vms),
        us_per_prediction=min(
            1e6 * sum(vm.seconds for vm in run) / sum(vm.periods for vm in run)
            for run in runs
        ),
        state_bytes=max(vm.state_bytes for vm in vms),
    )


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return statistics.fmean(numbers) if numbers else None
