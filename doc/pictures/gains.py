# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What it gains: real guests in the lab, and clouds in the simulator."""

import svg
import tables
from svg import BLUE, GREY, INK, ORANGE

LEFT, WIDTH = 330, 330
PROGRAMS = (
    ('clusters', '3 parallel VMs that spin'),
    ('block', '3 that spin briefly, then sleep'),
)
MIXES = (
    ('alone', '1 parallel VM, alone'),
    ('clusters', '3 parallel VMs'),
    ('network', '2 clusters that exchange messages'),
    ('web', '2 parallel VMs, a web server'),
    ('others-share', '2 parallel VMs, a busy VM'),
    ('hogs', '2 parallel VMs, 2 busy VMs'),
    ('others-share-loaded', '... a busy VM, the host busy, too'),
    ('hogs-loaded', '... 2 busy VMs, the host busy, too'),
)


def draw():
    """Return the picture."""
    height = 195 + 40 * (len(PROGRAMS) + len(MIXES)) + 134
    canvas = svg.Canvas(
        height,
        'Speed of parallel programs, as a part of what they do alone, under '
        'stock Linux and with nova-vhpc: for programs that spin or sleep '
        'while they wait, for several mixes of VMs in the lab, and for a '
        'simulated cloud.',
    )
    canvas.text(
        20, 28, 'Speed of parallel programs that share a host', 16, bold=True
    )
    canvas.text(
        20,
        48,
        'Sum over the clusters, each as a part of its speed alone on the '
        'host. Above 1, one computes while others wait.',
        12,
    )
    canvas.bar(20, 60, 14, 14, GREY)
    canvas.text(40, 72, 'stock Linux', 12)
    canvas.bar(150, 60, 14, 14, BLUE)
    canvas.text(170, 72, 'nova-vhpc', 12)
    canvas.bar(270, 60, 14, 14, ORANGE)
    canvas.text(290, 72, 'the best that is possible (computed)', 12)
    canvas.text(560, 72, 'thin line: range of the runs', 12)
    page = tables.page('admin/lab')
    y = _lab(
        canvas,
        104,
        'First of all: how programs wait (lab, 2 CPUs, 3 rounds)',
        tables.rows(page, 'Program')[0],
        PROGRAMS,
    )
    y = _lab(
        canvas,
        y,
        'Programs that spin (lab, 2 CPUs, 5 rounds)',
        tables.rows(page, 'Mix')[0],
        MIXES,
    )
    canvas.text(
        20,
        y,
        'Simulator: 32 hosts, 10 clusters of 2 to 32 VMs and 30 single '
        'VMs, 4 vCPUs per CPU',
        13,
        bold=True,
    )
    y += 8
    (linux, _), header = _cloud()
    _axis(canvas, y, y + 52)
    canvas.text(
        LEFT - 10, y + 30, 'clusters, geometric mean', 12, anchor='end'
    )
    for number, (name, colour) in enumerate(
        (('stock', GREY), ('ours', BLUE), ('bound', ORANGE))
    ):
        value = tables.interval(linux[header.index(name)])
        _bar(canvas, y + 5 + 15 * number, value, colour, digits=3)
    canvas.text(
        20,
        height - 12,
        'Idle machine, emulated guests. Host busy: a process outside of '
        'all VMs. Your programs will differ.',
        11,
    )
    return canvas.document()


def _lab(canvas, y, heading, found, rows):
    """Draw rows of a table of the lab; return where the next heading is."""
    canvas.text(20, y, heading, 13, bold=True)
    y += 12
    _axis(canvas, y, y + 40 * len(rows))
    for name, words in rows:
        _, stock, ours, *_ = found[name]
        canvas.text(LEFT - 10, y + 24, words, 12, anchor='end')
        _bar(canvas, y + 6, tables.interval(stock), GREY)
        _bar(canvas, y + 21, tables.interval(ours), BLUE)
        y += 40
    return y + 42


def _cloud():
    """Return the rows Linux and Xen of the simulated cloud's table."""
    found, header = tables.rows(tables.page('contributor/cloud'), 'Kernel')
    return (found['Linux'], found['Xen']), header


def _axis(canvas, top, bottom):
    for tenth in (0, 25, 50, 75, 100, 125):
        x = LEFT + WIDTH * tenth / 100
        canvas.line([(x, top), (x, bottom)], '#d5d8dd', 1)
        canvas.text(x, bottom + 13, f'{tenth / 100:g}', 11, anchor='middle')


def _bar(canvas, y, value, colour, digits=2):
    canvas.bar(LEFT, y, max(1.5, WIDTH * value.median), 13, colour)
    if value.low != value.high:
        middle = y + 6.5
        ends = LEFT + WIDTH * value.low, LEFT + WIDTH * value.high
        canvas.line([(end, middle) for end in ends], INK, 1)
        for end in ends:
            canvas.line([(end, middle - 3), (end, middle + 3)], INK, 1)
    x = LEFT + WIDTH * max(value.median, value.high) + 6
    canvas.text(x, y + 11, f'{value.median:.{digits}f}', 11)
