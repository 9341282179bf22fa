# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The experiments on pools and packets, on real guests."""

import os

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import experiments, runner
from nova_vhpc_lab.bench.lab.guest_set import GuestSet
from nova_vhpc_lab.testbed import image


class TestPackets(base.TestCase):
    """Three guests: two exchange packets, one runs on the other CPU."""

    def test_spare_cpu_experiment_moves_threads_and_measures(self):
        cpus = tuple(sorted(os.sched_getaffinity(0))[:2])
        messages = []
        with GuestSet(
            experiments._PACKETS, image.build_image(), cpus
        ) as guest_set:
            talker = guest_set.guests['p0']
            others = talker.other_threads()
            self.assertIn(talker.pid, others)
            with (
                guest_set.threads_on(('p0',), cpus[0]),
                guest_set.threads_on(('p0',), cpus[1], vcpus=False),
                guest_set.threads_on(('e',), None),
            ):
                self.assert_on({cpus[0]}, talker.vcpu_threads)
                self.assert_on({cpus[1]}, (talker.pid,))
                self.assert_on(set(cpus), guest_set.guests['e'].vcpu_threads)
            self.assert_on(set(cpus), (talker.pid, *talker.vcpu_threads))
            gain, rounds = experiments._spare(
                guest_set,
                runner.Timing(1.0, 1.0, 0.2, max_other_load=9.0),
                1,
                messages.append,
            )
        # Only that it was measured; the lab reports how much it helps.
        self.assertIsNotNone(gain)
        self.assertGreater(gain, 0)
        self.assertEqual(1, len(messages))
        self.assertEqual({'spare', 'none'}, set(rounds['cg']))
        self.assertAlmostEqual(
            gain, rounds['cg']['spare'][0] / rounds['cg']['none'][0], 2
        )

    def assert_on(self, cpus, threads):
        for thread in threads:
            self.assertEqual(cpus, os.sched_getaffinity(thread))
