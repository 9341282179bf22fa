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


"""What the lab's figures say of each claim of the papers.

Each function reads the JSON of ``nova-vhpc-bench lab --claims`` and raises
KeyError or TypeError where there are no figures.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping
from typing import Any

HOLDS, PARTLY, FAILS, UNKNOWN = (
    'holds',
    'holds in part',
    'does not hold',
    'not measured',
)

Document = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What our figures say of a claim."""

    verdict: str
    figure: str


def latency(document: Document) -> Answer:
    """Of the wait, by slice."""
    waits = document['claims']['slices']['wait_ms']
    long, short = waits['100'], waits['4']
    verdict = HOLDS if short < long / 2 else FAILS
    return Answer(
        verdict,
        f'mean wait per run {long:.1f} ms with slices of 100 ms, '
        f'{short:.1f} ms with 4 ms, {waits["2"]:.1f} ms with 2 ms'
        + _correlation(document),
    )


def _correlation(document: Document) -> str:
    """Pearson's, of wait and execution time over the slices (figure 5)."""
    slices = document['claims']['slices']
    waits, work = slices['wait_ms'], _numbers(slices['a'])
    if not work.keys() <= waits.keys():
        return ''
    times = [1 / value for value in work.values()]
    try:
        found = statistics.correlation([waits[key] for key in work], times)
    except statistics.StatisticsError:
        # One slice only, or all alike.
        return ''
    return f'; correlation with the execution time {found:.2f}'


def _distances(document: Document) -> str:
    """The ATC paper's equation (1) by slice, least for the best of all.

    Over a program that spins, one that communicates and one that does
    neither, with the slices that all were measured with.
    """
    found = document['claims']
    times = [
        {key: 1 / value for key, value in _numbers(work).items()}
        for work in (
            found['slices']['a'],
            found.get('talk', {}).get('cg', {}),
            found.get('talk', {}).get('ep', {}),
        )
    ]
    shared = set.intersection(*(set(one) for one in times))
    if not shared:
        return ''
    best = [min(one[key] for key in shared) for one in times]
    return '; distance over three programs (equation 1): ' + ', '.join(
        f'{math.dist([one[key] for one in times], best):.2f} at {key} ms'
        for key in sorted(shared, key=float, reverse=True)
    )


def performance(document: Document) -> Answer:
    """Of the work, by slice."""
    work = _numbers(document['claims']['slices']['a'])
    best = max(work, key=lambda key: work[key])
    gain = work[best] / work['100']
    verdict = HOLDS if gain >= 1.5 and float(best) <= 8 else FAILS
    if verdict == FAILS and gain >= 1.5:
        verdict = PARTLY
    return Answer(
        verdict,
        'progress of three barrier guests, relative to no quota: '
        + ', '.join(
            f'{work[key]:.2f} at {key} ms'
            for key in sorted(work, key=float, reverse=True)
        ),
    )


def best_slice(document: Document) -> Answer:
    """Of the slice with the most work."""
    work = _numbers(document['claims']['slices']['a'])
    best = max(work, key=lambda key: work[key])
    verdict = HOLDS if float(best) == min(map(float, work)) else FAILS
    return Answer(
        verdict,
        f'best of those that libvirt takes: {best} ms{_distances(document)}',
    )


def _numbers(by_slice: Mapping[str, float | None]) -> dict[str, float]:
    return {
        key: value
        for key, value in by_slice.items()
        if key != 'none' and value
    }


def atc(document: Document) -> Answer:
    """Of ``atc`` to the letter."""
    entry = document['mixes']['clusters']['atc']
    ours = document['mixes']['clusters']['default']
    return Answer(
        HOLDS if entry['speedup'] >= 1.5 else FAILS,
        f'atc to the letter {entry["speedup"]:.2f} times stock; gang windows '
        f'{ours["speedup"]:.2f} times (three clusters, no quota)',
    )


def non_parallel(document: Document) -> Answer:
    """Of CPU hogs."""
    entry = document['mixes']['hogs']['atc']
    verdict = HOLDS if entry['loss'] <= 0.1 else FAILS
    return Answer(
        verdict,
        f'two hogs lost {entry["loss"]:.1%} under atc, '
        f'{document["mixes"]["hogs"]["default"]["loss"]:.1%} under gang '
        'windows, against stock',
    )


def memory(document: Document) -> Answer:
    """Of ``stream``, by slice."""
    work = document['claims']['memory']['stream']
    change = work['4'] / work['100'] - 1
    return Answer(
        _slight_loss(change, 0.1),
        f'stream {change:+.0%} with slices of 4 ms against 100 ms',
    )


def _slight_loss(change: float, most: float) -> str:
    """Partly where there is next to none, or a small gain."""
    if not -most <= change <= 0.05:
        return FAILS
    return HOLDS if change < -0.01 else PARTLY


def _large_gain(gain: float) -> str:
    return HOLDS if gain >= 0.5 else PARTLY if gain >= 0.1 else FAILS


def io_heavy(document: Document) -> Answer:
    """Of ``allreduce``, by slice."""
    talk = document['claims']['talk']['cg']
    gain = talk['4'] / talk['100'] - 1
    return Answer(
        _large_gain(gain),
        f'allreduce {gain:+.0%} with slices of 4 ms against 100 ms',
    )


def io_light(document: Document) -> Answer:
    """Of ``cpi``, by slice."""
    talk = document['claims']['talk']['ep']
    change = talk['4'] / talk['100'] - 1
    return Answer(
        _slight_loss(change, 0.2),
        f'cpi {change:+.0%} with slices of 4 ms against 100 ms',
    )


def pool_heavy(document: Document) -> Answer:
    """Of ``allreduce`` in a pool."""
    gain = document['claims']['pool']['cg'] - 1
    return Answer(
        _large_gain(gain),
        f'allreduce {gain:+.0%} in a pool of its own, against no pools',
    )


def pool_light(document: Document) -> Answer:
    """Of ``cpi`` beside the I/O pool."""
    change = document['claims']['pool']['ep'] - 1
    return Answer(
        HOLDS if change >= -0.05 else FAILS,
        f'cpi {change:+.0%} in the computing pool, against no pools',
    )


def spare_cpu(document: Document) -> Answer:
    """Of ``allreduce`` with a CPU for its packets."""
    gain = document['claims']['spare'] - 1
    return Answer(
        HOLDS if gain >= 0.25 else PARTLY if gain >= 0.1 else FAILS,
        f'allreduce {gain:+.0%} with a CPU for the packets, against one '
        'that another guest keeps busy',
    )


def needs_hosts(document: Document) -> Answer:
    """What no single machine shows."""
    return Answer(
        UNKNOWN,
        'the lab is one host, without NICs to give away or a switch',
    )


def linear(document: Document) -> Answer:
    """Of ``cpi`` on more vCPUs."""
    scaling = document['claims']['scaling']
    verdict = HOLDS if scaling['2'] >= 1.8 else FAILS
    return Answer(
        verdict,
        f'cpi: {scaling["2"]:.2f} times with 2 vCPUs, {scaling["4"]:.2f} '
        'with 4, on two CPUs',
    )


def paradigms(document: Document) -> Answer:
    """Of messages and threads."""
    threads = document['mixes']['clusters']['stock']['efficiency']
    messages = document['mixes']['network']['stock']['efficiency']
    return Answer(
        HOLDS if messages > 1.5 * threads else FAILS,
        f'efficiency under stock Linux: {messages:.2f} with messages '
        f'between guests (twice over-committed), {threads:.2f} with '
        'spinning threads (three times)',
    )
