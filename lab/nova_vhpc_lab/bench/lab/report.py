# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Print the lab's figures as tables."""

import datetime
import os
import platform
from collections.abc import Mapping
from typing import Any

import rich.console
import rich.table

from nova_vhpc_lab.bench.lab import kbest, mixes, runner


def circumstances(
    scheme: kbest.KBest, timing: runner.Timing
) -> dict[str, Any]:
    """Return when, where and how the figures were measured."""
    return {
        'when': datetime.datetime.now(datetime.UTC).isoformat(
            timespec='seconds'
        ),
        'machine': {
            'kernel': platform.release(),
            'cpus': os.cpu_count(),
            'guests': 'QEMU, emulated (no KVM)',
        },
        'scheme': {
            'k': scheme.k,
            'epsilon': scheme.epsilon,
            'm': scheme.m,
            'settle_s': timing.settle_s,
            'measure_s': timing.measure_s,
            'max_other_load': timing.max_other_load,
        },
    }


def figure(value: float | None, form: str) -> str:
    """Return a figure as text; ``-`` if it is missing.

    :param value: the figure; None if, for instance, stock was not measured.
    :param form: format specification.
    """
    return '-' if value is None else format(value, form)


def print_tables(document: Mapping[str, Any]) -> None:
    """Print one table per mix, and one over all mixes.

    :param document: the JSON of ``nova-vhpc-bench lab``.
    """
    console = rich.console.Console()
    for name, by_policy in document['mixes'].items():
        mix = mixes.MIXES.get(name)
        with_latency = any('latency_ms' in e for e in by_policy.values())
        table = rich.table.Table(
            title=f'{name}: {mix.about}' if mix else name,
            title_justify='left',
            # With the latencies a line of 80 characters has no more space.
            padding=(0, 0 if with_latency else 1),
        )
        columns = ['policy', 'efficiency', 'fairness', 'speedup', 'loss']
        if with_latency:
            columns += ['latency ms', 'p99 ms']
        columns += ['late ms', 'runs']
        for column in columns:
            table.add_column(
                column, justify='left' if column == 'policy' else 'right'
            )
        for policy, entry in by_policy.items():
            cells = [
                policy,
                figure(entry['efficiency'], '.2f'),
                figure(entry['fairness'], '.2f'),
                figure(entry['speedup'], '.2f'),
                figure(entry['loss'], '.1%'),
            ]
            if with_latency:
                latency = entry.get('latency_ms', {})
                # Without any answer there is no latency, not one of 0.
                cells += [
                    figure(latency.get(part), '.1f')
                    for part in ('median', 'p99')
                ]
            late = entry.get('window_late_us')
            cells += ['-' if late is None else f'{late / 1000:.1f}']
            cells += [str(entry['runs'])]
            table.add_row(*cells)
        console.print(table)
        why = document.get('rounds', {}).get(name, {}).get('why')
        if why:
            console.print(f'{name}: {why}', highlight=False)
    table = rich.table.Table(
        title='over-committed mixes together', title_justify='left'
    )
    for column in ('policy', 'speedup', 'worst cluster'):
        table.add_column(column)
    for policy, entry in document.get('overall', {}).items():
        table.add_row(
            policy,
            f'{entry["speedup"]:.2f}',
            f'{entry["worst_speedup"]:.2f}',
        )
    if table.row_count:
        console.print(table)
