# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A picture of the screen as SVG."""

import asyncio
import re
from typing import Any

from textual import app

CELL_WIDTH = 12.2
"""Width of a character in the SVG of the library rich."""

_FONT_FACE = re.compile(r'@font-face \{.*?\}\s*', re.DOTALL)
_TEXT = re.compile(
    r'x="(?P<x>[\d.]+)" (?P<y>y="[\d.]+") textLength="(?P<length>[\d.]+)"'
    r'(?P<rest>[^>]*>)(?P<blanks>(?:&#160;)+)'
)


def take(screen: app.App[Any], size: tuple[int, int]) -> str:
    """Return a picture of a program's screen, without a terminal.

    :param size: columns and lines.
    """

    async def run() -> str:
        async with screen.run_test(size=size) as pilot:
            await pilot.pause()
            return mend(screen.export_screenshot(simplify=True))

    return asyncio.run(run())


def mend(svg: str) -> str:
    """Return the SVG so that every viewer shows it alike.

    Fonts from other sites are left out: documentation must not fetch them.
    Some viewers drop blanks at the start of a text, so the text starts after
    them instead.
    """
    svg = _FONT_FACE.sub('', svg).replace('Fira Code, monospace', 'monospace')
    lines = (_TEXT.sub(_start_later, line) for line in svg.splitlines())
    return '\n'.join(line.rstrip() for line in lines) + '\n'


def _start_later(match: re.Match[str]) -> str:
    width = match['blanks'].count(';') * CELL_WIDTH
    x = float(match['x']) + width
    length = float(match['length']) - width
    return (
        f'x="{x:g}" {match["y"]} textLength="{max(length, 0):g}"'
        f'{match["rest"]}'
    )
