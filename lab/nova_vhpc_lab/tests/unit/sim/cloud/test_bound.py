# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
import unittest

from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.cloud import bound
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, Job, equal_hosts

SPEC = CloudSpec(
    'two',
    equal_hosts(2, 4),
    (
        Job('c', 'spins', programs.Spin(1_000.0), 4, 2),
        Job('v', 'spins', programs.Spin(1_000.0), 4),
        Job('idle', 'sleeps', programs.Sleep(100, 900), 4),
    ),
)
PLACEMENT = {'c.1': 0, 'c.2': 1, 'v': 0, 'idle': 1}
WANTED = {'c.1': 4.0, 'c.2': 4.0, 'v': 4.0, 'idle': 0.4}


class BoundTest(unittest.TestCase):
    def test_what_one_leaves_is_divided_among_the_others(self):
        fair = bound.fair_cpus(SPEC, PLACEMENT, WANTED)
        self.assertEqual({'c.1': 2.0, 'v': 2.0, 'idle': 0.4, 'c.2': 3.6}, fair)

    def test_cluster_is_held_up_by_its_poorest_member(self):
        parts = bound.parts(SPEC, PLACEMENT, WANTED)
        self.assertEqual({'c': 0.5, 'v': 0.5, 'idle': 1.0}, parts)

    def test_jobs_without_room_have_no_bound(self):
        placement = {'v': 0}
        self.assertEqual({'v': 1.0}, bound.parts(SPEC, placement, WANTED))
