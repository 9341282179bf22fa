# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The papers' figures beside what was simulated and measured here."""

import re

import svg
import tables
from svg import BLUE, GREEN, GREY, INK, ORANGE

LEFT, WIDTH, MOST = 330, 400, 2.0
_PAPER = re.compile(
    r'^Paper, \*\w+\* (?:on|in) .*?: (.*?)[.;](?: |$)', re.MULTILINE
)
_PAIR = re.compile(r'(\w+) (\d\.\d+)')

GROUPS = (
    (
        'Figure 10',
        'Figure 10: four clusters on 8 hosts (paper: lu; simulated: '
        'several programs)',
        '8 hosts',
    ),
    (
        'Figure 11',
        'Figure 11: the largest of ten clusters (paper: sp; simulated: '
        'several programs)',
        'VC1',
    ),
)
"""Beginning of the section, title, and row of its table."""
SERIES = (
    ('Xen, cs', 'simulated Xen: co-scheduling', ORANGE),
    ('Xen, dss', 'simulated Xen: DSS', ORANGE),
    ('Xen, atc-30ms', 'simulated Xen: ATC', ORANGE),
    ('Linux, atc-30ms', 'simulated Linux: ATC', GREEN),
    ('Linux, ours', 'simulated Linux: what nova-vhpc does', BLUE),
)
NAMES = {
    'BS': 'paper, Xen: balance scheduling',
    'CS': 'paper, Xen: co-scheduling',
    'DSS': 'paper, Xen: DSS',
    'ATC': 'paper, Xen: ATC',
}


def draw():
    """Return the picture."""
    groups = [_group(*group) for group in GROUPS]
    rows = sum(len(bars) for _, bars in groups)
    canvas = svg.Canvas(
        118 + 20 * rows + 62 * len(groups),
        'Execution times of parallel programs, as a part of the time under '
        'the stock scheduler: in the ATC paper, and simulated here.',
    )
    canvas.text(20, 28, "The ATC paper's figures beside ours", 16, bold=True)
    canvas.text(
        20,
        48,
        'Execution time as a part of that under the stock scheduler of the '
        'same kernel: less is better.',
        12,
    )
    y = 80
    for title, bars in groups:
        canvas.text(20, y, title, 13, bold=True)
        y += 10
        _axis(canvas, y, y + 20 * len(bars))
        for words, value, colour in bars:
            canvas.text(LEFT - 10, y + 14, words, 12, anchor='end')
            canvas.bar(LEFT, y + 4, WIDTH * value / MOST, 13, colour)
            canvas.text(
                LEFT + WIDTH * value / MOST + 6, y + 15, f'{value:.2f}', 11
            )
            y += 20
        y += 52
    canvas.text(
        20,
        y - 8,
        "Slices like ATC's help on Xen, simulated too; on Linux they do "
        'not. What helps there is to run\nall vCPUs of a cluster at the same '
        'time. Programs and compute times of the simulator are ours.',
        12,
    )
    return canvas.document()


def _group(section, title, row):
    """Return the title and the bars of a figure of the paper."""
    text = tables.page('contributor/claims').partition(f'\n{section}:')[2]
    paper = _PAPER.search(text)[1]
    bars = [
        (NAMES[name], float(value), GREY)
        for name, value in _PAIR.findall(paper)
    ]
    found, header = tables.rows(text, '')
    bars += [
        (words, float(found[row][header.index(column)]), colour)
        for column, words, colour in SERIES
    ]
    return title, bars


def _axis(canvas, top, bottom):
    for value in (0, 0.5, 1.0, 1.5, 2.0):
        x = LEFT + WIDTH * value / MOST
        stock = value == 1.0
        canvas.line([(x, top), (x, bottom)], INK if stock else '#d5d8dd', 1)
        words = '1 (stock)' if stock else f'{value:g}'
        canvas.text(x, bottom + 14, words, 11, anchor='middle')
