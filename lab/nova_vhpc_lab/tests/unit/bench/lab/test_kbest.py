# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of the K-best measurement scheme (NPC'09, section 3)."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import kbest

SCHEME = kbest.KBest(k=2, epsilon=0.02, m=4)


class KBestTest(base.TestCase):
    def test_converged_if_the_k_best_agree(self):
        self.assertTrue(SCHEME.converged([50.0, 99.0, 100.0]))

    def test_not_converged_if_only_lower_values_agree(self):
        self.assertFalse(SCHEME.converged([50.0, 50.1, 100.0]))

    def test_not_converged_with_fewer_than_k_values(self):
        self.assertFalse(SCHEME.converged([100.0]))

    def test_done_after_m_values_without_agreement(self):
        self.assertFalse(SCHEME.done([1.0, 2.0, 4.0]))
        self.assertTrue(SCHEME.done([1.0, 2.0, 4.0, 8.0]))

    def test_best_is_the_mean_of_the_k_best(self):
        self.assertEqual(99.5, SCHEME.best([10.0, 99.0, 100.0]))
        self.assertRaises(ValueError, SCHEME.best, [])
