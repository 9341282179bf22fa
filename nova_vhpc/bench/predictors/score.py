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

"""How well a predictor does on a trace, as the paper counts it."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from nova_vhpc.bench.common import traces
from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import base


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What a predictor did on one VM.

    Every period but the first is predicted and counts, warm-up too.

    :ivar periods: predictions made.
    :ivar hits: those that came true.
    :ivar transitions: periods whose state was not that of the one before.
    :ivar seen: transitions that were predicted, coming state and all.
    :ivar changes: predictions of another state than the one before.
    :ivar seconds: CPU time, an equal part of that of all VMs of the trace.
    """

    periods: int
    hits: int
    transitions: int
    seen: int
    changes: int
    seconds: float
    state_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """Mean over the VMs of a trace; precisions are 0..1.

    None where there is nothing to be precise about: no transition, or no
    change predicted, on any VM.

    :ivar overall: correct predictions of all (paper, table II).
    :ivar transition: of the periods in which the state changed, those
        predicted right: origin and coming state match (table III).
    :ivar change_precision: of the predicted changes, those that came true.
    :ivar transitions: per VM.
    """

    overall: float
    transition: float | None
    change_precision: float | None
    transitions: float
    us_per_prediction: float
    state_bytes: int

    def as_json(self) -> dict[str, float | int]:
        """The figures under the keys of DESIGN.md, section 7; None is 0."""
        return {
            name: 0.0 if value is None else value
            for name, value in dataclasses.asdict(self).items()
        }


def run_trace(
    make: Callable[[], base.Predictor], trace: traces.Trace
) -> list[Counts]:
    """Let new predictors go through the periods of a trace's VMs.

    The VMs are members of one virtual cluster. As in the agent, all of
    them observe a period before the next is predicted for any.

    :returns: by VM.
    """
    vms = [
        [(quantise.to_state(number), number) for number in events]
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
    # All periods were predicted for, the one after the last as well.
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
    """Compare one VM's predictions with what came."""
    hits = transitions = seen = changes = 0
    for origin, predicted, actual in zip(
        states, predictions, states[1:], strict=False
    ):
        right = predicted == actual
        hits += right
        changes += predicted != origin
        if actual != origin:
            transitions += 1
            seen += right
    return Counts(
        len(states) - 1, hits, transitions, seen, changes, seconds, state_bytes
    )


def score(
    make: Callable[[], base.Predictor], trace: traces.Trace, rounds: int = 1
) -> Score:
    """Score a predictor on a trace; the time is that of the best round."""
    runs = [run_trace(make, trace) for _ in range(rounds)]
    vms = runs[0]
    return Score(
        overall=statistics.fmean(vm.hits / vm.periods for vm in vms),
        transition=_mean(
            vm.seen / vm.transitions for vm in vms if vm.transitions
        ),
        change_precision=_mean(
            vm.seen / vm.changes for vm in vms if vm.changes
        ),
        transitions=statistics.fmean(vm.transitions for vm in vms),
        us_per_prediction=min(
            1e6 * sum(vm.seconds for vm in run) / sum(vm.periods for vm in run)
            for run in runs
        ),
        state_bytes=max(vm.state_bytes for vm in vms),
    )


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.fmean(known) if known else None
