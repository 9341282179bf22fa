# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Write the documentation's page on the papers' claims.

``python -m nova_vhpc_lab.bench.lab.paper_claims lab.json page.rst cloud.json``
writes it from the JSON of ``nova-vhpc-bench lab --claims --json lab.json`` and
of ``nova-vhpc-bench cloud --json cloud.json``, on each kernel.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nova_vhpc_lab.bench import cloud_claims, cloud_times
from nova_vhpc_lab.bench.common import restructured_text
from nova_vhpc_lab.bench.lab import (
    claim_verdicts,
    intervals,
    own_claims,
    report,
)


@dataclasses.dataclass(frozen=True, slots=True)
class PaperClaim:
    """One claim of a paper.

    :ivar title: the claim, in one sentence.
    :ivar source: paper, section and figure.
    :ivar paper_result: what the paper measured, on Xen.
    :ivar assess: judges the claim by the lab's figures; raises KeyError,
        TypeError, ValueError or ZeroDivisionError if these are missing.
    :ivar why: reason for the difference, or for the agreement.
    """

    title: str
    source: str
    paper_result: str
    assess: Callable[[claim_verdicts.Document], claim_verdicts.ClaimVerdict]
    why: str


PAPER_CLAIMS = (
    PaperClaim(
        'A shorter time slice means a lower spinlock latency',
        'ATC, section II.B, figure 5',
        'latency falls with the slice down to 0.1 ms; correlation with the '
        'execution time above 0.9',
        claim_verdicts.latency,
        'Linux has no slice per VM. Quota and period bound how long a vCPU '
        'is held back, so the single wait gets shorter; but it says little '
        'of whether a sibling runs at the same time.',
    ),
    PaperClaim(
        'A shorter time slice makes parallel programs faster, up to tenfold',
        'ATC, figure 5',
        '1.5 to 10 times',
        claim_verdicts.performance,
        'Siblings are throttled by timers of their own, with phases of '
        'their own. A shorter period makes them miss each other as often, '
        'only for a shorter time.',
    ),
    PaperClaim(
        '0.3 ms is the best slice',
        'ATC, section III.B',
        'least Euclidean distance at 0.3 ms',
        claim_verdicts.best_slice,
        'libvirt and the kernel take no period below 1 ms, and with '
        'HZ=250 nothing below the 4 ms tick is realised.',
    ),
    PaperClaim(
        'ATC beats the stock scheduler 1.5 to 10 times',
        'ATC, section IV.B, figures 10 and 11',
        'normalised execution time 0.25 for sp',
        claim_verdicts.atc,
        'Without a CPU quota there is no slice that a period could '
        'shorten. What helps on Linux is alignment: siblings in the same '
        'window.',
    ),
    PaperClaim(
        'With flavor quotas ATC beats the stock scheduler, too',
        'ATC, section IV.B, figures 10 and 11',
        'normalised execution time 0.25 for sp',
        claim_verdicts.atc_with_quota,
        'With a quota ATC shortens its period, so its slices act; but '
        'siblings are throttled by timers with phases of their own.',
    ),
    PaperClaim(
        'Programs that are not parallel are hardly affected',
        'ATC, section IV.C, figures 13 and 14',
        'as under the stock scheduler',
        claim_verdicts.non_parallel,
        'ATC leaves them at the default slice; gang windows leave them '
        'their fair share, in pauses and on CPUs that no gang has.',
    ),
    PaperClaim(
        'Short slices cost programs that are bound by memory a little',
        'ATC, section III.C, figure 9',
        '"slight performance degradation" of stream',
        claim_verdicts.MEMORY,
        'More switches, colder caches: where guests are emulated, their '
        'emulation is what they are bound by, and not memory.',
    ),
    PaperClaim(
        'Short slices nearly double programs that communicate much',
        'I/O perception, table IV (CG: 148 to 289 Mop/s)',
        '+95% with slices of 0.5 ms against 30 ms',
        claim_verdicts.IO_HEAVY,
        'On Linux a guest that a packet wakes up runs soon whatever the '
        'slice; programs that poll keep their CPU anyway.',
    ),
    PaperClaim(
        'Short slices cost programs that do not communicate a little',
        'I/O perception, table IV (EP: 36.3 to 32.3 Mop/s)',
        '-11% with slices of 0.5 ms against 30 ms',
        claim_verdicts.IO_LIGHT,
        'More switches, colder caches.',
    ),
    PaperClaim(
        'An I/O pool nearly doubles programs that communicate much',
        'I/O perception, table IV (CG: 148 to 269 Mop/s)',
        '+81% with pools, against the stock scheduler',
        claim_verdicts.POOL_HEAVY,
        'In a pool of its own a guest that a packet wakes up does not meet '
        'programs that compute. Linux lets it get ahead of them anyway, so '
        'there is less to gain than on Xen.',
    ),
    PaperClaim(
        'Programs that do not communicate lose nothing by an I/O pool',
        'I/O perception, table IV (EP: 36.3 to 36.5 Mop/s)',
        'no change with pools, against the stock scheduler',
        claim_verdicts.POOL_LIGHT,
        'They stay in the computing pool, on as many CPUs as were their '
        'share before.',
    ),
    PaperClaim(
        'Speed grows nearly linearly while vCPUs <= CPUs, without loss beyond',
        "NPC'09, section 4.1, figures 4 and 6",
        '3.7 to 4 times on four cores',
        claim_verdicts.linear,
        'A program without synchronisation does not mind when its vCPUs run.',
    ),
    PaperClaim(
        'MPI stands over-commitment better than OpenMP',
        "NPC'09, section 4.2, figure 11 (LU: above 1.5 against below 0.5)",
        'three times the speedup',
        claim_verdicts.paradigms,
        'A process that waits for a message asks the kernel and can be '
        'put aside; a thread that spins cannot.',
    ),
    PaperClaim(
        'Programs are a third faster with a CPU to spare for packets',
        "HPCVirt'09, section 6.4, 8x1 against 2x4",
        '30 to 35% faster',
        claim_verdicts.SPARE_CPU,
        'Packets are carried by threads of the host. Linux lets them get '
        'ahead of a guest that computes, as they sleep in between; on Xen '
        'they waited for their turn.',
    ),
    PaperClaim(
        'Exported devices are nearly as fast as no virtualisation',
        "HPCVirt'09, sections 6.4 and 7",
        '5% slower on 2x4, "almost equal and at times better" on 8x2',
        claim_verdicts.needs_hosts,
        'The planner takes the figures of the paper (:doc:`/admin/cost-model`'
        '). What real MPI libraries make of all configurations, between '
        'network namespaces, is on a page of its own: '
        ':doc:`/admin/network-measured`.',
    ),
    PaperClaim(
        'A shared bridge for co-located peers and one each for the others',
        "HPCVirt'09, tables 3 and 5, section 6.4",
        'shared-separate 8 to 10% slower than native on 2x4, the other '
        'bridges up to 40%',
        claim_verdicts.needs_hosts,
        'The planner takes the figures of the paper; that packets take these '
        'ways is tested on real guests and bridges. Between network '
        'namespaces: :doc:`/admin/network-measured`.',
    ),
)


