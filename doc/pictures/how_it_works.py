# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How nova-vhpc works, from the request to the CPUs."""

import svg
from svg import BLUE, GREEN, GREY, ORANGE, PURPLE


def draw():
    """Return the picture."""
    canvas = svg.Canvas(
        470,
        'A tenant creates the servers of a server group. Filter and weigher '
        'in nova-scheduler plan the whole cluster with what agents published '
        'to Placement. On each compute node the agent measures every 100 ms, '
        'decides, and sets weights, quotas and pins by libvirt.',
    )
    canvas.box(
        20,
        16,
        220,
        64,
        'tenant\nserver group + flavor,\n4 members at once',
        GREY,
    )
    canvas.box(
        290,
        16,
        280,
        64,
        'nova-scheduler\nfilter, planner and weigher:\n'
        'the whole cluster, not one server',
        BLUE,
    )
    canvas.box(
        620, 16, 160, 64, 'Placement\nfree uplinks\nof all hosts', PURPLE
    )
    canvas.arrow([(240, 48), (290, 48)])
    canvas.arrow([(570, 40), (620, 40)])
    canvas.arrow([(620, 58), (570, 58)])
    canvas.text(595, 34, 'claim', 11, anchor='middle')
    canvas.text(595, 74, 'read', 11, anchor='middle')
    for left, name in ((20, 'compute node 1'), (410, 'compute node 2')):
        _host(canvas, left, name)
    canvas.arrow([(360, 80), (360, 98), (205, 98), (205, 120)], BLUE)
    canvas.arrow([(500, 80), (500, 98), (595, 98), (595, 120)], BLUE)
    canvas.text(350, 112, '2 + 2 members', 12, BLUE, 'middle')
    canvas.arrow([(755, 120), (755, 80)], PURPLE, dashes='5 3')
    canvas.text(748, 104, 'publish uplinks', 11, PURPLE, 'end')
    canvas.arrow([(390, 330), (410, 330)], GREEN, both=True)
    canvas.rect(20, 418, 760, 40, GREEN)
    canvas.text(
        400,
        443,
        'Agents agree over the message bus: members of a cluster run at the '
        'same time on all hosts.',
        13,
        anchor='middle',
    )
    canvas.arrow([(205, 400), (205, 418)], GREEN, both=True)
    canvas.arrow([(595, 400), (595, 418)], GREEN, both=True)
    return canvas.document()


def _host(canvas, left, name):
    canvas.rect(left, 120, 370, 280, GREY, '#ffffff')
    canvas.text(left + 12, 142, name, 14, bold=True)
    canvas.rect(left + 15, 156, 340, 110, ORANGE, '#ffffff')
    for number, (words, colour) in enumerate(
        (
            ('member\n2 vCPUs', ORANGE),
            ('member\n2 vCPUs', ORANGE),
            ('other\nVM', GREY),
        )
    ):
        x = left + 27 + number * 112
        canvas.box(x, 164, 92, 48, words, colour, 12)
        canvas.line([(x + 46, 212), (x + 46, 228)], colour)
    canvas.rect(left + 27, 228, 316, 28, GREY)
    canvas.text(
        left + 185,
        246,
        'bridges, NICs: an uplink for each member',
        12,
        anchor='middle',
    )
    canvas.rect(left + 15, 278, 340, 108, GREEN)
    canvas.text(
        left + 185, 298, 'nova-vhpc-agent', 13, anchor='middle', bold=True
    )
    for number, words in enumerate(
        (
            'measure\nwaits, steals,\npackets\nof each vCPU',
            'decide\nphases, pools,\ngang windows,\ntime slices',
            'act\nCPU weights,\nquotas, pins;\nall taken back',
        )
    ):
        x = left + 70 + number * 115
        lines = words.split('\n')
        canvas.text(x, 322, lines[0], 12, anchor='middle', bold=True)
        canvas.text(x, 338, '\n'.join(lines[1:]), 12, anchor='middle')
    for x in (left + 118, left + 233):
        canvas.arrow([(x, 318), (x + 14, 318)], GREEN)
