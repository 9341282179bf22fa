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
KeyError, TypeError or ValueError where there are no figures. A verdict is
given only if it is the same from end to end of the range that the runs leave
(:mod:`nova_vhpc.bench.lab.confidence`).
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from nova_vhpc.bench.lab import confidence

HOLDS, PARTLY, FAILS, UNDECIDED, UNKNOWN = (
    'holds',
    'holds in part',
    'does not hold',
    'not decided',
    'not measured',
)

Document = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """What our figures say of a claim."""

    outcome: str
    figure: str


def _gain(
    document: Document, experiment: str, figure: str, setting: str, base: str
) -> confidence.ConfidenceRange:
    """One setting over the other, of the same rounds."""
    by_setting = document['claims']['rounds'][experiment][figure]
    return confidence.range_of_ratios(by_setting[setting], by_setting[base])


def _decided(
    measured: confidence.ConfidenceRange,
    rule: Callable[[float], str],
    text: str,
) -> ClaimVerdict:
    return ClaimVerdict(measured.decide(rule, UNDECIDED), text)


def _at_least(least: float, partly: float) -> Callable[[float], str]:
    def rule(value: float) -> str:
        if value >= least:
            return HOLDS
        return PARTLY if value >= partly else FAILS

    return rule


def _small_loss(
    change: confidence.ConfidenceRange, most: float, text: str
) -> ClaimVerdict:
    """Partly where there is next to none, or a small gain."""
    gain = 0.05

    def rule(change: float) -> str:
        if not -most <= change <= gain:
            return FAILS
        return HOLDS if change < -0.01 else PARTLY

    if change.low < -most and change.high > gain:
        # It fails at both ends, but for opposite reasons.
        return ClaimVerdict(UNDECIDED, text)
    return _decided(change, rule, text)


