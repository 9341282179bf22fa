# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values of the paper beside measured ones."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import paper


class TableTest(base.TestCase):
    def value(self, number, *row):
        table = next(one for one in paper.TABLES if one.number == number)
        return table.value(*row)

    def test_value_is_that_of_the_papers_cell(self):
        self.assertEqual(142, self.value('3', 'openmpi', 'separate', 4))
        self.assertEqual(1804, self.value('5', 'openmpi', 'native', 2))

    def test_mpich_has_a_native_row_of_its_own(self):
        self.assertEqual(366, self.value('3', 'mpich-ucx', 'native', 4))
        self.assertEqual(397, self.value('3', 'openmpi', 'native', 4))
        # The paper says that the others are as with Open MPI.
        self.assertEqual(142, self.value('3', 'mpich-ofi', 'separate', 4))

    def test_what_the_paper_did_not_measure_has_no_value(self):
        self.assertIsNone(self.value('3', 'openmpi', 'shared-separate', 1))
        self.assertIsNone(self.value('5', 'openmpi', 'native', 3))


class RelativeTimesTest(base.TestCase):
    def test_native_is_one(self):
        times = paper.relative_times(
            {
                'native': {'alltoall_ms': 20.0, 'keys_ms': 10.0},
                'shared': {'alltoall_ms': 90.0},
            }
        )
        self.assertEqual(
            {
                'alltoall': {'native': 1.0, 'shared': 4.5},
                'keys': {'native': 1.0},
            },
            times,
        )

    def test_without_native_there_are_none(self):
        self.assertEqual(
            {}, paper.relative_times({'shared': {'keys_ms': 1.0}})
        )
