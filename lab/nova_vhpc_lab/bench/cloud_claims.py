# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The section on figures 10 to 14 of the ATC paper, for the page on claims."""

from collections.abc import Sequence

from nova_vhpc_lab.bench import cloud_times
from nova_vhpc_lab.bench.common import restructured_text

_KERNELS = {'xen': 'Xen', 'linux': 'Linux'}


def section(documents: Sequence[cloud_times.Document]) -> list[str]:
    """Return the lines of the section; none without figures.

    :param documents: JSON of ``nova-vhpc-bench cloud``, of each kernel.
    """
    figures = cloud_times.figures(documents)
    if not figures:
        return []
    lines = [
        *restructured_text.heading("ATC's evaluation, simulated"),
        'Simulated clouds (:doc:`cloud`) of hosts with 8 CPUs, four VMs of 8 '
        'vCPUs on each. Execution times as a part of the time under the stock '
        'scheduler of the same kernel, means of the seeds; less is better.',
        '',
        *map(_circumstances, documents),
        '',
    ]
    for scenario in ('atc-b', 'atc-mixed'):
        time = cloud_times.against_xen(documents, scenario)
        if time is not None:
            lines += [
                "Against Xen's credit scheduler, as the paper counts, the "
                f'clusters of ``{scenario}`` take {time:.2f} of the time with '
                '*ours* on Linux.',
                '',
            ]
    for figure in figures:
        lines += [
            *restructured_text.heading(figure.title, '-'),
            figure.paper,
            '',
            *restructured_text.list_table(_table(figure)),
        ]
    return lines


def _circumstances(document: cloud_times.Document) -> str:
    """Return what was run, as an item of a list."""
    scenarios = document['scenarios']
    seeds = ', '.join(
        f'``{name}`` {next(iter(policies.values()))["seeds"]}'
        for name, policies in scenarios.items()
    )
    return (
        f'* {_KERNELS[document["kernel"]]}, {document["seconds"]:g} s, clocks '
        f'{document["skew_ms"]:g} ms apart; seeds of each: {seeds}'
    )


def _table(figure: cloud_times.Figure) -> list[list[str]]:
    header = [
        f'{_KERNELS[kernel]}, {policy}' for kernel, policy in figure.columns
    ]
    rows = [['', *header]]
    for name, times in figure.rows.items():
        cells = (times.get(column) for column in figure.columns)
        rows.append(
            [name, *('' if one is None else f'{one:.2f}' for one in cells)]
        )
    return rows
