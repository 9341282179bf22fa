# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What is kept of the runs of one cluster."""

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.network import matrix
from nova_vhpc_lab.testbed import errors


class MeasuredTest(base.TestCase):
    def test_dropped_configuration_keeps_its_error_and_no_runs(self):
        measured = matrix.Measured()
        for runs in (measured.runs, measured.with_spare):
            runs.update({'shared': [{}], 'separate': [{}]})
        measured.drop('shared', errors.LabError('unreachable'))
        self.assertEqual({'shared': 'unreachable'}, measured.failures)
        self.assertEqual(['separate'], list(measured.runs))
        self.assertEqual(['separate'], list(measured.with_spare))


class TermsTest(base.TestCase):
    def set_cpus(self, cpus):
        self.useFixture(
            fixtures.MonkeyPatch('os.sched_getaffinity', lambda pid: cpus)
        )

    def test_spare_cpu_is_the_last_one(self):
        self.set_cpus({5, 2, 3})
        _, with_spare, without = matrix.all_terms(50.0, 0.1, True)
        for terms in (with_spare, without):
            self.assertEqual((2, 3), terms.cpus.guests)
        self.assertEqual((5,), with_spare.cpus.packets)
        self.assertEqual((2, 3), without.cpus.packets)

    def test_kernel_chooses_cpus_otherwise(self):
        (terms,) = matrix.all_terms(50.0, 0.1, False)
        self.assertIsNone(terms.cpus)

    def test_single_cpu_has_none_to_spare(self):
        self.set_cpus({0})
        self.assertRaises(errors.LabError, matrix.all_terms, 50.0, 0.1, True)
