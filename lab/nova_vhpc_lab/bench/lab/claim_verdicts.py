# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Judge the papers' claims by the figures that the lab measured.

Each function or :class:`WorkChange` reads the JSON of
``nova-vhpc-bench lab --claims`` and returns the verdict on one claim. It
raises KeyError, TypeError or ValueError if the figures for that claim are
missing. A claim is decided only if the verdict is the same in the whole
confidence range (:mod:`nova_vhpc_lab.bench.lab.confidence`).
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from nova_vhpc_lab.bench.lab import confidence

HOLDS, PARTLY, FAILS, UNDECIDED, UNKNOWN = (
    'holds',
    'holds in part',
    'does not hold',
    'not decided',
    'not measured',
)

Document = Mapping[str, Any]
"""The JSON of ``nova-vhpc-bench lab``."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Whether a claim holds on Linux, and the figures that decide it.

    :ivar outcome: one of the constants above.
    :ivar figure: the measured figures, for readers.
    """

    outcome: str
    figure: str


def _gain(
    document: Document, experiment: str, figure: str, setting: str, base: str
) -> confidence.ConfidenceRange:
    """Return the ratio of two settings of one experiment, round by round."""
    by_setting = document['claims']['rounds'][experiment][figure]
    return confidence.range_of_ratios(by_setting[setting], by_setting[base])


Rule = Callable[[confidence.ConfidenceRange], str]
"""Returns the outcome for a measured range."""


def _at_least(least: float, partly: float = math.inf) -> Rule:
    """Return the rule: holds from ``least`` on, in part from ``partly`` on."""

    def outcome(value: float) -> str:
        if value >= least:
            return HOLDS
        return PARTLY if value >= partly else FAILS

    return lambda measured: measured.decide(outcome, UNDECIDED)


def _small_loss(most: float) -> Rule:
    """Return the rule: there is a loss, but a small one.

    The claim holds in part if there is hardly any loss, or a small gain.

    :param most: largest loss that is still small, as a fraction.
    """
    gain = 0.05

    def outcome(change: float) -> str:
        if not -most <= change <= gain:
            return FAILS
        return HOLDS if change < -0.01 else PARTLY

    def rule(change: confidence.ConfidenceRange) -> str:
        if change.low < -most and change.high > gain:
            # The claim fails at both ends of the range, for opposite reasons.
            return UNDECIDED
        return change.decide(outcome, UNDECIDED)

    return rule


@dataclasses.dataclass(frozen=True, slots=True)
class WorkChange:
    """Judges a claim by how much more work a setting lets guests do.

    :ivar experiment: name of the experiment.
    :ivar figure: name of the guests whose work is compared.
    :ivar setting: the setting that the claim is about.
    :ivar base: the setting to compare with.
    :ivar rule: judges the relative change of the work.
    :ivar text: the figure for readers, with {} for the change.
    """

    experiment: str
    figure: str
    setting: str
    base: str
    rule: Rule
    text: str

    def __call__(self, document: Document) -> ClaimVerdict:
        """Return the verdict on the claim."""
        change = _gain(
            document, self.experiment, self.figure, self.setting, self.base
        ).relative_change()
        return ClaimVerdict(
            self.rule(change), self.text.format(change.text('+.0%'))
        )


def latency(document: Document) -> ClaimVerdict:
    """Judge: a shorter time slice means a lower spinlock latency."""
    waits = document['claims']['slices']['wait_ms']
    change = _gain(document, 'slices', 'wait_ms', '4', '100')
    return ClaimVerdict(
        change.decide(lambda part: HOLDS if part < 0.5 else FAILS, UNDECIDED),
        f'mean wait per run {waits["100"]:.1f} ms with slices of 100 ms, '
        f'{waits["4"]:.1f} ms with 4 ms, {waits["2"]:.1f} ms with 2 ms; 4 ms '
        f'over 100 ms {change.text(".2f")}' + _correlation(document),
    )


