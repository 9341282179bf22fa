# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
import unittest
from collections import Counter

from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.cloud import npc09, placing


class CasesTest(unittest.TestCase):
    def test_each_kind_begins_with_a_vcpu_per_cpu_and_doubles(self):
        by_kind = {}
        for case in npc09.cases():
            by_kind.setdefault(case.kind, set()).add(case.overcommit)
        self.assertEqual({*npc09.PARADIGMS}, by_kind.keys())
        for ratios in by_kind.values():
            self.assertEqual((1.0, 2.0), (min(ratios), max(ratios)))

    def test_names_differ(self):
        names = Counter(case.name for case in npc09.cases())
        self.assertEqual(1, max(names.values()))

    def test_cluster_has_the_vcpus_on_its_one_host(self):
        for case in npc09.cases():
            spec = case.spec()
            (job,) = spec.jobs
            self.assertTrue(job.is_cluster)
            self.assertEqual(case.vcpus, job.vcpus * job.members)
            placed = placing.place(spec, 1)
            self.assertEqual({}, placed.refused)
            self.assertEqual({0}, {*placed.hosts.values()})

    def test_members_are_as_wide_as_the_kind_says(self):
        widths = {
            case.kind: case.spec().jobs[0].vcpus
            for case in npc09.cases()
            if case.vcpus == npc09.MOST_VCPUS
        }
        self.assertEqual({'threads': 8, 'processes': 1, 'hybrid': 2}, widths)

    def test_only_threads_of_lu_spin(self):
        for case in npc09.cases():
            (job,) = case.spec().jobs
            spins = isinstance(job.program, programs.Spin)
            expected = case.program == 'lu' and case.kind != 'processes'
            self.assertEqual(expected, spins, case.name)

    def test_cost_model_has_the_papers_speedups_at_six_vcpus(self):
        """Section 4.2: LU, "more than 1.5" and "less than 0.5"."""
        speedups = {
            kind: npc09.Case('lu', kind, 6).model_speedup()
            for kind in npc09.PARADIGMS
        }
        self.assertAlmostEqual(0.5, speedups['threads'])
        self.assertAlmostEqual(1.5, speedups['processes'], delta=0.02)
        self.assertAlmostEqual(0.5, speedups['hybrid'])
