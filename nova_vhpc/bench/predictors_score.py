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

from nova_vhpc.bench import traces
from nova_vhpc.control import quantise
from nova_vhpc.control.predictors import base


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What one predictor did on one VM.

    Every period but the first is predicted and counts, warm-up too.

    :ivar periods: predictions made.
    :ivar hits: those that came true.
    :ivar transitions: periods whose state was not that of the one before.
    :ivar seen: transitions that were predicted, coming state and all.
    :ivar changes: predictions of another state than the one before.
    :ivar seconds: CPU time of all predictions.
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


def run_vm(
    make: Callable[[], base.Predictor], events: Sequence[float]
) -> Counts:
    """Let a new predictor go through the periods of one VM."""
    states = [quantise.to_state(number) for number in events]
    periods = list(zip(states, events, strict=True))
    predictor = make()
    predictions = []
    start = time.thread_time()
    for state, number in periods:
        predictor.observe(state, number)
        predictions.append(predictor.predict())
    seconds = time.thread_time() - start
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
        len(states) - 1,
        hits,
        transitions,
        seen,
        changes,
        # All periods were predicted for, the one after the last as well.
        seconds * (len(states) - 1) / len(states),
        predictor.state_bytes,
    )


def score(
    make: Callable[[], base.Predictor], trace: traces.Trace, rounds: int = 1
) -> Score:
    """Score a predictor on a trace; the time is each VM's best round's."""
    runs = [
        [run_vm(make, events) for events in trace.events]
        for _ in range(rounds)
    ]
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
