# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Parts of pages in reStructuredText."""

from collections.abc import Iterable, Sequence


def heading(title: str, line: str = '=') -> list[str]:
    """Return the lines of a heading.

    :param line: the character below it.
    """
    return [title, line * len(title), '']


def list_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; the first row is its header."""
    lines = ['.. list-table::', '   :header-rows: 1', '']
    for row in rows:
        for number, cell in enumerate(row):
            lead = '   * - ' if number == 0 else '     - '
            lines.append((lead + cell).rstrip())
    return [*lines, '']
