# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Slots: the example of the page about them, drawn."""

import re

import svg
import tables
from svg import BLUE, GREEN, GREY, ORANGE, PURPLE

COLOURS = {'p': BLUE, 'q': ORANGE, 'r': GREEN, 's': PURPLE}
_ROW = re.compile(r'^ +host (\w) +((?:[pqrs.] +){8})', re.MULTILINE)
LEFT, WIDTH = 100, 84


def draw():
    """Return the picture."""
    rows = _ROW.findall(tables.page('contributor/slots'))
    if len(rows) != 4:
        raise LookupError('contributor/slots has no matrix of four hosts')
    canvas = svg.Canvas(
        290,
        'Four hosts that share virtual clusters: each cluster has the same '
        'slots on all of its hosts.',
    )
    canvas.text(
        20,
        24,
        'Each virtual cluster has the same slots of the wall clock on all of '
        'its hosts',
        14,
        bold=True,
    )
    for number in range(8):
        x = LEFT + number * WIDTH
        canvas.text(
            x + WIDTH / 2 - 2, 52, f'slot {number}', 12, anchor='middle'
        )
    for row, (host, cells) in enumerate(rows):
        y = 62 + row * 44
        canvas.text(LEFT - 12, y + 24, f'host {host}', 13, anchor='end')
        for number, letter in enumerate(cells.split()):
            x = LEFT + number * WIDTH
            if letter == '.':
                canvas.box(x, y, WIDTH - 4, 38, 'free', GREY, 11)
                continue
            colour = COLOURS[letter]
            canvas.rect(x, y, WIDTH - 4, 38, colour, colour)
            canvas.text(
                x + WIDTH / 2 - 2,
                y + 24,
                letter,
                15,
                '#ffffff',
                'middle',
                bold=True,
            )
    canvas.text(
        20,
        258,
        'Slots that are free on all of its hosts will do. Others go to '
        'whatever gains most on that host.\n'
        'The hosts agree by messages; no server knows all clusters.',
        12,
    )
    return canvas.document()
