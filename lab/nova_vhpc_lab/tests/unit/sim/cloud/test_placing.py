# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import unittest
from collections import Counter

from nova_vhpc.control import model
from nova_vhpc_lab.sim import programs
from nova_vhpc_lab.sim.cloud import placing, scenarios
from nova_vhpc_lab.sim.cloud.spec import CloudSpec, HostKind, Job, equal_hosts

SPIN = programs.Spin(1_000.0)


class PlaceTest(unittest.TestCase):
    def test_table_i_fills_all_hosts(self):
        spec = scenarios.atc_b(1)
        placed = placing.place(spec, 1)
        self.assertEqual({}, placed.refused)
        self.assertEqual(
            dict.fromkeys(range(32), 4), Counter(placed.hosts.values())
        )

    def test_group_policy_reaches_the_planner(self):
        spec = dataclasses.replace(
            scenarios.atc_b(1), group_policy='soft-anti-affinity'
        )
        placed = placing.place(spec, 1)
        largest = {placed.hosts[f'VC1.{n}'] for n in range(1, 33)}
        self.assertEqual(32, len(largest))

    def test_order_of_arrival_follows_the_seed(self):
        spec = scenarios.atc_b(1)
        first, again, other = (placing.place(spec, seed) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_cluster_without_room_is_refused_with_a_reason(self):
        spec = CloudSpec(
            'full',
            equal_hosts(2, 4),
            (Job('fits', 'spins', SPIN, 4, 2), Job('large', 's', SPIN, 4, 3)),
            overcommit=1.0,
        )
        # Whichever comes first, the other finds too little room.
        placed = placing.place(spec, 1)
        self.assertIn('large', placed.refused)
        self.assertTrue(placed.refused['large'])
        self.assertEqual({'fits.1', 'fits.2'}, placed.hosts.keys())

    def test_ram_limits_single_vms(self):
        hosts = (HostKind('small', 8, ram_mb=10), HostKind('big', 8, 100))
        jobs = tuple(
            Job(
                f'v{number}',
                'busy',
                programs.Run(),
                1,
                ram_mb=40,
                workload=model.Workload.GENERAL,
            )
            for number in range(3)
        )
        placed = placing.place(CloudSpec('ram', hosts, jobs), 1)
        self.assertEqual([1, 1], list(placed.hosts.values()))
        self.assertEqual(1, len(placed.refused))

    def test_alone_no_vcpu_shares_a_cpu(self):
        job = Job('c', 'spins', SPIN, 3, 5)
        spec, placement = placing.alone(
            job, CloudSpec('any', equal_hosts(1, 8), ())
        )
        self.assertEqual(3, len(spec.hosts))
        self.assertEqual(2, max(Counter(placement.values()).values()))

    def test_alone_a_vm_wider_than_the_hosts_gets_a_host_as_wide(self):
        spec, _ = placing.alone(
            Job('wide', 'spins', SPIN, 7),
            CloudSpec('any', equal_hosts(1, 4), ()),
        )
        self.assertEqual([7], [host.cpus for host in spec.hosts])
