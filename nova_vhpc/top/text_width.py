# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Text in a given number of terminal cells; some characters take two."""

from rich import cells


def length(text: str) -> int:
    """Return the number of terminal cells that a text takes."""
    return cells.cell_len(text)


def shorten(text: str, width: int) -> str:
    """Return a text in at most ``width`` cells, with an ellipsis if cut."""
    if length(text) <= width:
        return text
    return cells.set_cell_size(text, max(0, width - 1)).rstrip() + '…'


def pad(text: str, width: int, right: bool) -> str:
    """Return a text in ``width`` cells, aligned to the left or right."""
    blanks = ' ' * max(0, width - length(text))
    return blanks + text if right else text + blanks
