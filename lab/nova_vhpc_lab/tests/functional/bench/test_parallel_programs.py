# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Guests run programs of real MPI and OpenMP libraries."""

import collections
import statistics

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import mixes
from nova_vhpc_lab.bench.lab.guest_set import GuestSet
from nova_vhpc_lab.testbed import image, parallel_programs


class TestProgramsThatNap(base.TestCase):
    """Three guests of two vCPUs share two CPUs, one of each library."""

    def test_programs_progress_in_both_modes_and_more_with_naps(self):
        clusters = mixes.MIXES['clusters']
        mix = mixes.Mix(
            'test',
            'one cluster of each library',
            tuple(
                mixes.with_library(clusters, library, 1000).guests[number]
                for number, library in enumerate(parallel_programs.LIBRARIES)
            ),
        )
        shipped, napping = collections.Counter(), collections.Counter()
        with GuestSet(mix, image.build_image(parallel=True)) as guest_set:
            for _ in range(3):
                shipped.update(guest_set.measure(1.5))
                with guest_set.napping():
                    napping.update(guest_set.measure(1.5))
        for one in mix.guests:
            self.assertGreater(shipped[one.name], 0, one.workload)
            self.assertGreater(napping[one.name], 0, one.workload)
        gains = [napping[name] / shipped[name] for name in shipped]
        self.assertGreater(statistics.geometric_mean(gains), 1)