def page(
    document: claim_verdicts.Document,
    clouds: Sequence[cloud_times.Document] = (),
) -> str:
    """Return the page, in reStructuredText.

    :param clouds: the JSON of simulated clouds.
    """
    lines = [
        '========================',
        "The papers' claims, checked",
        '========================',
        '',
        '.. This page is made by',
        '   ``python -m nova_vhpc_lab.bench.lab.paper_claims``',
        '   from the JSON of the lab and of simulated clouds. Do not edit it.',
        '',
        'The papers measured Xen. Here their claims stand beside what the '
        'lab (:doc:`/admin/lab`) measured on Linux.',
        '',
        _circumstances(document),
        '',
    ]
    width = len(lines[1])
    lines[0] = lines[2] = '=' * width
    for claim in PAPER_CLAIMS:
        try:
            verdict = claim.assess(document)
        except (KeyError, TypeError, ZeroDivisionError, ValueError):
            verdict = claim_verdicts.ClaimVerdict(
                claim_verdicts.UNKNOWN, 'no figures in this run'
            )
        lines += [
            claim.title,
            '=' * len(claim.title),
            '',
            f'**{verdict.outcome.capitalize()}.**',
            '',
            f'Paper ({claim.source})',
            f'  {claim.paper_result}',
            'Measured here',
            f'  {verdict.figure}',
            'Why',
            f'  {claim.why}',
            '',
        ]
    return '\n'.join(
        lines
        + own_claims.clock_error(document)
        + own_claims.cluster_sets(document)
        + cloud_claims.section(clouds)
        + own_claims.neighbours(document)
        + _table(document)
        + _left_out(document)
    )


