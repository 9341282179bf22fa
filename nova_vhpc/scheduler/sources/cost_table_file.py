# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Read the operator's own cost table (``[vhpc_scheduler] cost_table``)."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nova_vhpc.scheduler.planner import cost_table
from nova_vhpc.scheduler.planner.cost_table import PAPER, CostTable

_COLUMNS = ('latency_us', 'remote_mb_s', 'local_mb_s')
_FACTORS = ('two_interfaces', 'shared_uplinks')
_NUMBERS = ('link_mbps', 'no_spare_cpu')
ROWS = (cost_table.NATIVE, 'exported', 'separate', 'shared')
"""Rows that every table has, because the cost model reads them."""


@functools.lru_cache(maxsize=4)
def read(path: str | None) -> CostTable:
    """Return the table of a file; the papers' one without a file.

    The file is read once in a process.

    :raises ValueError: the file cannot be read, or is no cost table; the
        message names file and key.
    """
    if not path:
        return PAPER
    try:
        document = json.loads(Path(path).read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f'[vhpc_scheduler] cost_table: {error}') from None
    try:
        return parse(document)
    except ValueError as error:
        raise ValueError(
            f'[vhpc_scheduler] cost_table: {path}: {error}; make it again '
            'with nova-vhpc-bench network --calibrate'
        ) from None


def parse(document: Any) -> CostTable:
    """Return the table that a JSON document holds.

    :raises ValueError: the document is no cost table; the message names the
        key.
    """
    if not isinstance(document, dict):
        raise ValueError('not a JSON object')
    values: dict[str, Any] = {}
    for key in _NUMBERS:
        values[key] = _number(document.get(key), key)
    for key in _FACTORS:
        values[key] = {
            row: _number(value, f'{key}.{row}')
            for row, value in _mapping(document, key).items()
        }
    for key in _COLUMNS:
        table = _mapping(document, key)
        for row in ROWS:
            if row not in table:
                raise ValueError(f'{key}.{row} is missing')
        values[key] = {
            row: _row(columns, f'{key}.{row}')
            for row, columns in table.items()
        }
    return CostTable(**values)


def document(table: CostTable) -> dict[str, Any]:
    """Return the JSON document of a table."""
    return dataclasses.asdict(table)


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise ValueError(f'{key} is missing, or no JSON object')
    return value


def _row(columns: Any, key: str) -> cost_table.Columns:
    if not isinstance(columns, list) or not columns:
        raise ValueError(f'{key} is no list of numbers')
    return tuple(_number(value, key) for value in columns)


def _number(value: Any, key: str) -> float:
    """Return a number that can be divided by."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise ValueError(f'{key} is missing, or no number above 0: {value}')
    return float(value)
