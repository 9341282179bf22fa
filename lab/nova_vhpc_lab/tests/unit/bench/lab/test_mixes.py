# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of the mixes of guests."""

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import mixes
from nova_vhpc_lab.testbed import errors, parallel_programs


class MixesTest(base.TestCase):
    def test_documented_mixes_exist(self):
        for name in ('alone', 'clusters', 'hogs', 'web', 'phased'):
            self.assertIn(name, mixes.MIXES)

    def test_guests_that_opted_in_are_parallel_or_latency_guests(self):
        for mix in mixes.MIXES.values():
            for guest in mix.guests:
                workload = (guest.extra_specs or {}).get('vhpc:workload')
                self.assertEqual(guest.parallel, workload == 'parallel')
                self.assertIn(workload, (None, 'parallel', 'latency'))

    def test_slice_policies_have_mixes_on_which_they_can_act(self):
        # They need quotas, and vslicer a latency guest.
        opted_in = [
            guest
            for name in ('quota', 'quota-hogs', 'quota-latency')
            for guest in mixes.MIXES[name].guests
            if guest.extra_specs is not None
        ]
        for guest in opted_in:
            self.assertEqual(50_000, guest.quota_us)
        workloads = {one.extra_specs['vhpc:workload'] for one in opted_in}
        self.assertEqual({'parallel', 'latency'}, workloads)

    def test_overcommitted_mixes_have_more_vcpus_than_two_cpus(self):
        for mix in mixes.MIXES.values():
            vcpus = sum(guest.vcpus for guest in mix.guests)
            self.assertEqual(mix.overcommitted, vcpus > 2, mix.name)

    def test_only_clusters_that_wait_at_barriers_run_programs(self):
        mix = mixes.with_library(mixes.MIXES['hogs'], 'mpich', 200)
        self.assertEqual('hogs-mpich-200us', mix.name)
        self.assertEqual(
            ['mpich', 'mpich', 'hog', 'hog'],
            [one.workload for one in mix.guests],
        )
        # The kernel of a guest with less memory panics on the larger image.
        self.assertEqual(
            {parallel_programs.MEMORY_MIB},
            {one.memory_mib for one in mix.guests},
        )
        self.assertRaisesRegex(
            errors.LabError,
            'the mix network has no cluster that could run mpich',
            *(mixes.with_library, mixes.MIXES['network'], 'mpich', 200),
        )
