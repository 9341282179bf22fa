# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""CPU sets as Nova writes them."""

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_vhpc.linux import cpus


class TestCpus(base.BaseTestCase):
    def test_cpu_set_in_nova_syntax_is_parsed(self) -> None:
        for text, expected in (
            ('0', {0}),
            ('0-3', {0, 1, 2, 3}),
            ('0-3,^1', {0, 2, 3}),
            (' 4 , 2-3 ,', {2, 3, 4}),
            ('^2,0-2', {0, 1}),
        ):
            self.assertEqual(expected, cpus.parse_cpu_set(text), text)

    def test_malformed_cpu_set_is_refused(self) -> None:
        for text in (
            *('', 'a', '3-1', '1-', '-1', '^1-2,0-3', '0,^0', '1--2'),
            # The valid part does not make the whole valid.
            '0,3-1',
        ):
            self.assertRaises(ValueError, cpus.parse_cpu_set, text)

    def test_cpu_number_beyond_the_maximum_is_refused(self) -> None:
        """A set of that size would not fit into memory."""
        for text in ('0-99999999999', f'^{cpus.MOST_CPUS}', '9' * 1000):
            self.assertRaises(ValueError, cpus.parse_cpu_set, text)
        self.assertEqual(8192, len(cpus.parse_cpu_set('0-8191')))

    @hypothesis.given(strategies.sets(strategies.integers(0, 300), min_size=1))
    def test_formatted_cpu_set_parses_to_the_same_cpus(
        self, numbers: set[int]
    ) -> None:
        self.assertEqual(
            numbers, cpus.parse_cpu_set(cpus.format_cpu_set(numbers))
        )
