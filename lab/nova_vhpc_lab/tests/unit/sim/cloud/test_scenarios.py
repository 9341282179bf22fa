# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
import unittest

from nova_vhpc_lab.sim.cloud import scenarios


class ScenariosTest(unittest.TestCase):
    def test_atc_b_has_the_clusters_of_table_i(self):
        spec = scenarios.atc_b(1)
        sizes = [job.members for job in spec.jobs if job.is_cluster]
        self.assertEqual([32, 16, 16, 8, 8, 8, 4, 2, 2, 2], sizes)
        self.assertEqual(30, sum(not job.is_cluster for job in spec.jobs))
        self.assertEqual({'lu', 'is'}, {j.kind for j in spec.jobs[10:]})

    def test_more_hosts_have_as_many_times_the_clusters(self):
        spec = scenarios.atc_b(1, 64)
        self.assertEqual(20, sum(job.is_cluster for job in spec.jobs))
        self.assertEqual(256, sum(job.members for job in spec.jobs))

    def test_few_hosts_have_smaller_clusters(self):
        spec = scenarios.atc_b(1, 8)
        self.assertEqual(32, sum(job.members for job in spec.jobs))
        self.assertEqual(8, spec.jobs[0].members)

    def test_other_programs_do_not_opt_in_as_parallel(self):
        spec = scenarios.atc_mixed(1)
        others = [job for job in spec.jobs if job.kind in scenarios.OTHERS]
        self.assertEqual({*scenarios.OTHERS}, {job.kind for job in others})
        self.assertFalse(any(job.is_parallel for job in others))

    def test_atc_a_has_a_vm_of_each_cluster_on_each_host(self):
        spec = scenarios.atc_a('sp', 4)
        self.assertEqual([4] * 4, [job.members for job in spec.jobs])
        self.assertEqual(4, len(spec.hosts))