def latency(document: Document) -> ClaimVerdict:
    """Of the wait, by slice."""
    waits = document['claims']['slices']['wait_ms']
    change = _gain(document, 'slices', 'wait_ms', '4', '100')
    return _decided(
        change,
        lambda part: HOLDS if part < 0.5 else FAILS,
        f'mean wait per run {waits["100"]:.1f} ms with slices of 100 ms, '
        f'{waits["4"]:.1f} ms with 4 ms, {waits["2"]:.1f} ms with 2 ms; 4 ms '
        f'over 100 ms {change.text(".2f")}' + _correlation(document),
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


def performance(document: Document) -> ClaimVerdict:
    """Of the work, by slice."""
    work = _numbers(document['claims']['slices']['a'])
    best = max(work, key=lambda key: work[key])
    gain = _gain(document, 'slices', 'a', best, '100')

    def rule(times: float) -> str:
        if times < 1.5:
            return FAILS
        return HOLDS if float(best) <= 8 else PARTLY

    return _decided(
        gain,
        rule,
        'progress of three barrier guests, relative to no quota: '
        + ', '.join(
            f'{work[key]:.2f} at {key} ms'
            for key in sorted(work, key=float, reverse=True)
        )
        + f'; at {best} ms over 100 ms {gain.text(".2f")}',
    )


def best_slice(document: Document) -> ClaimVerdict:
    """Of the slice with the most work: holds if it is the shortest."""
    work = _numbers(document['claims']['slices']['a'])
    best = max(work, key=lambda key: work[key])
    shortest = min(work, key=float)
    against = {
        _gain(document, 'slices', 'a', shortest, key).decide(
            lambda gain: HOLDS if gain > 1 else FAILS, UNDECIDED
        )
        for key in work
        if key != shortest
    }
    # One slice that is better is enough.
    order = (FAILS, UNDECIDED, HOLDS)
    verdict = min(against, key=order.index)
    return ClaimVerdict(
        verdict,
        f'most work of those that libvirt takes: {best} ms'
        + _distances(document),
    )


def _numbers(by_slice: Mapping[str, float | None]) -> dict[str, float]:
    return {
        key: value
        for key, value in by_slice.items()
        if key != 'none' and value
    }


def _side_by_side(
    document: Document, mix: str, figure: str
) -> tuple[list[float], ...]:
    """By round, under stock, ``atc`` and ours.

    :raises ValueError: if one of them was kept from another run (--merge):
        its rounds are not those of the others.
    """
    entries = [
        document['mixes'][mix][policy]
        for policy in ('stock', 'atc', 'default')
    ]
    if len({entry.get('when') for entry in entries}) > 1:
        raise ValueError(f'{mix}: not all policies are of one run')
    return tuple(entry[figure] for entry in entries)


def atc(document: Document) -> ClaimVerdict:
    """Of ``atc`` to the letter.

    By efficiency: a cluster that got next to nothing under stock would make
    any speedup, however large, of next to nothing.
    """
    stock, theirs, ours = _side_by_side(document, 'clusters', 'efficiencies')
    gain = confidence.range_of_ratios(theirs, stock)
    return _decided(
        gain,
        _at_least(1.5, 1.5),
        f'efficiency under atc to the letter {gain.text(".2f")} times that '
        'under stock, under gang windows '
        f'{confidence.range_of_ratios(ours, stock).text(".2f")} times '
        '(three clusters, no quota)',
    )


def non_parallel(document: Document) -> ClaimVerdict:
    """Of CPU hogs."""
    stock, theirs, ours = _side_by_side(document, 'hogs', 'others')
    change = confidence.range_of_ratios(theirs, stock).relative_change()
    gang_change = confidence.range_of_ratios(ours, stock).relative_change()
    return _decided(
        change,
        lambda gain: HOLDS if gain >= -0.1 else FAILS,
        f'work of two hogs {change.text("+.0%")} under atc, '
        f'{gang_change.text("+.0%")} under '
        'gang windows, against stock',
    )


def memory(document: Document) -> ClaimVerdict:
    """Of ``stream``, by slice."""
    change = _gain(document, 'memory', 'stream', '4', '100').relative_change()
    return _small_loss(
        change,
        0.1,
        f'stream {change.text("+.0%")} with slices of 4 ms against 100 ms',
    )


def io_heavy(document: Document) -> ClaimVerdict:
    """Of ``allreduce``, by slice."""
    gain = _gain(document, 'talk', 'cg', '4', '100').relative_change()
    return _decided(
        gain,
        _at_least(0.5, 0.1),
        f'allreduce {gain.text("+.0%")} with slices of 4 ms against 100 ms',
    )


def io_light(document: Document) -> ClaimVerdict:
    """Of ``cpi``, by slice."""
    change = _gain(document, 'talk', 'ep', '4', '100').relative_change()
    return _small_loss(
        change,
        0.2,
        f'cpi {change.text("+.0%")} with slices of 4 ms against 100 ms',
    )


def pool_heavy(document: Document) -> ClaimVerdict:
    """Of ``allreduce`` in a pool."""
    gain = _gain(document, 'pool', 'cg', 'pools', 'none').relative_change()
    return _decided(
        gain,
        _at_least(0.5, 0.1),
        f'allreduce {gain.text("+.0%")} in a pool of its own, against no '
        'pools',
    )


def pool_light(document: Document) -> ClaimVerdict:
    """Of ``cpi`` beside the I/O pool."""
    change = _gain(document, 'pool', 'ep', 'pools', 'none').relative_change()
    return _decided(
        change,
        lambda gain: HOLDS if gain >= -0.05 else FAILS,
        f'cpi {change.text("+.0%")} in the computing pool, against no pools',
    )


def spare_cpu(document: Document) -> ClaimVerdict:
    """Of ``allreduce`` with a CPU for its packets."""
    gain = _gain(document, 'spare', 'cg', 'spare', 'none').relative_change()
    return _decided(
        gain,
        _at_least(0.25, 0.1),
        f'allreduce {gain.text("+.0%")} with a CPU for the packets, against '
        'one that another guest keeps busy',
    )


def needs_hosts(document: Document) -> ClaimVerdict:
    """What no single machine shows."""
    return ClaimVerdict(
        UNKNOWN,
        'the lab is one host, without NICs to give away or a switch',
    )


def linear(document: Document) -> ClaimVerdict:
    """Of ``cpi`` on more vCPUs."""
    two, four = (
        _gain(document, 'scaling', 'ep', vcpus, '1') for vcpus in '24'
    )
    return _decided(
        two,
        _at_least(1.8, 1.8),
        f'cpi: {two.text(".2f")} times with 2 vCPUs, {four.text(".2f")} '
        'with 4, on two CPUs',
    )


def paradigms(document: Document) -> ClaimVerdict:
    """Of messages and threads."""
    threads, messages = (
        confidence.range_of(document['mixes'][mix]['stock']['efficiencies'])
        for mix in ('clusters', 'network')
    )
    return _decided(
        messages.ratio_to(threads),
        _at_least(1.5, 1.5),
        f'efficiency under stock Linux: {messages.text(".2f")} with messages '
        f'between guests (twice over-committed), {threads.text(".2f")} with '
        'spinning threads (three times)',
    )
