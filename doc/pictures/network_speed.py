# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""HPCVirt'09's bandwidths of the network configurations beside ours."""

import re

import svg
import tables
from svg import BLUE, GREY, INK

LEFT, WIDTH, MOST = 200, 520, 4.0
LIBRARY = 'openmpi'
_MBPS = re.compile(r'links of (\d+) Mbit/s')


def draw():
    """Return the picture."""
    page = tables.page('admin/network-measured')
    here, there = (_link(part) for part in _links(page))
    text = page.partition('\nTable 2:')[2]
    cells = [
        line
        for line in tables.lines(text, 'Library', 'Configuration')
        if line[0] == LIBRARY
    ]
    canvas = svg.Canvas(
        170 + 44 * len(cells),
        'Bandwidth of four pairs of members on two hosts, as a multiple of '
        'one link, by network configuration: in the paper, and measured here.',
    )
    canvas.text(
        20,
        28,
        "Network configurations: HPCVirt'09's figures beside ours",
        16,
        bold=True,
    )
    canvas.text(
        20,
        48,
        'Four pairs of members on two hosts, messages there and back: '
        'bandwidth as a multiple of one link.\nPaper: table 2, messages of '
        '4 MB, no figure for two configurations; here: of 256 KiB.',
        12,
    )
    canvas.bar(20, 80, 14, 14, GREY)
    canvas.text(40, 92, f'paper (Xen, Open MPI, {there:g} MB/s per link)', 12)
    canvas.bar(340, 80, 14, 14, BLUE)
    canvas.text(
        360,
        92,
        f'here (network namespaces, Open MPI, {here:g} MB/s per link)',
        12,
    )
    y = 108
    for value in range(5):
        x = LEFT + WIDTH * value / MOST
        bottom = y + 44 * len(cells)
        canvas.line([(x, y), (x, bottom)], '#d5d8dd', 1)
        canvas.text(x, bottom + 14, f'{value}', 11, anchor='middle')
    for _, name, *_, four in cells:
        canvas.text(LEFT - 10, y + 26, name.strip('`'), 13, anchor='end')
        ours, _, paper = four.partition(' ')
        if paper:
            _bar(canvas, y + 6, float(paper.strip('()')) / there, GREY)
        else:
            canvas.text(LEFT + 6, y + 17, 'no figure', 11, INK)
        _bar(canvas, y + 22, float(ours) / here, BLUE)
        y += 44
    canvas.text(
        20,
        y + 44,
        'nova-vhpc-bench network; slow links, so that two CPUs can fill them.',
        11,
    )
    return canvas.document()


def _links(page):
    """Return the links' speeds, in Mbit/s: measured here, and the paper's."""
    return _MBPS.findall(page)[:2]


def _link(mbps):
    """Return the bandwidth of a link in MB/s."""
    return float(mbps) / 8


def _bar(canvas, y, value, colour):
    width = WIDTH * value / MOST
    canvas.bar(LEFT, y, width, 14, colour)
    canvas.text(LEFT + width + 6, y + 12, f'{value:.2f}', 11)
