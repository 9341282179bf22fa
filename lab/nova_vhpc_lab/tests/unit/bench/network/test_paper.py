# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Values of the paper beside measured ones."""

import itertools

from nova_vhpc.scheduler.planner import cost
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


MEASURED = ('exported', 'separate', 'shared')


class CostModelTest(base.TestCase):
    """The cost model orders configurations as tables it was not made from."""

    def models(self, pairs):
        """Return the model's bandwidths to other hosts and on one host."""
        return (
            {n: pairs * cost.remote_mb_s(n, pairs, pairs) for n in MEASURED},
            {n: pairs * cost.local_mb_s(n, 2 * pairs) for n in MEASURED},
        )

    def test_ping_pong_has_the_same_winner_and_order(self):
        for pairs in (1, 2, 3, 4):
            with self.subTest(pairs=pairs):
                ours, _ = self.models(pairs)
                row = {n: paper.PING_PONG_MB_S[n][pairs - 1] for n in MEASURED}
                self.assertEqual(
                    max(row, key=row.get), max(ours, key=ours.get)
                )
                if pairs > 1:
                    self.assertEqual(
                        sorted(row, key=row.get), sorted(ours, key=ours.get)
                    )

    def test_both_directions_have_the_order_of_one(self):
        table = paper.REMOTE_BIDIRECTIONAL_MB_S
        for pairs in (1, 2, 3, 4):
            ours, _ = self.models(pairs)
            for one, other in itertools.permutations(MEASURED, 2):
                if table[one][pairs - 1] > 1.05 * table[other][pairs - 1]:
                    with self.subTest(pairs=pairs, one=one, other=other):
                        self.assertGreater(ours[one], ours[other])

    def test_on_one_host_both_directions_have_the_same_winner(self):
        # With one pair, separate and exported are within 4% of each other and
        # in the other order there.
        for pairs in (1, 2):
            _, ours = self.models(pairs)
            row = {
                n: paper.LOCAL_BIDIRECTIONAL_MB_S[n][pairs - 1]
                for n in MEASURED
            }
            self.assertEqual(max(row, key=row.get), max(ours, key=ours.get))
        self.assertEqual(min(row, key=row.get), min(ours, key=ours.get))
