# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