def _correlation(document: Document) -> str:
    """Return Pearson's correlation of wait and execution time, as text.

    Over the slices, as in figure 5 of the ATC paper.
    """
    slices = document['claims']['slices']
    waits, work = slices['wait_ms'], _numbers(slices['a'])
    if not work.keys() <= waits.keys():
        return ''
    times = [1 / value for value in work.values()]
    try:
        correlation = statistics.correlation(
            [waits[key] for key in work], times
        )
    except statistics.StatisticsError:
        # There is only one slice, or all values are the same.
        return ''
    return f'; correlation with the execution time {correlation:.2f}'


def _distances(document: Document) -> str:
    """Return the distances of the ATC paper's equation (1), as text.

    The best slice is the one with the least Euclidean distance to the best
    execution times of three programs: one that spins, one that communicates
    and one that does neither. Only slices with which all three were measured
    count.
    """
    claims = document['claims']
    times = [
        {key: 1 / value for key, value in _numbers(work).items()}
        for work in (
            claims['slices']['a'],
            claims.get('talk', {}).get('cg', {}),
            claims.get('talk', {}).get('ep', {}),
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
    """Judge: a shorter time slice makes parallel programs faster."""
    work = _numbers(document['claims']['slices']['a'])
    best = max(work, key=lambda key: work[key])
    gain = _gain(document, 'slices', 'a', best, '100')

    def outcome(times: float) -> str:
        if times < 1.5:
            return FAILS
        return HOLDS if float(best) <= 8 else PARTLY

    return ClaimVerdict(
        gain.decide(outcome, UNDECIDED),
        'progress of three barrier guests, relative to no quota: '
        + ', '.join(
            f'{work[key]:.2f} at {key} ms'
            for key in sorted(work, key=float, reverse=True)
        )
        + f'; at {best} ms over 100 ms {gain.text(".2f")}',
    )


def best_slice(document: Document) -> ClaimVerdict:
    """Judge: 0.3 ms is the best slice.

    The claim holds if the shortest slice that was measured is the best.
    """
    work = _numbers(document['claims']['slices']['a'])
    best = max(work, key=lambda key: work[key])
    shortest = min(work, key=float)
    outcomes = {
        _gain(document, 'slices', 'a', shortest, key).decide(
            lambda gain: HOLDS if gain > 1 else FAILS, UNDECIDED
        )
        for key in work
        if key != shortest
    }
    # A single slice that is better refutes the claim.
    order = (FAILS, UNDECIDED, HOLDS)
    return ClaimVerdict(
        min(outcomes, key=order.index),
        f'most work of those that libvirt takes: {best} ms'
        + _distances(document),
    )


def _numbers(by_slice: Mapping[str, float | None]) -> dict[str, float]:
    """Return the work by slice, without "no quota" and missing figures."""
    return {
        key: value
        for key, value in by_slice.items()
        if key != 'none' and value
    }


def _side_by_side(
    document: Document, mix: str, figure: str
) -> tuple[list[float], ...]:
    """Return a figure by round under stock, ``atc`` and the default policy.

    :raises ValueError: a policy was kept from an earlier run (``--merge``),
        so that its rounds cannot be compared with the others'.
    """
    entries = [
        document['mixes'][mix][policy]
        for policy in ('stock', 'atc', 'default')
    ]
    if len({entry.get('when') for entry in entries}) > 1:
        raise ValueError(f'{mix}: not all policies are of one run')
    return tuple(entry[figure] for entry in entries)


def atc(document: Document) -> ClaimVerdict:
    """Judge: ATC, as published, beats the stock scheduler 1.5 to 10 times.

    Efficiencies are compared, not speedups: the speedup of a cluster that did
    hardly anything under stock says nothing.
    """
    stock, atc_values, default = _side_by_side(
        document, 'clusters', 'efficiencies'
    )
    gain = confidence.range_of_ratios(atc_values, stock)
    return ClaimVerdict(
        _at_least(1.5)(gain),
        f'efficiency under atc to the letter {gain.text(".2f")} times that '
        'under stock, under gang windows '
        f'{confidence.range_of_ratios(default, stock).text(".2f")} times '
        '(three clusters, no quota)',
    )


def atc_with_quota(document: Document) -> ClaimVerdict:
    """Judge the claim of :func:`atc` where its slices can act."""
    stock, atc_values, default = _side_by_side(
        document, 'quota', 'efficiencies'
    )
    gain = confidence.range_of_ratios(atc_values, stock)
    return ClaimVerdict(
        _at_least(1.5)(gain),
        f'efficiency under atc to the letter {gain.text(".2f")} times that '
        'under stock, under gang windows '
        f'{confidence.range_of_ratios(default, stock).text(".2f")} times '
        '(three clusters with a quota of half a CPU per vCPU)',
    )


def non_parallel(document: Document) -> ClaimVerdict:
    """Judge: programs that are not parallel are hardly affected by ATC."""
    stock, atc_values, default = _side_by_side(document, 'hogs', 'others')
    change = confidence.range_of_ratios(atc_values, stock).relative_change()
    gang_change = confidence.range_of_ratios(default, stock).relative_change()
    return ClaimVerdict(
        _at_least(-0.1)(change),
        f'work of two hogs {change.text("+.0%")} under atc, '
        f'{gang_change.text("+.0%")} under gang windows, against stock',
    )


MEMORY = WorkChange(
    *('memory', 'stream', '4', '100'),
    _small_loss(0.1),
    'stream {} with slices of 4 ms against 100 ms',
)
"""Short slices cost memory-bound programs a little."""

IO_HEAVY = WorkChange(
    *('talk', 'cg', '4', '100'),
    _at_least(0.5, 0.1),
    'allreduce {} with slices of 4 ms against 100 ms',
)
"""Short slices nearly double programs that communicate much."""

IO_LIGHT = WorkChange(
    *('talk', 'ep', '4', '100'),
    _small_loss(0.2),
    'cpi {} with slices of 4 ms against 100 ms',
)
"""Short slices cost programs without communication a little."""

POOL_HEAVY = WorkChange(
    *('pool', 'cg', 'pools', 'none'),
    _at_least(0.5, 0.1),
    'allreduce {} in a pool of its own, against no pools',
)
"""An I/O pool nearly doubles programs that communicate much."""

POOL_LIGHT = WorkChange(
    *('pool', 'ep', 'pools', 'none'),
    _at_least(-0.05),
    'cpi {} in the computing pool, against no pools',
)
"""Programs without communication lose nothing by an I/O pool."""

SPARE_CPU = WorkChange(
    *('spare', 'cg', 'spare', 'none'),
    _at_least(0.25, 0.1),
    'allreduce {} with a CPU for the packets, against one that another guest '
    'keeps busy',
)
"""A spare CPU for packets makes programs a third faster."""


def needs_hosts(document: Document) -> ClaimVerdict:
    """Leave a claim open that a single machine cannot check."""
    return ClaimVerdict(
        UNKNOWN,
        'the lab is one host, without NICs to give away or a switch',
    )


def linear(document: Document) -> ClaimVerdict:
    """Judge: speed grows nearly linearly with the vCPUs, up to the CPUs."""
    two, four = (
        _gain(document, 'scaling', 'ep', vcpus, '1') for vcpus in '24'
    )
    return ClaimVerdict(
        _at_least(1.8)(two),
        f'cpi: {two.text(".2f")} times with 2 vCPUs, {four.text(".2f")} '
        'with 4, on two CPUs',
    )


def paradigms(document: Document) -> ClaimVerdict:
    """Judge: MPI tolerates over-commitment better than OpenMP."""
    threads, messages = (
        confidence.range_of(document['mixes'][mix]['stock']['efficiencies'])
        for mix in ('clusters', 'network')
    )
    return ClaimVerdict(
        _at_least(1.5)(messages.ratio_to(threads)),
        f'efficiency under stock Linux: {messages.text(".2f")} with messages '
        f'between guests (twice over-committed), {threads.text(".2f")} with '
        'spinning threads (three times)',
    )
