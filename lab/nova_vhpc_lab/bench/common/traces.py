# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read traces of I/O events.

A trace is a CSV file: a header of VM names, then one row per 100 ms with the
I/O events of each VM.
"""

import csv
import dataclasses
import math
import pathlib

SEPARATORS = (
    'columns must be separated by commas, and numbers written with a point'
)


class TraceError(Exception):
    """A trace cannot be read; the message has file, line and reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """I/O events of several VMs, per 100 ms.

    :ivar name: name of the file without ``.csv``.
    :ivar vms: names of the VMs.
    :ivar events: for each VM of :attr:`vms`, one number per period.
    """

    name: str
    vms: tuple[str, ...]
    events: tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class GappedTrace:
    """A trace in which measurements may be missing.

    :ivar name: name of the file without ``.csv``.
    :ivar vms: names of the VMs, all different.
    :ivar rows: for each period, one value per VM; None if the measurement is
        missing.
    """

    name: str
    vms: tuple[str, ...]
    rows: tuple[tuple[float | None, ...], ...]

    @property
    def gaps(self) -> int:
        """Number of missing measurements, of all VMs together."""
        return sum(row.count(None) for row in self.rows)


def read(path: pathlib.Path) -> Trace:
    """Read a trace without gaps.

    :raises TraceError: if the file cannot be read, has fewer than two rows, or
        a value is missing or not a number of events.
    """
    vms, lines = _lines(path)
    if len(lines) < 2:
        raise TraceError(
            f'{path}: {len(lines)} rows; at least 2 periods are needed '
            'to predict anything'
        )
    _check_numbers(path, lines)
    rows = [_row(path, number, row, len(vms)) for number, row in lines]
    return Trace(_name(path), vms, tuple(zip(*rows, strict=True)))


def read_gapped(path: pathlib.Path) -> GappedTrace:
    """Read a trace that may have gaps.

    A gap is a cell without a number, a number below 0, or a value that is
    missing at the end of a row.

    :raises TraceError: if the file cannot be read, has no number, has a row
        with more values than VMs, or if two VMs have the same name.
    """
    header, lines = _lines(path)
    if not lines:
        raise TraceError(
            f'{path}: a header of VM names and a row per 100 ms expected'
        )
    vms = tuple(
        name or f'column {number}' for number, name in enumerate(header, 1)
    )
    if len(set(vms)) != len(vms):
        raise TraceError(f'{path}: two columns have the same name')
    _check_numbers(path, lines)
    rows = []
    for number, row in lines:
        if len(row) > len(vms):
            raise _misfit(path, number, row, len(vms))
        values = [_events_or_gap(cell) for cell in row]
        rows.append((*values, *[None] * (len(vms) - len(row))))
    return GappedTrace(_name(path), vms, tuple(rows))


def read_all(
    directory: pathlib.Path,
) -> tuple[list[Trace], list[TraceError]]:
    """Read all ``*.csv`` files of a directory, sorted by name.

    :returns: the traces, and an error for each file that cannot be read.
    :raises TraceError: if the directory or its ``*.csv`` files are missing.
    """
    if not directory.is_dir():
        raise TraceError(f'{directory}: no such directory')
    paths = sorted(directory.glob('*.csv'))
    if not paths:
        raise TraceError(f'{directory}: no *.csv in it')
    traces: list[Trace] = []
    errors: list[TraceError] = []
    for path in paths:
        try:
            traces.append(read(path))
        except TraceError as error:
            errors.append(error)
    return traces, errors


def finite(cell: str) -> float | None:
    """Return the finite number in a cell, or None."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _name(path: pathlib.Path) -> str:
    """Return a file's name without its suffix, fit for printing."""
    # Bytes that are not UTF-8 are surrogates here, which cannot be printed.
    # They are escaped, not replaced: different names must stay different.
    return path.stem.encode(errors='backslashreplace').decode()


def _lines(
    path: pathlib.Path,
) -> tuple[tuple[str, ...], list[tuple[int, list[str]]]]:
    """Return the header's names, and each row with its line number."""
    try:
        with path.open(newline='', encoding='utf-8-sig') as file:
            lines = [
                (number, row)
                for number, row in enumerate(csv.reader(file), 1)
                # Empty cells are a period without measurements; an empty
                # line is ignored.
                if len(row) > 1 or any(cell.strip() for cell in row)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f'{path}: cannot be read: {error}') from None
    if not lines:
        raise TraceError(f'{path}: empty; a header of VM names is expected')
    return tuple(name.strip() for name in lines[0][1]), lines[1:]


def _check_numbers(
    path: pathlib.Path, lines: list[tuple[int, list[str]]]
) -> None:
    if all(finite(cell) is None for _, row in lines for cell in row):
        raise TraceError(f'{path}: there is no number in it; {SEPARATORS}')


def _misfit(
    path: pathlib.Path, number: int, row: list[str], width: int
) -> TraceError:
    return TraceError(
        f'{path}, line {number}: {len(row)} values for {width} VMs; '
        f'{SEPARATORS}'
    )


def _row(
    path: pathlib.Path, number: int, row: list[str], width: int
) -> tuple[float, ...]:
    if len(row) != width:
        raise _misfit(path, number, row, width)
    return tuple(_events(path, number, cell) for cell in row)


def _events_or_gap(cell: str) -> float | None:
    value = finite(cell)
    return None if value is None or value < 0 else value


def _events(path: pathlib.Path, number: int, cell: str) -> float:
    value = _events_or_gap(cell)
    if value is None:
        raise TraceError(
            f'{path}, line {number}: "{cell}" is not a number of I/O events'
        )
    return value
