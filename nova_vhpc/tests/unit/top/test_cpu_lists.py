# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""CPU sets as short text."""

from nova_vhpc.tests import base
from nova_vhpc.top import cpu_lists


class CpuListsTest(base.TestCase):
    def test_union_of_sixteen_vcpus_is_one_range(self) -> None:
        self.assertEqual('0-15', cpu_lists.union(['0-15'] * 16))
        one_each = [str(cpu) for cpu in range(16)]
        self.assertEqual('0-15', cpu_lists.union(one_each))
        self.assertEqual('0-1,4', cpu_lists.union(['4', '0-1', '4']))
        self.assertEqual('', cpu_lists.union([]))

    def test_union_of_what_is_no_cpu_set_names_it(self) -> None:
        self.assertEqual('? 0-1', cpu_lists.union(['?', '0-1', '?']))

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
                self.assertEqual(fitted, cpu_lists.fit(text, width))

    def test_vcpus_with_equal_sets_are_said_together(self) -> None:
        self.assertEqual('0-3', cpu_lists.by_vcpu(['0-3'] * 4))
        self.assertEqual('-', cpu_lists.by_vcpu([]))
        self.assertEqual(
            'vCPU 0: 3; vCPUs 1-3: 4-7',
            cpu_lists.by_vcpu(['3', '4-7', '4-7', '4-7']),
        )
