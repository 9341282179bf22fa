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

from oslotest import base

from nova_vhpc import close_match


class CloseMatchTest(base.BaseTestCase):
    def test_misspelt_word_finds_the_nearest_word(self) -> None:
        found = close_match.find('sepparate', ['shared', 'separate'])
        self.assertEqual('separate', found)

    def test_case_does_not_count(self) -> None:
        self.assertEqual('MPI', close_match.find('mpi', ['OpenMP', 'MPI']))

    def test_word_like_no_other_finds_none(self) -> None:
        self.assertIsNone(close_match.find('x', ['shared', 'separate']))

    def test_hint_writes_the_word_in_the_form(self) -> None:
        hint = close_match.hint('pers', ['peers'], '[{}]')
        self.assertEqual('; did you mean [peers]?', hint)

    def test_hint_of_a_word_like_no_other_is_empty(self) -> None:
        self.assertEqual('', close_match.hint('x', ['peers']))
