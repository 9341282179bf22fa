# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The five network configurations, each on two hosts of two members."""

import functools

import svg
from svg import BLUE, GREY, INK, ORANGE, PURPLE

CAPTIONS = {
    'exported': 'exported: each member has a network device of the host',
    'shared': 'shared: the members of a host share a bridge and its uplink',
    'multiple-shared': 'multiple-shared: two NICs, two bridges, two uplinks '
    'for all members',
    'separate': 'separate: each member has a bridge and an uplink of its own',
    'shared-separate': 'shared-separate: an uplink each for other hosts, '
    'memory between members of a host',
}
HOSTS = (20, 420)
MEMBERS = (15, 215)
"""Left edge of each member, from that of its host."""
COLOURS = (BLUE, ORANGE)


def draw(name):
    """Return the picture of a configuration."""
    canvas = svg.Canvas(300, CAPTIONS[name])
    canvas.text(20, 24, CAPTIONS[name], 14, bold=True)
    for number, left in enumerate(HOSTS, 1):
        canvas.rect(left, 36, 360, 206, GREY, '#ffffff')
        canvas.text(left + 180, 54, f'host {number}', 12, anchor='middle')
        for member, offset in enumerate(MEMBERS):
            canvas.box(
                left + offset,
                62,
                130,
                30,
                f'member {2 * number - 1 + member}',
                GREY,
            )
        _PARTS[name](canvas, left)
    canvas.box(20, 264, 760, 28, 'switch', GREY)
    return canvas.document()


def _nic(canvas, x, colour, words='NIC'):
    """Draw a NIC around a middle, and its link to the switch."""
    canvas.box(x - 45, 204, 90, 28, words, colour, 12)
    canvas.line([(x, 232), (x, 264)], colour, 2.5)


def _bridge(canvas, x, colour, words='bridge', width=90):
    canvas.box(x - width / 2, 136, width, 28, words, colour, 12)


def _middle(left, member):
    return left + MEMBERS[member] + 65


def _exported(canvas, left):
    for member, colour in enumerate(COLOURS):
        x = _middle(left, member)
        canvas.line([(x, 92), (x, 204)], colour, 2.5)
        _nic(canvas, x, colour, 'PCI device')
    canvas.text(
        left + 180, 150, "past the host's\nbridges", 11, anchor='middle'
    )


def _shared(canvas, left):
    middle = left + 180
    for member in (0, 1):
        x = _middle(left, member)
        canvas.line(
            [(x, 92), (x, 114), (middle, 114), (middle, 136)], BLUE, 2.5
        )
    _bridge(canvas, middle, BLUE)
    canvas.line([(middle, 164), (middle, 204)], BLUE, 2.5)
    _nic(canvas, middle, BLUE)


def _multiple_shared(canvas, left):
    for way, colour in enumerate(COLOURS):
        bridge = _middle(left, way)
        level = (122, 106)[way]
        for member in (0, 1):
            x = _middle(left, member) + (-15, 15)[way]
            canvas.line(
                [(x, 92), (x, level), (bridge, level), (bridge, 136)],
                colour,
                2.5,
            )
        _bridge(canvas, bridge, colour)
        canvas.line([(bridge, 164), (bridge, 204)], colour, 2.5)
        _nic(canvas, bridge, colour)


def _separate(canvas, left):
    for member, colour in enumerate(COLOURS):
        x = _middle(left, member)
        canvas.line([(x, 92), (x, 136)], colour, 2.5)
        _bridge(canvas, x, colour)
        canvas.line([(x, 164), (x, 204)], colour, 2.5)
        _nic(canvas, x, colour)


def _shared_separate(canvas, left):
    middle = left + 180
    for member, colour in enumerate(COLOURS):
        outer = _middle(left, member) + (-20, 20)[member]
        inner = _middle(left, member) + (30, -30)[member]
        canvas.line([(outer, 92), (outer, 136)], colour, 2.5)
        _bridge(canvas, outer, colour, width=76)
        canvas.line([(outer, 164), (outer, 204)], colour, 2.5)
        _nic(canvas, outer, colour)
        canvas.line(
            [(inner, 92), (inner, 114), (middle, 114), (middle, 136)],
            PURPLE,
            2.5,
        )
    _bridge(canvas, middle, PURPLE, "host's memory", 112)
    canvas.text(middle, 182, 'no uplink', 11, INK, 'middle')


_PARTS = {
    'exported': _exported,
    'shared': _shared,
    'multiple-shared': _multiple_shared,
    'separate': _separate,
    'shared-separate': _shared_separate,
}

PICTURES = {
    f'network-{name}': functools.partial(draw, name) for name in CAPTIONS
}
