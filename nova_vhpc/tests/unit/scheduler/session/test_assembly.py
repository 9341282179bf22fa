# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Building and planning the request that weigher and explain share."""

import testtools

from nova_vhpc.scheduler import planner
from nova_vhpc.scheduler.hosts.requirements import of_flavor
from nova_vhpc.scheduler.session import assembly


def plan(members, unknown):
    """Plan on one host of known and one of unknown topology."""
    hosts = [
        planner.HostFacts(name, 4, 0, 4, 65536) for name in ('known', 'other')
    ]
    wanted = of_flavor({'vhpc:max_overcommit': '1'}, 1)
    cluster = assembly.Cluster(wanted, ram_mb=0, members=members)
    return assembly.make_plan(cluster, hosts, unknown).placement


class PlanRequestTest(testtools.TestCase):
    """Two hosts for four members each."""

    def test_hosts_of_unknown_topology_stay_empty_while_others_suffice(self):
        self.assertEqual({'known': 4}, plan(4, {'other'}).assignments)

    def test_hosts_of_unknown_topology_are_used_if_others_do_not_suffice(self):
        self.assertEqual(
            {'known': 4, 'other': 4}, plan(8, {'other'}).assignments
        )
