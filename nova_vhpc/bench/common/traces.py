# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Reading of traces of I/O events (DESIGN.md, section 7)."""

import csv
import dataclasses
import math
import pathlib

SEPARATORS = (
    'columns must be separated by commas, and numbers written with a point'
)


class TraceError(Exception):
    """A trace cannot be used; the text says which, where and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """I/O events per 100 ms of the VMs of one run.

    :ivar name: the file's name without ``.csv``.
    :ivar vms: names of the VMs.
    :ivar events: by VM, in the order of :attr:`vms`, one number a period.
    """

    name: str
    vms: tuple[str, ...]
    events: tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class GappedTrace:
    """A trace in which measurements may be missing.

    :ivar name: the file's name without ``.csv``.
    :ivar vms: names of the VMs, each another.
    :ivar rows: one per period, one value per VM; None where there is no
        number.
    """

    name: str
    vms: tuple[str, ...]
    rows: tuple[tuple[float | None, ...], ...]

    @property
    def gaps(self) -> int:
        """How many measurements are missing, of all VMs."""
        return sum(row.count(None) for row in self.rows)


def read(path: pathlib.Path) -> Trace:
    """Read a CSV: a header of VM names, then one row per 100 ms.

    :raises TraceError: not readable, no rows, or a row that does not fit.
    """
    vms, lines = _lines(path)
    if len(lines) < 2:
        raise TraceError(
            f'{path}: {len(lines)} rows; at least 2 periods are needed '
            'to predict anything'
        )
    _look_for_numbers(path, lines)
    rows = [_row(path, number, row, len(vms)) for number, row in lines]
    return Trace(_name(path), vms, tuple(zip(*rows, strict=True)))


def read_gapped(path: pathlib.Path) -> GappedTrace:
    """Read a CSV as :func:`read`, but take what is no number for a gap.

    So are numbers below 0, and values that a row lacks at its end.

    :raises TraceError: not readable, no number in it, a row with more
        values than there are VMs, or two VMs of one name.
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
    _look_for_numbers(path, lines)
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
    """Read all ``*.csv`` of a directory, in the order of their names.

    :returns: the traces, and what is wrong with those that cannot be used.
    :raises TraceError: no such directory, or nothing in it.
    """
    if not directory.is_dir():
        raise TraceError(f'{directory}: no such directory')
    paths = sorted(directory.glob('*.csv'))
    if not paths:
        raise TraceError(f'{directory}: no *.csv in it')
    found: list[Trace] = []
    faults: list[TraceError] = []
    for path in paths:
        try:
            found.append(read(path))
        except TraceError as fault:
            faults.append(fault)
    return found, faults


def finite(cell: str) -> float | None:
    """The number in a cell; None where there is none that is finite."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _name(path: pathlib.Path) -> str:
    """A file's name without its suffix, as it can be printed and drawn."""
    # Bytes that are no UTF-8 come as surrogates, which cannot. Each is
    # spelled out: results are kept by name, so no two may become one.
    return path.stem.encode(errors='backslashreplace').decode()


def _lines(
    path: pathlib.Path,
) -> tuple[tuple[str, ...], list[tuple[int, list[str]]]]:
    """Names of the header, and each row with its number in the file."""
    try:
        with path.open(newline='', encoding='utf-8-sig') as file:
            lines = [
                (number, row)
                for number, row in enumerate(csv.reader(file), 1)
                # A row of empty cells is a period; an empty line is none.
                if len(row) > 1 or any(cell.strip() for cell in row)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f'{path}: cannot be read: {error}') from None
    if not lines:
        raise TraceError(f'{path}: empty; a header of VM names is expected')
    return tuple(name.strip() for name in lines[0][1]), lines[1:]


def _look_for_numbers(
    path: pathlib.Path, lines: list[tuple[int, list[str]]]
) -> None:
    if all(finite(cell) is None for _, row in lines for cell in row):
        raise TraceError(f'{path}: no number was found in it; {SEPARATORS}')


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
            f'{path}, line {number}: "{cell}" is no number of I/O events'
        )
    return value
