# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Print the figures as HPCVirt'09 does."""

from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
import rich.table

from nova_vhpc_lab.bench.network import figures, paper


def print_cluster(
    cluster: str, by_library: Mapping[str, Mapping[str, Any]]
) -> None:
    """Print the tables of one cluster.

    :param cluster: the cluster, and on which terms it was measured.
    :param by_library: entries of the JSON by library and configuration.
    """
    for library, entries in by_library.items():
        _print(
            f'Milliseconds of one exchange of all guests; {cluster}, '
            f'{library}',
            _matrix(entries),
        )
        for table in paper.TABLES:
            rows = {
                configuration: entry['pairs'][table.where][table.figure]
                for configuration, entry in entries.items()
                if table.figure in entry['pairs'].get(table.where, {})
            }
            if rows:
                _print(
                    f'Table {table.number}: {table.title}; in brackets '
                    f"HPCVirt'09, at {paper.LINK_MBPS:.0f} Mbit/s; {cluster}, "
                    f'{library}',
                    _pairs(rows, table, library),
                )


def _print(title: str, table: rich.table.Table) -> None:
    # A title of the table itself would be wrapped at the table's width.
    print(f'\n{title}')
    rich.console.Console().print(table)


def _table(columns: Sequence[str]) -> rich.table.Table:
    table = rich.table.Table()
    table.add_column('configuration')
    for column in columns:
        table.add_column(column, justify='right')
    return table


def _matrix(entries: Mapping[str, Any]) -> rich.table.Table:
    """Return the exchanges of all guests: figures 10 to 12 of the paper.

    Medians, and for the all-to-all exchange the range.
    """
    names = [f'{exchange}_ms' for exchange in figures.EXCHANGES]
    table = _table([*figures.EXCHANGES, 'all-to-all range'])
    for configuration, entry in entries.items():
        low, high = entry['ranges'][names[0]]
        table.add_row(
            configuration,
            *(f'{entry[name]:.3g}' for name in names),
            f'{low:.3g} to {high:.3g}',
        )
    return table


def _pairs(
    rows: Mapping[str, Sequence[Sequence[float]]],
    of_paper: paper.Table,
    library: str,
) -> rich.table.Table:
    """Return a table with a column for each number of pairs.

    :param rows: by configuration and number of pairs median, low and high.
    """
    most = max(map(len, rows.values()))
    table = _table([count(number + 1) for number in range(most)])
    for configuration, cells in rows.items():
        table.add_row(
            configuration,
            *(
                with_paper(of_paper, library, configuration, pairs, one[0])
                for pairs, one in enumerate(cells, 1)
            ),
        )
    return table


def with_paper(
    table: paper.Table,
    library: str,
    configuration: str,
    pairs: int,
    value: float,
) -> str:
    """Return a value and in brackets the paper's, if there is one."""
    text = format(value, table.form)
    printed = table.value(library, configuration, pairs)
    return text if printed is None else f'{text} ({printed:.0f})'


def count(pairs: int) -> str:
    """Return a number of pairs as text."""
    return '1 pair' if pairs == 1 else f'{pairs} pairs'


def print_spare_cpu(
    cluster: str,
    by_library: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]],
) -> None:
    """Print how much longer exchanges take without a spare CPU.

    :param by_library: by library, configuration and exchange median, low and
        high of the ratios.
    """
    for library, gains in by_library.items():
        table = _table(figures.EXCHANGES)
        for configuration, by_exchange in gains.items():
            table.add_row(
                configuration,
                *(f'{median:.2f}' for median, _, _ in by_exchange.values()),
            )
        _print(
            'Time without a spare CPU over time with one; '
            f'{cluster}, {library}',
            table,
        )


def print_order(cluster: str, library: str, order: Mapping[str, Any]) -> None:
    """Print whether the planner's order is the measured one.

    :param order: result of :func:`nova_vhpc_lab.bench.network.order.document`.
    """
    print(
        f'{cluster}, {library}: of {order["compared"]} differences '
        f'{order["beyond_noise"]} are beyond noise; the planner has the same '
        f'order in {order["matching"]} of these'
    )
    for one in order['differing']:
        print(
            f'  {one["figure"]}: {one["faster"]} is faster than '
            f'{one["slower"]} by {one["measured"]:.2f}, the planner has '
            f'{one["predicted"]:.2f}'
        )
