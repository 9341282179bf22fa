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


"""The papers' claims beside our figures, as a page of the documentation.

``python -m nova_vhpc.bench.lab.claims lab.json page.rst`` writes it from
the JSON of ``nova-vhpc-bench lab --claims --json lab.json``.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nova_vhpc.bench.lab import report

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


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """One claim of a paper.

    :ivar judge: reads our figures; raises KeyError or TypeError where there
        are none.
    :ivar why: what makes the difference, or the agreement.
    """

    title: str
    source: str
    theirs: str
    judge: Callable[[Document], Answer]
    why: str


def _latency(document: Document) -> Answer:
    waits = document['claims']['slices']['wait_ms']
    long, short = waits['100'], waits['4']
    verdict = HOLDS if short < long / 2 else FAILS
    return Answer(
        verdict,
        f'mean wait per run {long:.1f} ms with slices of 100 ms, '
        f'{short:.1f} ms with 4 ms, {waits["2"]:.1f} ms with 2 ms',
    )


def _performance(document: Document) -> Answer:
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


def _best_slice(document: Document) -> Answer:
    work = _numbers(document['claims']['slices']['a'])
    best = max(work, key=lambda key: work[key])
    verdict = HOLDS if float(best) == min(map(float, work)) else FAILS
    return Answer(verdict, f'best of those that libvirt takes: {best} ms')


def _numbers(by_slice: Mapping[str, float | None]) -> dict[str, float]:
    return {
        key: value
        for key, value in by_slice.items()
        if key != 'none' and value
    }


def _atc(document: Document) -> Answer:
    entry = document['mixes']['clusters']['atc']
    ours = document['mixes']['clusters']['default']
    return Answer(
        HOLDS if entry['speedup'] >= 1.5 else FAILS,
        f'atc to the letter {entry["speedup"]:.2f} times stock; gang windows '
        f'{ours["speedup"]:.2f} times (three clusters, no quota)',
    )


def _non_parallel(document: Document) -> Answer:
    entry = document['mixes']['hogs']['atc']
    verdict = HOLDS if entry['loss'] <= 0.1 else FAILS
    return Answer(
        verdict,
        f'two hogs lost {entry["loss"]:.1%} under atc, '
        f'{document["mixes"]["hogs"]["default"]["loss"]:.1%} under gang '
        'windows, against stock',
    )


def _io_heavy(document: Document) -> Answer:
    talk = document['claims']['talk']['cg']
    gain = talk['4'] / talk['100'] - 1
    return Answer(
        HOLDS if gain >= 0.5 else PARTLY if gain >= 0.1 else FAILS,
        f'allreduce {gain:+.0%} with slices of 4 ms against 100 ms',
    )


def _io_light(document: Document) -> Answer:
    talk = document['claims']['talk']['ep']
    change = talk['4'] / talk['100'] - 1
    verdict = FAILS
    if -0.2 <= change <= 0.05:
        verdict = HOLDS if change < -0.01 else PARTLY
    return Answer(
        verdict,
        f'cpi {change:+.0%} with slices of 4 ms against 100 ms',
    )


def _linear(document: Document) -> Answer:
    scaling = document['claims']['scaling']
    verdict = HOLDS if scaling['2'] >= 1.8 else FAILS
    return Answer(
        verdict,
        f'cpi: {scaling["2"]:.2f} times with 2 vCPUs, {scaling["4"]:.2f} '
        'with 4, on two CPUs',
    )


def _paradigms(document: Document) -> Answer:
    threads = document['mixes']['clusters']['stock']['efficiency']
    messages = document['mixes']['network']['stock']['efficiency']
    return Answer(
        HOLDS if messages > 1.5 * threads else FAILS,
        f'efficiency under stock Linux: {messages:.2f} with messages '
        f'between guests (twice over-committed), {threads:.2f} with '
        'spinning threads (three times)',
    )


CLAIMS = (
    Claim(
        'A shorter time slice means a lower spinlock latency',
        'ATC, section II.B, figure 5',
        'latency falls with the slice down to 0.1 ms; correlation with the '
        'execution time above 0.9',
        _latency,
        'Linux has no slice per VM. Quota and period bound how long a vCPU '
        'is held back, so the single wait gets shorter; but it says little '
        'of whether a sibling runs at the same time.',
    ),
    Claim(
        'A shorter time slice makes parallel programs faster, up to tenfold',
        'ATC, figure 5',
        '1.5 to 10 times',
        _performance,
        'Siblings are throttled by timers of their own, with phases of '
        'their own. A shorter period makes them miss each other as often, '
        'only for a shorter time.',
    ),
    Claim(
        '0.3 ms is the best slice',
        'ATC, section III.B',
        'least Euclidean distance at 0.3 ms',
        _best_slice,
        'libvirt and the kernel take no period below 1 ms, and with '
        'HZ=250 nothing below the 4 ms tick is realised.',
    ),
    Claim(
        'ATC beats the stock scheduler 1.5 to 10 times',
        'ATC, section IV.B, figures 10 and 11',
        'normalised execution time 0.25 for sp',
        _atc,
        'Without a CPU quota there is no slice that a period could '
        'shorten. What helps on Linux is alignment: siblings in the same '
        'window.',
    ),
    Claim(
        'Programs that are not parallel are hardly affected',
        'ATC, section IV.C, figures 13 and 14',
        'as under the stock scheduler',
        _non_parallel,
        'ATC leaves them at the default slice; gang windows leave them '
        'their fair share, most of it in pauses.',
    ),
    Claim(
        'Short slices nearly double programs that communicate much',
        'I/O perception, table IV (CG: 148 to 289 Mop/s)',
        '+95% with slices of 0.5 ms against 30 ms',
        _io_heavy,
        'On Linux a guest that a packet wakes up runs soon whatever the '
        'slice; programs that poll keep their CPU anyway.',
    ),
    Claim(
        'Short slices cost programs that do not communicate a little',
        'I/O perception, table IV (EP: 36.3 to 32.3 Mop/s)',
        '-11% with slices of 0.5 ms against 30 ms',
        _io_light,
        'More switches, colder caches.',
    ),
    Claim(
        'Speed grows nearly linearly while vCPUs <= CPUs, without loss beyond',
        "NPC'09, section 4.1, figures 4 and 6",
        '3.7 to 4 times on four cores',
        _linear,
        'A program without synchronisation does not mind when its vCPUs run.',
    ),
    Claim(
        'MPI stands over-commitment better than OpenMP',
        "NPC'09, section 4.2, figure 11 (LU: above 1.5 against below 0.5)",
        'three times the speedup',
        _paradigms,
        'A process that waits for a message asks the kernel and can be '
        'put aside; a thread that spins cannot.',
    ),
)


def page(document: Document) -> str:
    """The page, reStructuredText."""
    lines = [
        '========================',
        "The papers' claims, checked",
        '========================',
        '',
        '.. This page is made by ``python -m nova_vhpc.bench.lab.claims``',
        '   from the JSON of the lab. Do not edit it.',
        '',
        'The papers measured Xen. Here their claims stand beside what the '
        'lab (:doc:`/admin/lab`) measured on Linux.',
        '',
        _circumstances(document),
        '',
    ]
    width = len(lines[1])
    lines[0] = lines[2] = '=' * width
    for claim in CLAIMS:
        try:
            answer = claim.judge(document)
        except (KeyError, TypeError, ZeroDivisionError, ValueError):
            answer = Answer(UNKNOWN, 'no figures in this run')
        lines += [
            claim.title,
            '=' * len(claim.title),
            '',
            f'**{answer.verdict.capitalize()}.**',
            '',
            f'Paper ({claim.source})',
            f'  {claim.theirs}',
            'Measured here',
            f'  {answer.figure}',
            'Why',
            f'  {claim.why}',
            '',
        ]
    return '\n'.join(lines + _clock(document) + _table(document))


def _circumstances(document: Document) -> str:
    machine = document.get('machine', {})
    scheme = document.get('scheme', {})
    return (
        f'Measured {document.get("when", "at an unknown time")} on '
        f'{machine.get("cpus", "?")} CPUs, kernel '
        f'{machine.get("kernel", "?")}, guests: '
        f'{machine.get("guests", "?")}; up to {scheme.get("m", "?")} runs of '
        f'{scheme.get("measure_s", "?")} s per policy, medians.'
    )


def _clock(document: Document) -> list[str]:
    """No paper's claim, but ours: hosts need no message to agree."""
    clock = document.get('claims', {}).get('clock')
    if not clock:
        return []
    title = 'Ours: windows of several hosts are aligned by their clocks'
    figures = ', '.join(
        f'{part:.2f} at {error} ms'
        for error, part in clock['by_error_ms'].items()
    )
    return [
        title,
        '=' * len(title),
        '',
        'Three clusters with a spinning member on each of two CPUs that stand '
        f'for two hosts, windows of {clock["window_ms"]} ms, the second '
        "host's clock wrong by so much: efficiency "
        f'{figures}; without windows {clock["stock"]:.2f}. NTP and PTP keep '
        'clocks of one data centre within 1 ms.',
        '',
    ]


