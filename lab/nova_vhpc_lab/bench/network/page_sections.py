# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Sections of the documentation's page on the bench. Pure."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nova_vhpc.scheduler.planner import cost
from nova_vhpc_lab.bench.common import restructured_text
from nova_vhpc_lab.bench.network import layout as layouts
from nova_vhpc_lab.bench.network import paper, plot, report

Document = Mapping[str, Any]
"""The JSON of the bench."""

_MAIN = {
    'alltoall_ms': 'Milliseconds of an all-to-all exchange of 32 KiB',
    'bandwidth_mbs': 'MB/s of as many pairs as a host has guests',
    'latency_us': 'Microseconds of 1 byte, one way, of one pair',
}
_SAID = {
    '2x4': {
        'exported': '1.05',
        'shared': '"less than 40%"',
        'separate': '"slow", "a surprise"',
        'shared-separate': '1.08 to 1.10',
    },
    '8x2': {
        'exported': '"almost equal and at times better"',
        'shared': '1.15 to 1.30',
        'multiple-shared': '"slightly better" than ``shared``',
        'separate': '1.15 to 1.30',
        'shared-separate': '"excellent"',
    },
    '8x1': {
        'shared': '"much closer to native" than on 2x4',
        'separate': 'as ``shared``',
    },
    '1x4': {'exported': 'between native and the bridge'},
}
"""HPCVirt'09 sections 6.3 and 6.4: run time of the NAS benchmarks relative to
native Linux, by cluster and configuration."""


def main_tables(document: Document) -> Iterator[str]:
    """Yield a table of all clusters for each of the main figures."""
    for name, title in _MAIN.items():
        yield from restructured_text.heading(title)
        yield from _by_library(document['clusters'], name)


def _by_library(
    clusters: Mapping[str, Mapping[str, Any]], name: str
) -> list[str]:
    """Return a table of one figure: clusters, configurations, libraries."""
    libraries = _libraries(clusters)
    rows: list[Sequence[str]] = [('Cluster', 'Configuration', *libraries)]
    for cluster, by_library in clusters.items():
        for configuration in layouts.ROWS:
            cells = [
                _with_range(by_library.get(library, {}), configuration, name)
                for library in libraries
            ]
            if any(cells):
                rows.append((cluster, f'``{configuration}``', *cells))
    return restructured_text.list_table(rows)


