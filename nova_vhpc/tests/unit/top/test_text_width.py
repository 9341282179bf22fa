# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Text in terminal cells."""

from nova_vhpc.tests import base
from nova_vhpc.top import text_width


class TextWidthTest(base.TestCase):
    def test_wide_characters_take_two_cells(self) -> None:
        self.assertEqual(4, text_width.length('天气'))
        self.assertEqual('天气', text_width.shorten('天气', 4))
        self.assertEqual('天…', text_width.shorten('天气', 3))
        self.assertEqual('天 ', text_width.pad('天', 3, False))
        self.assertEqual(' 天', text_width.pad('天', 3, True))

    def test_cut_text_ends_with_an_ellipsis(self) -> None:
        self.assertEqual('ab…', text_width.shorten('ab cd', 4))
        self.assertEqual('…', text_width.shorten('ab', 1))
