# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A canvas that writes SVG by hand: the same bytes on every machine."""

from xml.sax import saxutils

WIDTH = 800
"""Width of every picture, in pixels, at which it must be readable."""

BLUE = '#2f6fb3'
ORANGE = '#d9822b'
GREEN = '#3c8d5a'
PURPLE = '#8459a8'
RED = '#b8403a'
GREY = '#8a8f98'
INK = '#1d232b'
PALE = {
    BLUE: '#dbe8f6',
    ORANGE: '#fbe7d0',
    GREEN: '#dcf0e3',
    PURPLE: '#ebe1f3',
    RED: '#f6dcda',
    GREY: '#eceef1',
}
"""Fill of boxes, by the colour of their border."""

FONT = 'DejaVu Sans, Verdana, Helvetica, Arial, sans-serif'


class Canvas:
    """A picture of fixed width with a white background.

    The background keeps it readable on pages of dark mode.

    :param height: in pixels.
    :param title: what the picture shows, for readers that cannot see it.
    """

    def __init__(self, height, title):
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="{FONT}" role="img">',
            f'<title>{saxutils.escape(title)}</title>',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        ]

    def text(
        self, x, y, words, size=13, colour=INK, anchor='start', bold=False
    ):
        """Write lines of text; y is the baseline of the first one."""
        weight = ' font-weight="bold"' if bold else ''
        for number, line in enumerate(words.split('\n')):
            self._parts.append(
                f'<text x="{x:g}" y="{y + number * size * 1.3:g}" '
                f'font-size="{size}" fill="{colour}" '
                f'text-anchor="{anchor}"{weight}>'
                f'{saxutils.escape(line)}</text>'
            )

    def rect(self, x, y, width, height, colour=GREY, fill=None, round_=4):
        """Draw a rectangle; its fill is the pale form of its colour."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" '
            f'height="{height:g}" rx="{round_}" fill="{fill or PALE[colour]}" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        )

    def bar(self, x, y, width, height, colour):
        """Draw a filled rectangle without border."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" '
            f'height="{height:g}" fill="{colour}"/>'
        )

    def line(self, points, colour=INK, width=1.5, dashes=''):
        """Draw a line through points."""
        path = ' '.join(f'{x:g},{y:g}' for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ''
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="{width:g}"{dashed}/>'
        )

    def arrow(self, points, colour=INK, width=1.5, dashes='', both=False):
        """Draw a line with a head at its end, or at both ends."""
        self.line(points, colour, width, dashes)
        ends = [(points[-2], points[-1])]
        if both:
            ends.append((points[1], points[0]))
        for (x0, y0), (x, y) in ends:
            length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5 or 1
            dx, dy = (x - x0) / length * 8, (y - y0) / length * 8
            corners = (
                (x, y),
                (x - dx - dy / 2, y - dy + dx / 2),
                (x - dx + dy / 2, y - dy - dx / 2),
            )
            path = ' '.join(f'{cx:.1f},{cy:.1f}' for cx, cy in corners)
            self._parts.append(f'<polygon points="{path}" fill="{colour}"/>')

    def box(self, x, y, width, height, words, colour=GREY, size=13):
        """Draw a box with a bold first line and further lines, centred."""
        self.rect(x, y, width, height, colour)
        lines = words.split('\n')
        top = y + height / 2 - (len(lines) - 1) * size * 0.65 + size * 0.36
        self.text(
            x + width / 2, top, lines[0], size, anchor='middle', bold=True
        )
        if lines[1:]:
            self.text(
                x + width / 2,
                top + size * 1.3,
                '\n'.join(lines[1:]),
                size - 1,
                anchor='middle',
            )

    def document(self):
        """Return the picture as text of an SVG file."""
        return '\n'.join([*self._parts, '</svg>', ''])
