# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The SVG of a screen."""

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import app, picture
from nova_vhpc.top.sources import Answers, FileSource


class TakeTest(base.TestCase):
    def test_picture_has_the_table_and_no_foreign_fonts(self) -> None:
        top = app.TopApp(FileSource(''), Answers({'': documents.many()}))
        svg = picture.take(top, (100, 30))
        self.assertIn('>wn-0', svg)
        self.assertNotIn('url("http', svg)
        self.assertTrue(svg.startswith('<svg'))


class MendTest(base.TestCase):
    def test_blanks_at_the_start_become_a_place(self) -> None:
        text = (
            '<text x="12.2" y="5" textLength="36.6" c="#">&#160;&#160;a</text>'
        )
        self.assertEqual(
            '<text x="36.6" y="5" textLength="12.2" c="#">a</text>\n',
            picture.mend(text),
        )

    def test_nothing_is_fetched_from_other_sites(self) -> None:
        svg = (
            '<style>@font-face { font-family: "Fira Code"; src: url("u"); }\n'
            '.m { font-family: Fira Code, monospace; }</style>'
        )
        self.assertEqual(
            '<style>.m { font-family: monospace; }</style>\n',
            picture.mend(svg),
        )