def _table(document: Document) -> list[str]:
    if not document.get('mixes'):
        return []
    lines = [
        'All figures',
        '===========',
        '',
        '.. list-table::',
        '   :header-rows: 1',
        '',
    ]
    rows: list[tuple[str, ...]] = [
        (
            *('mix', 'policy', 'efficiency', 'fairness', 'speedup', 'loss'),
            *('latency ms', 'runs'),
        )
    ]
    for mix, by_policy in document.get('mixes', {}).items():
        for policy, entry in by_policy.items():
            latency = entry.get('latency_ms', {}).get('median')
            rows.append(
                (
                    mix,
                    policy,
                    f'{entry["efficiency"]:.2f}',
                    f'{entry["fairness"]:.2f}',
                    report.figure(entry['speedup'], '.2f'),
                    report.figure(entry['loss'], '.1%'),
                    '' if latency is None else f'{latency:.1f}',
                    str(entry['runs']),
                )
            )
    for row in rows:
        for number, cell in enumerate(row):
            lead = '   * - ' if number == 0 else '     - '
            lines.append((lead + cell).rstrip())
    return [*lines, '']


def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 2:
        print('usage: claims LAB.JSON PAGE.RST', file=sys.stderr)
        return 2
    document = json.loads(Path(words[0]).read_text())
    Path(words[1]).write_text(page(document))
    return 0


if __name__ == '__main__':
    sys.exit(main())
