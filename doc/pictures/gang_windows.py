# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Gang windows: two CPUs, three parallel VMs of two vCPUs."""

import svg
from svg import BLUE, GREEN, ORANGE, PALE

LEFT, WIDTH, SLICE_MS = 110, 660, 25
COLOURS = {'A': BLUE, 'B': ORANGE, 'C': GREEN}
STOCK = ('AABCCABBCAAB', 'BCCABBCBACBA')
"""What runs on each CPU, a letter for each slice, as an example."""
WINDOWS = ('AABBCCAABBCC', 'AABBCCAABBCC')


def draw():
    """Return the picture."""
    canvas = svg.Canvas(
        300,
        'Under stock Linux the two vCPUs of a VM seldom run at the same '
        'time. In gang windows they always do.',
    )
    canvas.text(
        20,
        24,
        'Three parallel VMs A, B, C with two vCPUs each, on two CPUs',
        14,
        bold=True,
    )
    canvas.text(
        20,
        44,
        'Full colour: both vCPUs of the VM run, its program gets on. Pale: '
        'one runs, and waits for the other.',
        12,
    )
    _strip(canvas, 62, 'stock Linux (an example)', STOCK)
    _strip(canvas, 168, 'gang windows', WINDOWS)
    for number in range(0, len(WINDOWS[0]) + 1, 2):
        x = LEFT + WIDTH * number / len(WINDOWS[0])
        canvas.line([(x, 180), (x, 262)], '#1d232b', 1, '3 3')
        canvas.text(x, 276, f'{number * SLICE_MS}', 11, anchor='middle')
    canvas.text(
        LEFT + WIDTH / 2,
        292,
        'milliseconds; windows begin by the wall clock, on all hosts of a '
        'cluster at once',
        11,
        anchor='middle',
    )
    return canvas.document()


def _strip(canvas, top, name, cpus):
    canvas.text(20, top + 12, name, 13, bold=True)
    width = WIDTH / len(cpus[0])
    for cpu, letters in enumerate(cpus):
        y = top + 20 + 36 * cpu
        canvas.text(LEFT - 10, y + 20, f'CPU {cpu}', 12, anchor='end')
        for number, letter in enumerate(letters):
            together = all(other[number] == letter for other in cpus)
            colour = COLOURS[letter]
            x = LEFT + number * width
            canvas.rect(
                x + 1,
                y,
                width - 2,
                30,
                colour,
                colour if together else PALE[colour],
                2,
            )
            canvas.text(
                x + width / 2,
                y + 20,
                letter,
                13,
                '#ffffff' if together else '#1d232b',
                'middle',
                bold=together,
            )
