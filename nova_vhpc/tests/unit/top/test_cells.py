# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Texts as short as a width."""

from nova_vhpc.tests import base
from nova_vhpc.top import cells


class CpuListsTest(base.TestCase):
    def test_union_of_sixteen_vcpus_is_one_range(self) -> None:
        self.assertEqual('0-15', cells.union_of_pins(['0-15'] * 16))
        one_each = [str(cpu) for cpu in range(16)]
        self.assertEqual('0-15', cells.union_of_pins(one_each))
        self.assertEqual('0-1,4', cells.union_of_pins(['4', '0-1', '4']))
        self.assertEqual('', cells.union_of_pins([]))

    def test_union_of_what_is_no_cpu_set_names_it(self) -> None:
        self.assertEqual('? 0-1', cells.union_of_pins(['?', '0-1', '?']))

    def test_set_is_made_as_short_as_the_width(self) -> None:
        for text, width, fitted in (
            ('0-15', 4, '0-15'),
            ('0,2,4,6,8', 20, '0,2,4,6,8'),
            ('0,2,4,6,8', 8, '0-8:2'),
            ('0,2,4,6,8', 4, '5 C…'),
            ('0-1,4-5,9', 8, '5 CPUs'),
            ('what is it', 5, 'what…'),
        ):
            with self.subTest(text=text, width=width):
                self.assertEqual(fitted, cells.fit_cpu_set(text, width))

    def test_vcpus_with_equal_sets_are_said_together(self) -> None:
        self.assertEqual('0-3', cells.pins_by_vcpu(['0-3'] * 4))
        self.assertEqual('-', cells.pins_by_vcpu([]))
        self.assertEqual(
            'vCPU 0: 3; vCPUs 1-3: 4-7',
            cells.pins_by_vcpu(['3', '4-7', '4-7', '4-7']),
        )


class TextWidthTest(base.TestCase):
    def test_wide_characters_take_two_cells(self) -> None:
        self.assertEqual(4, cells.length('天气'))
        self.assertEqual('天气', cells.shorten('天气', 4))
        self.assertEqual('天…', cells.shorten('天气', 3))
        self.assertEqual('天 ', cells.pad('天', 3, False))
        self.assertEqual(' 天', cells.pad('天', 3, True))

    def test_cut_text_ends_with_an_ellipsis(self) -> None:
        self.assertEqual('ab…', cells.shorten('ab cd', 4))
        self.assertEqual('…', cells.shorten('ab', 1))

    def test_wrapped_text_keeps_all_words_while_lines_are_left(self) -> None:
        for text, width, height, lines in (
            ('', 4, 3, ['']),
            ('ab cd ef', 5, 3, ['ab cd', 'ef']),
            ('ab cd ef', 5, 2, ['ab cd', 'ef']),
            ('ab cd ef gh ij', 5, 2, ['ab cd', 'ef g…']),
            ('/var/lib/x y', 5, 9, ['/var/', 'lib/x', 'y']),
            ('天气 天', 4, 9, ['天气', '天']),
            ('ab cd', 4, 1, ['ab…']),
        ):
            with self.subTest(text, height=height):
                self.assertEqual(lines, cells.wrap(text, width, height))
