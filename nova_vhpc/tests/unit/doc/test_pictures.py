# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pictures are current, named where they are used, and can be read."""

import itertools
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import fixtures
import matplotlib
from PIL import ImageFont

from nova_vhpc.cli import top
from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
FOLDER = TOP / 'doc/source/_pictures'
NAMED = re.compile(r'^ *\.\. (?:figure|image):: (\S+)\n((?: +\S.*\n)*)', re.M)
SVG = '{http://www.w3.org/2000/svg}'
FONTS = pathlib.Path(matplotlib.get_data_path(), 'fonts/ttf')
LEAST_SIZE = 11
"""Smallest letters, in pixels, at the width of 800."""


def pages():
    """README and the pages of the docs."""
    return [TOP / 'README.rst', *sorted((TOP / 'doc/source').rglob('*.rst'))]


def file_of(page, name):
    """Return the file that a page means by the name of a picture."""
    if name.startswith('/'):
        return TOP / 'doc/source' / name[1:]
    return page.parent / name


def boxes(root):
    """Return left, top, right and bottom of every text, with the text."""
    found = []
    for text in root.iter(f'{SVG}text'):
        bold = '-Bold' if text.get('font-weight') == 'bold' else ''
        size = float(text.get('font-size'))
        font = ImageFont.truetype(FONTS / f'DejaVuSans{bold}.ttf', size)
        width = font.getlength(text.text)
        x, y = float(text.get('x')), float(text.get('y'))
        left = (
            x
            - width
            * {'start': 0, 'middle': 0.5, 'end': 1}[text.get('text-anchor')]
        )
        # Letters reach below the line by a fifth of their size.
        found.append(
            (left, y - 0.75 * size, left + width, y + 0.2 * size, text.text)
        )
    return found


class PicturesTest(base.TestCase):
    def test_pictures_are_current(self):
        done = subprocess.run(
            [sys.executable, 'doc/pictures', '--check'],
            cwd=TOP,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(
            (0, '', ''), (done.returncode, done.stdout, done.stderr)
        )

    def test_screen_of_top_shows_what_the_agent_answered(self):
        """The picture is Textual's, whose bytes differ between versions."""
        picture = pathlib.Path(self.useFixture(fixtures.TempDir()).join('a'))
        status = TOP / 'doc/pictures/top-status.json'
        words = ('--input', str(status), '--screenshot', str(picture))
        self.assertEqual(0, top.main([*words, '--size', '100x20']))
        shown = FOLDER.joinpath('screenshots/top.svg').read_text()
        for vm in json.loads(status.read_text())['vms']:
            for text in (picture.read_text(), shown):
                self.assertIn(vm['server_name'], text)

    def test_every_picture_that_is_named_exists_and_has_a_text(self):
        used = set()
        for page in pages():
            for name, options in NAMED.findall(page.read_text()):
                file = file_of(page, name)
                self.assertTrue(file.exists(), f'{page}: {name}')
                self.assertIn(':alt: ', options, f'{page}: {name}')
                used.add(file.resolve())
        self.assertEqual(set(), set(FOLDER.glob('*.svg')) - used)

    def test_pictures_have_a_white_background(self):
        for file in FOLDER.glob('*.svg'):
            root = ET.parse(file).getroot()
            first = root.find(f'{SVG}rect')
            self.assertEqual('#ffffff', first.get('fill'), file.name)
            self.assertEqual(
                (root.get('width'), root.get('height')),
                (first.get('width'), first.get('height')),
            )

    def test_letters_are_large_enough_inside_and_apart(self):
        for file in FOLDER.glob('*.svg'):
            root = ET.parse(file).getroot()
            width, height = int(root.get('width')), int(root.get('height'))
            self.assertEqual(800, width)
            for text in root.iter(f'{SVG}text'):
                self.assertGreaterEqual(
                    int(text.get('font-size')), LEAST_SIZE, file.name
                )
            found = boxes(root)
            for left, upper, right, lower, words in found:
                inside = left >= 0 and right <= width
                inside = inside and upper >= 0 and lower <= height
                self.assertTrue(inside, f'{file.name}: {words}')
            for one, two in itertools.combinations(found, 2):
                apart = (
                    one[2] <= two[0]
                    or two[2] <= one[0]
                    or one[3] <= two[1]
                    or two[3] <= one[1]
                )
                self.assertTrue(apart, f'{file.name}: {one[4]} on {two[4]}')
