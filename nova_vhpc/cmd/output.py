# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Printing of the console scripts: any character, and JSON."""

import io
import json
import sys
from typing import Any

from rich.console import Console


def take_any_name() -> None:
    """Make standard output accept characters that its encoding lacks.

    Names in a cloud may have any character. One that the locale's encoding
    lacks is printed with a backslash escape, instead of ending the program.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors='backslashreplace')


def print_json(document: Any, *, sort_keys: bool = False) -> None:
    """Print a document as JSON, for scripts.

    Never in colours, not even with ``FORCE_COLOR``. Unlike with ``print()``,
    a closed pipe, for instance to ``head``, ends the program quietly.
    """
    text = json.dumps(document, indent=2, sort_keys=sort_keys)
    Console(highlight=False).out(text)
