# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write the documentation's page on what the bench measured.

``python -m nova_vhpc_lab.bench.network.page DIRECTORY network.json`` writes
``network-measured.rst`` and its pictures into a directory of the
documentation, from one or more files of ``nova-vhpc-bench network --json``,
such as one for each cluster.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nova_vhpc_lab.bench.common import restructured_text
from nova_vhpc_lab.bench.network import layout as layouts
from nova_vhpc_lab.bench.network import page_sections, plot
from nova_vhpc_lab.bench.network.page_sections import Document

PAGE = 'network-measured.rst'

_MERGED = (
    *('libraries', 'clusters', 'with_spare_cpu', 'without_spare_cpu'),
    *('spare_cpu', 'failures', 'order', 'calibrated_order'),
)
_HEADER = (
    *('Cluster', 'Library', 'Figure', 'Faster', 'Slower'),
    *('Measured', 'Planner'),
)


def merged(documents: Sequence[Document]) -> dict[str, Any]:
    """Return several files as one; of a cluster in two, the last one's."""
    result: dict[str, Any] = {}
    for document in documents:
        for key, value in document.items():
            if key in _MERGED:
                result[key] = {**result.get(key, {}), **value}
            else:
                result[key] = value
    result['clusters'] = {
        cluster: result['clusters'][cluster]
        for cluster in sorted(result['clusters'], key=_place)
    }
    return result


def _place(cluster: str) -> int:
    """Return the place of a cluster on the page; the paper's come first."""
    known = [*layouts.CLUSTERS]
    return known.index(cluster) if cluster in known else len(known)


def page(document: Document) -> str:
    """Return the page, in reStructuredText."""
    title = 'Network configurations: what was measured'
    lines = [
        '=' * len(title),
        title,
        '=' * len(title),
        '',
        '.. This page is made by',
        '   ``python -m nova_vhpc_lab.bench.network.page``',
        '   from the JSON of the bench. Do not edit it.',
        '',
        'Figures of ``nova-vhpc-bench network``, which :doc:`network-bench` '
        "explains, beside those of HPCVirt'09.",
        '',
        _circumstances(document),
        '',
    ]
    for part in (
        page_sections.main_tables(document),
        page_sections.exchanges(document),
        page_sections.micro_benchmarks(document),
        page_sections.spare_cpu(document),
        _orders(document),
        _failures(document),
    ):
        lines += part
    return '\n'.join(lines)


def _circumstances(document: Document) -> str:
    machine = document.get('machine', {})
    versions = ', '.join(
        f'{name} ({package.replace("==", " ")})'
        for name, package in document.get('libraries', {}).items()
    )
    return (
        f'Measured {document.get("when", "at an unknown time")} on '
        f'{machine.get("cpus", "?")} CPUs, kernel '
        f'{machine.get("kernel", "?")}; links of '
        f'{document["link_mbps"]:g} Mbit/s, {document["rounds"]} rounds of '
        f'{document["seconds"]:g} s per value'
        + (f'; {versions}' if versions else '')
        + '. Medians; in brackets the range of the rounds, from nine rounds '
        'on the 95% confidence interval of the median.'
    )


def _orders(document: Document) -> Iterator[str]:
    yield from restructured_text.heading("The planner's order")
    for key, about in (
        ('order', "By HPCVirt'09's cost table"),
        ('calibrated_order', 'By a cost table of the measured pairs'),
    ):
        orders = [
            (cluster, library, one)
            for cluster, by_library in document.get(key, {}).items()
            for library, one in by_library.items()
        ]
        beyond = sum(one['beyond_noise'] for _, _, one in orders)
        matching = sum(one['matching'] for _, _, one in orders)
        yield (
            f'{about}, the planner has the same order in {matching} of '
            f'{beyond} differences beyond noise.'
            + (' It differs in:' if matching < beyond else '')
        )
        yield ''
        if matching < beyond:
            yield from restructured_text.list_table(
                [
                    _HEADER,
                    *(
                        (
                            cluster,
                            library,
                            f'``{each["figure"]}``',
                            f'``{each["faster"]}``',
                            f'``{each["slower"]}``',
                            f'{each["measured"]:.2f}',
                            f'{each["predicted"]:.2f}',
                        )
                        for cluster, library, one in orders
                        for each in one['differing']
                    ),
                ]
            )


def _failures(document: Document) -> Iterator[str]:
    failures = [
        f'* {cluster}, {library}, ``{configuration}``: {why.splitlines()[0]}'
        for cluster, by_library in document.get('failures', {}).items()
        for library, of_library in by_library.items()
        for configuration, why in of_library.items()
    ]
    if failures:
        yield from restructured_text.heading('What failed')
        yield from failures
        yield ''


def main(argv: list[str] | None = None) -> int:
    """Write the page and its pictures.

    :returns: exit status: 0, or 2 if the arguments are wrong.
    """
    words = sys.argv[1:] if argv is None else argv
    if len(words) < 2:
        print(
            'usage: python -m nova_vhpc_lab.bench.network.page DIRECTORY '
            'NETWORK.JSON ...',
            file=sys.stderr,
        )
        return 2
    target, *files = words
    document = merged([json.loads(Path(file).read_text()) for file in files])
    plot.draw(document, Path(target))
    Path(target, PAGE).write_text(page(document))
    return 0


if __name__ == '__main__':
    sys.exit(main())