def _libraries(clusters: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(
        dict.fromkeys(name for one in clusters.values() for name in one)
    )


def _with_range(
    entries: Mapping[str, Any], configuration: str, name: str
) -> str:
    entry = entries.get(configuration, {})
    if name not in entry:
        return ''
    low, high = entry['ranges'][name]
    return f'{_text(entry[name])} ({_text(low)} to {_text(high)})'


def _text(value: float) -> str:
    """Return a number with three digits, or all before its point."""
    return f'{value:.0f}' if value >= 100 else f'{value:.3g}'


def exchanges(document: Document) -> Iterator[str]:
    """Yield the section on figures 9 to 12, if native hosts were measured."""
    clusters = {
        cluster: {
            library: times
            for library, entries in by_library.items()
            if (times := paper.relative_times(entries))
        }
        for cluster, by_library in document['clusters'].items()
    }
    if not any(clusters.values()):
        return
    yield from restructured_text.heading(
        'Exchanges relative to native Linux: figures 9 to 12'
    )
    yield (
        'The paper ran whole programs, the NAS benchmarks; these are the '
        'exchanges of which they consist, without any computing. What is '
        'said of a program is for one that spends '
        f'{cost.COMMUNICATION_SHARE:.1%} of its time in them (the share '
        'that the cost model takes, :doc:`cost-model`), by their geometric '
        'mean. A number of the paper is the run time of a program.'
    )
    yield ''
    for cluster, by_library in clusters.items():
        if by_library:
            number = paper.FIGURES.get(cluster)
            yield from restructured_text.heading(
                cluster if number is None else f'Figure {number}: {cluster}',
                '-',
            )
            yield from _programs(cluster, by_library)
            for library in by_library:
                yield f'.. figure:: {plot.file_name(cluster, library)}'
                yield f'   :alt: {cluster}, {library}'
                yield ''
                yield (
                    f'   {cluster}, {library}: time of an exchange, native = 1'
                )
                yield ''


def _programs(
    cluster: str,
    by_library: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> list[str]:
    """Return the table of exchanges and programs of one cluster.

    :param by_library: times relative to native Linux, by library, exchange
        and configuration.
    """
    rows: list[Sequence[str]] = [
        (
            'Configuration',
            *(f'{library}: exchanges' for library in by_library),
            *(f'{library}: program' for library in by_library),
            'paper',
        )
    ]
    for configuration in layouts.CONFIGURATIONS:
        means = [
            _mean(
                one[configuration]
                for one in times.values()
                if configuration in one
            )
            for times in by_library.values()
        ]
        programs = [
            mean and 1 + cost.COMMUNICATION_SHARE * (mean - 1)
            for mean in means
        ]
        if any(means):
            rows.append(
                (
                    f'``{configuration}``',
                    *(f'{one:.2f}' if one else '' for one in means),
                    *(f'{one:.2f}' if one else '' for one in programs),
                    _SAID.get(cluster, {}).get(configuration, ''),
                )
            )
    return restructured_text.list_table(rows)


def _mean(values: Iterable[float]) -> float | None:
    given = list(values)
    return statistics.geometric_mean(given) if given else None


def micro_benchmarks(document: Document) -> Iterator[str]:
    """Yield tables 1 to 5, of the cluster with the most pairs."""
    clusters = document['clusters']
    cluster = '2x4' if '2x4' in clusters else next(iter(clusters))
    yield from restructured_text.heading(f'Tables 1 to 5, {cluster}')
    yield (
        "In brackets HPCVirt'09's value, on links of "
        f'{paper.LINK_MBPS:.0f} Mbit/s; of MPICH it prints native Linux only.'
    )
    yield ''
    for table in paper.TABLES:
        rows = list(_pairs(clusters[cluster], table))
        if rows:
            most = max(map(len, rows)) - 2
            header = (
                *('Library', 'Configuration'),
                *(report.count(pairs) for pairs in range(1, most + 1)),
            )
            yield from restructured_text.heading(
                f'Table {table.number}: {table.title}', '-'
            )
            yield from restructured_text.list_table([header, *rows])


def _pairs(
    by_library: Mapping[str, Mapping[str, Any]], table: paper.Table
) -> Iterator[Sequence[str]]:
    for library, entries in by_library.items():
        for configuration in layouts.ROWS:
            pairs = entries.get(configuration, {}).get('pairs', {})
            cells = pairs.get(table.where, {}).get(table.figure, ())
            if cells:
                yield (
                    library,
                    f'``{configuration}``',
                    *(
                        report.with_paper(
                            table, library, configuration, number, cell[0]
                        )
                        for number, cell in enumerate(cells, 1)
                    ),
                )


def spare_cpu(document: Document) -> Iterator[str]:
    """Yield the section on a spare CPU, if that was measured."""
    if not any(document.get('spare_cpu', {}).values()):
        return
    yield from restructured_text.heading('With and without a spare CPU')
    yield (
        'All guests on all CPUs but one; what bridges receive on that one '
        '(with a spare CPU), or where the guests are (without).'
    )
    yield ''
    for key, about in (
        ('with_spare_cpu', 'with a spare CPU'),
        ('without_spare_cpu', 'without'),
    ):
        for name, title in _MAIN.items():
            yield from restructured_text.heading(f'{title}, {about}', '-')
            yield from _by_library(document.get(key, {}), name)
    yield from restructured_text.heading(
        'Time of an all-to-all exchange without over that with one', '-'
    )
    yield (
        "HPCVirt'09 section 6.4 has 1.30 to 1.35, of programs on 8x1 against "
        '2x4, which differ in more than the spare CPU.'
    )
    yield ''
    clusters = document['spare_cpu']
    libraries = _libraries(clusters)
    rows: list[Sequence[str]] = [('Cluster', 'Configuration', *libraries)]
    for cluster, by_library in clusters.items():
        for configuration in layouts.ROWS:
            cells = [
                by_library.get(library, {})
                .get(configuration, {})
                .get('alltoall')
                for library in libraries
            ]
            if any(cells):
                rows.append(
                    (
                        cluster,
                        f'``{configuration}``',
                        *(
                            '{:.2f} ({:.2f} to {:.2f})'.format(*cell)
                            if cell
                            else ''
                            for cell in cells
                        ),
                    )
                )
    yield from restructured_text.list_table(rows)
