# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Write the pictures of README and documentation.

``python doc/pictures`` writes all of them; ``--check`` writes none, and ends
with 1 if a file differs from what would be written.
"""

import argparse
import pathlib
import sys

import gains
import gang_windows
import how_it_works
import network_speed
import networks
import papers
import phases
import slots

FOLDER = pathlib.Path(__file__).parents[1] / 'source/_pictures'

PICTURES = {
    'how-it-works': how_it_works.draw,
    'gains': gains.draw,
    'gang-windows': gang_windows.draw,
    'slots': slots.draw,
    'phases': phases.draw,
    'papers': papers.draw,
    'network-speed': network_speed.draw,
    **networks.PICTURES,
}
"""Functions that return the text of an SVG file, by its name."""


def main():
    """Write or check the pictures, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--check', action='store_true', help='only name files that differ'
    )
    check = parser.parse_args().check
    wanted = {f'{name}.svg': draw() for name, draw in PICTURES.items()}
    files = {path.name: path.read_text() for path in FOLDER.glob('*.svg')}
    old = sorted(
        name
        for name in {*wanted, *files}
        if wanted.get(name) != files.get(name)
    )
    for name in old:
        if check:
            print(f'{FOLDER / name}: python doc/pictures would change it')
        elif name in wanted:
            (FOLDER / name).write_text(wanted[name])
        else:
            (FOLDER / name).unlink()
    return 1 if old and check else 0


if __name__ == '__main__':
    sys.exit(main())
