# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tables of figures, read from the pages that publish them."""

import csv
import dataclasses
import pathlib
import re

SOURCE = pathlib.Path(__file__).parents[1] / 'source'
_NUMBER = re.compile(r'-?\d+\.?\d*')


@dataclasses.dataclass(frozen=True)
class Range:
    """A median with the range of the runs."""

    median: float
    low: float
    high: float


def page(name):
    """Return the text of a page, such as ``admin/lab``."""
    return (SOURCE / f'{name}.rst').read_text()


def lines(text, *header):
    """Return the cells of the csv-table with these first columns, by line.

    :param text: page with the table.
    :param header: first words of its header.
    :raises LookupError: the page has no such table.
    """
    for block in text.split('.. csv-table::')[1:]:
        # Options come before the first blank line, the rows after it.
        body = block.split('\n\n')[1]
        table = list(
            csv.reader(
                map(str.strip, body.splitlines()), skipinitialspace=True
            )
        )
        if tuple(table[0][: len(header)]) == header:
            return table
    raise LookupError(f'no table {header}')


def rows(text, *header):
    """Return the lines of a table by their first cell, and its header."""
    first, *others = lines(text, *header)
    return {cells[0].strip('`'): cells for cells in others}, first


def interval(words):
    """Return the numbers of ``median (low to high)``."""
    numbers = [float(number) for number in _NUMBER.findall(words)]
    median, low, high = (numbers * 3)[:3] if len(numbers) == 1 else numbers[:3]
    return Range(median, low, high)
