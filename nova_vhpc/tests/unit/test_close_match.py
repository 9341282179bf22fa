# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

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
