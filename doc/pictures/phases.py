# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Phases: when a virtual cluster enters and leaves the I/O phase."""

import svg
from svg import BLUE, GREY, ORANGE, PALE, RED

EVENTS = (
    *(12, 20, 9, 16, 14, 160, 210, 190, 205, 30, 185, 220, 200),
    *(22, 14, 11, 18, 10, 15, 13, 150, 205, 195, 215),
)
"""I/O events in each period of 100 ms, as an example."""
THRESHOLD = 90
LEAVE_AFTER = 3
LEFT, STEP, BASE, SCALE = 110, 27, 210, 0.6


def phases():
    """Return for each period whether the cluster is in the I/O phase.

    It enters with the first period above the threshold, and leaves after
    three below it in a row.
    """
    inside, low, found = False, 0, []
    for events in EVENTS:
        low = 0 if events > THRESHOLD else low + 1
        inside = events > THRESHOLD or (inside and low < LEAVE_AFTER)
        found.append(inside)
    return found


def draw():
    """Return the picture."""
    canvas = svg.Canvas(
        360,
        'Packets per period of a virtual cluster, the threshold, the phase '
        'that follows, and the pool of CPUs its vCPUs run in.',
    )
    canvas.text(
        20,
        24,
        'When a virtual cluster is in the I/O phase (an example)',
        14,
        bold=True,
    )
    canvas.text(
        20,
        44,
        'It enters at once; it leaves after three low periods, if the next '
        'is predicted to be low, too.',
        12,
    )
    states = phases()
    right = LEFT + STEP * len(EVENTS)
    canvas.text(LEFT - 10, 130, 'packets\nin 100 ms', 12, anchor='end')
    for number, events in enumerate(EVENTS):
        height = events * SCALE
        canvas.bar(
            LEFT + number * STEP + 3,
            BASE - height,
            STEP - 6,
            height,
            BLUE if events > THRESHOLD else GREY,
        )
    canvas.line([(LEFT, BASE), (right, BASE)])
    level = BASE - THRESHOLD * SCALE
    canvas.line([(LEFT, level), (right, level)], RED, 1.5, '6 4')
    canvas.text(LEFT + 2, level - 6, 'threshold, learned', 11, RED)
    for y, title, words in (
        (228, 'phase', ('I/O', 'computing')),
        (276, 'vCPUs run in', ('I/O pool', 'computing pool')),
    ):
        canvas.text(LEFT - 10, y + 21, title, 12, anchor='end')
        _runs(canvas, y, states, words)
    canvas.text(
        LEFT,
        336,
        'All members of the cluster change together, on all hosts. In the '
        'I/O pool a vCPU that gets a packet\n'
        'does not wait for one that computes.',
        12,
    )
    return canvas.document()


def _runs(canvas, y, states, words):
    """Draw a box for each run of equal states."""
    start = 0
    for number in range(1, len(states) + 1):
        if number < len(states) and states[number] == states[start]:
            continue
        inside = states[start]
        colour = ORANGE if inside else GREY
        x, width = LEFT + start * STEP, (number - start) * STEP
        canvas.rect(x + 1, y, width - 2, 32, colour, PALE[colour])
        canvas.text(
            x + width / 2,
            y + 21,
            words[0 if inside else 1],
            12,
            anchor='middle',
        )
        start = number
