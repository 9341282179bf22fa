# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Sections on our own claims, on the page of the papers' claims. Pure.

Each is empty if the lab's JSON has no figures for it.
"""

from nova_vhpc_lab.bench.common import restructured_text
from nova_vhpc_lab.bench.lab import claim_verdicts, intervals, mixes


def clock_error(document: claim_verdicts.Document) -> list[str]:
    """Return the section on our own claim: clocks align hosts' windows."""
    clock = document.get('claims', {}).get('clock')
    if not clock:
        return []
    ranges = {
        key: f' ({low:.2f} to {high:.2f})'
        for key, (low, high) in clock.get('ranges', {}).items()
    }
    figures = ', '.join(
        f'{part:.2f}{ranges.get(error, "")} at {error} ms'
        for error, part in clock['by_error_ms'].items()
    )
    return [
        *restructured_text.heading(
            'Ours: windows of several hosts are aligned by their clocks'
        ),
        'Three clusters with a spinning member on each of two CPUs that stand '
        f'for two hosts, windows of {clock["window_ms"]} ms, the second '
        "host's clock wrong by so much: efficiency "
        f'{figures}; without windows {clock["stock"]:.2f}'
        f'{ranges.get("stock", "")}. NTP and PTP keep '
        'clocks of one data centre within 1 ms.',
        '',
    ]


def cluster_sets(document: claim_verdicts.Document) -> list[str]:
    """Return the section on our own claim: slots agree across hosts."""
    sets = document.get('claims', {}).get('sets')
    if not sets:
        return []
    progress = {
        key: f'{part:.2f} ({sets["ranges"][key][0]:.2f} to '
        f'{sets["ranges"][key][1]:.2f})'
        for key, part in sets['progress'].items()
    }
    low, high = sets['of_equal_range']
    return [
        *restructured_text.heading(
            'Ours: hosts with different clusters run each one at the same time'
        ),
        'Two CPUs stand for two hosts. Clusters *a* and *b* have a spinning '
        'member on both; the first host has *c* besides, the second one *d* '
        f'and *e*. Windows of {sets["window_ms"]} ms; progress of *a* and '
        f'*b* as a part of running alone: {progress["different"]} with slots '
        f'that the hosts agreed on, {progress["rotation"]} with a rotation of '
        f"each host's own, {progress['stock']} without windows. With the "
        f'same four clusters on both hosts it is {progress["equal"]}: '
        f'different sets reach {sets["of_equal"]:.2f} ({low:.2f} to '
        f'{high:.2f}) of that.',
        '',
    ]


def neighbours(document: claim_verdicts.Document) -> list[str]:
    """Return the section on what guests that did not opt in keep."""
    rows: list[tuple[str, ...]] = []
    for name, by_policy in document.get('mixes', {}).items():
        mix = mixes.MIXES.get(name)
        ranges = by_policy.get('default', {}).get('intervals', {})
        by_guest = ranges.get('cpus_of_stock', {})
        for one in () if mix is None else mix.guests:
            if one.extra_specs is None and one.name in by_guest:
                middle, low, high = by_guest[one.name]
                rows.append(
                    (
                        *(name, f'{one.workload}, {one.vcpus} vCPU'),
                        f'{middle:.2f} ({low:.2f} to {high:.2f})',
                        intervals.text(ranges, 'p99_of_stock', '.2f'),
                    )
                )
    if not rows:
        return []
    return [
        *restructured_text.heading(
            'Ours: what guests that did not opt in keep'
        ),
        'CPU time that each of them got under the default policy, as part of '
        'what stock Linux gave it in the same round; and of a web server the '
        'p99 of its latency, relative to stock.',
        '',
        *restructured_text.list_table(
            [('mix', 'guest', 'CPU time', 'p99'), *rows]
        ),
    ]
