# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Execution times in simulated clouds, as figures 10 to 14 of the ATC paper.

Reads the JSON of ``nova-vhpc-bench cloud``, of one kernel or more.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Document = Mapping[str, Any]
"""The JSON of ``nova-vhpc-bench cloud``."""

Column = tuple[str, str]
"""Kernel and policy."""

COLUMNS: tuple[Column, ...] = (
    ('xen', 'cs'),
    ('xen', 'dss'),
    ('xen', 'vslicer'),
    ('xen', 'atc-30ms'),
    ('xen', 'atc-6ms'),
    ('linux', 'balance'),
    ('linux', 'dss'),
    ('linux', 'vslicer'),
    ('linux', 'atc-30ms'),
    ('linux', 'atc-6ms'),
    ('linux', 'ours'),
)

ALL = 'all'
"""Row of the geometric mean over all clusters."""

_PROGRAMS = {
    'memory': 'memory (stream)',
    'disk': 'disk (bonnie++)',
    'compile': 'compiler (gcc)',
}
_WEB = 'web (response time)'

_Policies = Mapping[Column, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the paper, with our times.

    :ivar name: name for files.
    :ivar title: what it shows.
    :ivar paper: what the paper says of it.
    :ivar columns: those that have figures.
    :ivar rows: times relative to the same kernel's stock scheduler, by row and
        column; less is better. Times that are missing were not measured.
    """

    name: str
    title: str
    paper: str
    columns: tuple[Column, ...]
    rows: Mapping[str, Mapping[Column, float]]


def figures(documents: Iterable[Document]) -> list[Figure]:
    """Return the figures for which there are results.

    :param documents: of the same scenario and kernel the last one counts.
    """
    scenarios = _scenarios(documents)
    atc_a = {
        f'{match[1]} hosts': policies
        for name, policies in scenarios.items()
        if (match := re.fullmatch(r'atc-a-(\d+)', name))
    }
    mixed = scenarios.get('atc-mixed', {})
    found = (
        _figure(
            'figure-10',
            'Figure 10: one program on four clusters',
            'Paper, *lu* on 8 hosts: BS 0.85, CS 0.38, ATC 0.15; ATC is best '
            'on all numbers of hosts, and BS gains little on many.',
            {
                hosts: _times(
                    policies, lambda one: {ALL: float(one['geomean'])}
                )[ALL]
                for hosts, policies in sorted(
                    atc_a.items(), key=lambda item: int(item[0].split()[0])
                )
            },
        ),
        _figure(
            'figure-11',
            'Figure 11: ten clusters of different sizes',
            'Paper, *sp* in VC1: BS 0.9, CS 0.49, DSS 0.45, ATC 0.25.',
            _times(scenarios.get('atc-b', {}), _clusters),
        ),
        _figure(
            'figure-12',
            'Figure 12: the same beside programs that are not parallel',
            'Paper: ATC(30ms) is best, CS before DSS, DSS before VS.',
            _times(mixed, _clusters),
        ),
        _figure(
            'figure-13-14',
            'Figures 13 and 14: programs that are not parallel',
            'Paper: *bonnie++* as with the stock scheduler; *stream* a little '
            'slower under CS and ATC(6ms); *gcc*, *bzip2* and *sphinx3* '
            'slower under CS and ATC(6ms), else as before; web servers answer '
            'sooner under VS, DSS and ATC(6ms), and with CS perform at 35%.',
            {**_times(mixed, _independents), **_web(mixed)},
        ),
    )
    return [one for one in found if one.columns]


def against_xen(documents: Iterable[Document], scenario: str) -> float | None:
    """Return the time of ours on Linux, as a part of Xen's stock scheduler.

    :returns: None without both.
    """
    policies = _scenarios(documents).get(scenario, {})
    ours = policies.get(('linux', 'ours'))
    stock = policies.get(('xen', 'stock'))
    if ours is None or stock is None:
        return None
    return float(stock['geomean'] / ours['geomean'])


def _scenarios(documents: Iterable[Document]) -> dict[str, _Policies]:
    found: dict[str, dict[Column, Mapping[str, Any]]] = (
        collections.defaultdict(dict)
    )
    for document in documents:
        for name, policies in document['scenarios'].items():
            for policy, one in policies.items():
                found[name][document['kernel'], policy] = one
    return dict(found)


def _figure(
    name: str,
    title: str,
    paper: str,
    rows: Mapping[str, Mapping[Column, float]],
) -> Figure:
    measured = {column for times in rows.values() for column in times}
    columns = tuple(column for column in COLUMNS if column in measured)
    return Figure(name, title, paper, columns, rows)


def _clusters(one: Mapping[str, Any]) -> dict[str, float]:
    """Return the progress of each cluster, and of all, in order of size."""
    clusters: Mapping[str, float] = one['clusters']
    return {
        name: clusters[name]
        for name in sorted(clusters, key=lambda name: (len(name), name))
    } | {ALL: one['geomean']}


def _independents(one: Mapping[str, Any]) -> dict[str, float]:
    progress: Mapping[str, float] = one['independents']
    return {
        title: progress[program]
        for program, title in _PROGRAMS.items()
        if program in progress
    }


def _times(
    policies: _Policies,
    progress: Callable[[Mapping[str, Any]], Mapping[str, float]],
) -> dict[str, dict[Column, float]]:
    """Return execution times relative to stock, by row and column.

    :param progress: returns progress by row, of one policy's results.
    """
    rows: dict[str, dict[Column, float]] = collections.defaultdict(dict)
    for column in COLUMNS:
        stock = policies.get((column[0], 'stock'))
        if column not in policies or stock is None:
            continue
        before = progress(stock)
        for row, value in progress(policies[column]).items():
            if value > 0 and row in before:
                rows[row][column] = before[row] / value
    return rows


def _web(policies: _Policies) -> dict[str, dict[Column, float]]:
    times = {
        column: float(policies[column]['response_ratio'])
        for column in COLUMNS
        if column in policies
        and policies[column]['response_ratio'] is not None
    }
    return {_WEB: times} if times else {}