def _circumstances(document: claim_verdicts.Document) -> str:
    """Return the paragraph on when and how the figures were measured."""
    machine = document.get('machine', {})
    scheme = document.get('scheme', {})
    # --merge keeps figures of earlier runs.
    kept: dict[str, list[str]] = {}
    for name, when in document.get('claims', {}).get('when', {}).items():
        kept.setdefault(when, []).append(name)
    for name, by_policy in document.get('mixes', {}).items():
        for policy, entry in by_policy.items():
            when = entry.get('when', document.get('when'))
            if when != document.get('when'):
                kept.setdefault(when, []).append(f'{name} under {policy}')
    return (
        f'Measured {document.get("when", "at an unknown time")} on '
        f'{machine.get("cpus", "?")} CPUs, kernel '
        f'{machine.get("kernel", "?")}, guests: '
        f'{machine.get("guests", "?")}; up to {scheme.get("m", "?")} runs of '
        f'{scheme.get("measure_s", "?")} s per policy, medians; in brackets '
        'the range of the runs, from nine runs on the 95% confidence '
        'interval of the median. A claim that would be judged differently '
        'within that is not decided.'
        + ''.join(
            f' {", ".join(names).capitalize()}: {when}.'
            for when, names in kept.items()
        )
    )


def _left_out(document: claim_verdicts.Document) -> list[str]:
    """Return the section on the rounds that do not count."""
    by_mix = document.get('rounds', {})
    if not by_mix:
        return []
    return [
        *restructured_text.heading('Rounds that were left out'),
        'A round during which something else on the machine took too much '
        'CPU time does not count.',
        '',
        *(f'* {name}: {rounds["why"]}.' for name, rounds in by_mix.items()),
        '',
    ]


def _with_range(entry: Mapping[str, Any], figure: str, form: str) -> str:
    """Return a figure and, if it was measured, its range."""
    text = report.figure(entry[figure], form)
    measured = intervals.text(entry.get('intervals', {}), figure, form)
    return f'{text} ({measured})' if measured else text


def _table(document: claim_verdicts.Document) -> list[str]:
    """Return the table of all figures."""
    if not document.get('mixes'):
        return []
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
                    *(
                        _with_range(entry, name, '.2f')
                        for name in ('efficiency', 'fairness', 'speedup')
                    ),
                    _with_range(entry, 'loss', '.1%'),
                    '' if latency is None else f'{latency:.1f}',
                    str(entry['runs']),
                )
            )
    return [
        *restructured_text.heading('All figures'),
        *restructured_text.list_table(rows),
    ]


def main(argv: list[str] | None = None) -> int:
    """Write the page.

    :returns: exit status: 0, or 2 if the arguments are wrong.
    """
    words = sys.argv[1:] if argv is None else argv
    if len(words) < 2:
        print(
            'usage: python -m nova_vhpc_lab.bench.lab.paper_claims '
            'LAB.JSON PAGE.RST [CLOUD.JSON ...]',
            file=sys.stderr,
        )
        return 2
    lab, target, *cloud_files = words
    document = json.loads(Path(lab).read_text())
    clouds = [json.loads(Path(file).read_text()) for file in cloud_files]
    Path(target).write_text(page(document, clouds))
    return 0


if __name__ == '__main__':
    sys.exit(main())
