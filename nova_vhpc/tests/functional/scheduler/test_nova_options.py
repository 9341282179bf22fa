# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Options of nova-scheduler that change which of the best hosts it takes."""

import collections

from nova_vhpc.tests import long
from nova_vhpc.tests.functional.scheduler import base


class ChoiceOfHostCase(base.SchedulerTestCase):
    """Four free hosts, each of which has room for the whole cluster."""

    def setUp(self):
        super().setUp()
        hosts = ('a1', 'b2', 'c3', 'd4')
        self.start_hosts(*hosts)
        for host in hosts:
            self.publish(host, base.shared('br1', 'eth1', slots=4))
        self.flavor_id = self.flavor(base.SHARED)

    def hosts_of_a_cluster(self, **options):
        """Boot four members with options of ``[filter_scheduler]``."""
        self.flags(group='filter_scheduler', **options)
        servers = self.boot_cluster(self.flavor_id, 4, self.group())
        hosts = collections.Counter(self.hosts_of(servers))
        for server in servers:
            self._delete_server(server)
        return sorted(hosts.values())


class ChoiceOfHostTest(ChoiceOfHostCase):
    """Nova takes one of several hosts by chance."""

    def test_members_follow_the_plan(self):
        # By chance alone, all four fall on the same host 1 time in 27.
        for size in long.long((3, 9), (2, 3, 3, 9)):
            with self.subTest(size=size):
                self.assertEqual(
                    [4], self.hosts_of_a_cluster(host_subset_size=size)
                )

        for more in ({}, {'host_subset_size': 3}):
            with self.subTest('best hosts are shuffled', **more):
                self.assertEqual(
                    [4],
                    self.hosts_of_a_cluster(
                        shuffle_best_same_weighed_hosts=True, **more
                    ),
                )


class UntrackedInstancesTest(ChoiceOfHostCase):
    """nova-scheduler asks the cells which servers each host has."""

    def setUp(self):
        # Read when the scheduler starts.
        self.flags(group='filter_scheduler', track_instance_changes=False)
        super().setUp()

    def test_later_member_goes_to_the_host_of_the_others(self):
        group = self.group()
        first = self.boot_cluster(self.flavor_id, 2, group)
        servers = self.boot_cluster(self.flavor_id, 1, group)
        self.assertEqual(3, len(servers))
        self.assertEqual(
            set(self.hosts_of(first)), set(self.hosts_of(servers))
        )
