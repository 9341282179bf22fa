# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Hosts that members of a virtual cluster get: plan, peers, multipliers."""

import threading
import time

import fixtures
from nova.virt import fake

from nova_vhpc.scheduler.sources import uplink_cache
from nova_vhpc.tests.functional.scheduler import base
from nova_vhpc_lab.testbed.patience import PATIENCE_S


class PlanTest(base.SchedulerTestCase):
    """Four hosts at two switches, of which one can hold a whole cluster."""

    def setUp(self):
        super().setUp()
        self.start_hosts('a1', 'b1', 'a2', 'b2')
        for switch, hosts in (('a', ('a1', 'a2')), ('b', ('b1', 'b2'))):
            aggregate = self.api.post_aggregate(
                {'aggregate': {'name': switch}}
            )['id']
            for host in hosts:
                self.api.add_host_to_aggregate(aggregate, host)
            self.api.post_aggregate_action(
                aggregate,
                {
                    'set_metadata': {
                        'metadata': {
                            'vhpc:switch': switch,
                            'vhpc:rack': 'the-only-one',
                        }
                    }
                },
            )

    def publish_separate(self, **slots):
        for host, count in slots.items():
            self.publish(
                host,
                *(
                    base.separate(f'br{number}', f'eth{number}')
                    for number in range(count)
                ),
            )

    def test_cluster_is_placed_at_one_switch(self):
        self.publish_separate(a1=3, b1=2, a2=1, b2=2)
        servers = self.boot_cluster(
            self.flavor(base.SEPARATE),
            4,
            self.group('anti-affinity', max_server_per_host=2),
        )
        # With at most two members per host, a1 and a2 hold three, although
        # a1 has the most uplinks; b1 and b2 hold all four.
        self.assertEqual(['b1', 'b1', 'b2', 'b2'], self.hosts_of(servers))

    def test_later_member_is_placed_near_the_first(self):
        self.publish_separate(a1=2, b1=2, a2=2, b2=2)
        group = self.group('anti-affinity')
        flavor_id = self.flavor(base.SEPARATE)
        (first,) = self.boot_cluster(flavor_id, 1, group)
        host = first['OS-EXT-SRV-ATTR:host']
        late = self.boot_cluster(flavor_id, 1, group)
        (second,) = (s for s in late if s['id'] != first['id'])
        self.assertEqual(host[0], second['OS-EXT-SRV-ATTR:host'][0])

    def test_later_member_goes_near_a_member_that_still_starts(self):
        self.publish_separate(a1=2, b1=2, a2=2, b2=2)
        for _ in range(2):
            # From the second server on, nova-scheduler relies on the instances
            # that nova-compute reports.
            self._create_server(host='b1', networks='none')
        manager = self.scheduler_service.manager
        known = manager.host_manager._instance_info['b1']
        group = self.group('anti-affinity')
        flavor_id = self.flavor(base.SEPARATE)
        started = threading.Event()
        self.addCleanup(started.set)
        spawn = fake.FakeDriver.spawn

        def slow(driver, *args, **kwargs):
            started.wait(PATIENCE_S)
            return spawn(driver, *args, **kwargs)

        self.useFixture(
            fixtures.MonkeyPatch('nova.virt.fake.FakeDriver.spawn', slow)
        )
        hosts = []
        for where in ({'host': 'b1'}, {}):
            server = self._build_server(
                name='slow', flavor_id=flavor_id, networks='none', **where
            )
            made = self.api.post_server(
                {'server': server, 'os:scheduler_hints': {'group': group}}
            )
            hosts.append(self._wait_for_host(made['id']))
            # The scheduler's other workers do not know this instance yet.
            known['instances'].pop(made['id'], None)
        started.set()
        self.assertEqual(['b1', 'b2'], hosts)

    def _wait_for_host(self, server_id):
        hosts = []

        def assert_host():
            server = self.api.get_server(server_id)
            hosts.append(server['OS-EXT-SRV-ATTR:host'])
            self.assertIsNotNone(hosts[-1])

        self._wait_for_assert(assert_host)
        return hosts[-1]

    def test_affinity_keeps_the_cluster_on_one_host(self):
        self.publish_separate(a1=2, b1=3, a2=2, b2=2)
        servers = self.boot_cluster(
            self.flavor(base.SEPARATE), 3, self.group('affinity')
        )
        self.assertEqual(['b1'] * 3, self.hosts_of(servers))

    def test_affinity_members_booted_one_by_one_share_a_host(self):
        """The first member is placed alone; later ones must join its host."""
        # A best fit, by which whole clusters are placed, would choose the
        # fuller a1.
        self._create_server(host='a1', networks='none')
        self.publish_separate(a1=1, b1=3, a2=2, b2=2)
        group = self.group('affinity')
        flavor_id = self.flavor(base.SEPARATE)
        for number in range(1, 4):
            servers = self.boot_cluster(flavor_id, 1, group)
            self.assertEqual(['b1'] * number, self.hosts_of(servers))

    def boot_one_by_one(self, members, **hints):
        """Boot members by one request each, and return their hosts, sorted."""
        self.publish_separate(a1=2, b1=3, a2=2)
        hints['group'] = self.group()
        flavor_id = self.flavor(base.SEPARATE)
        servers = []
        for number in range(members):
            server = self._build_server(
                name=f'single{number}', flavor_id=flavor_id, networks='none'
            )
            made = self.api.post_server(
                {'server': server, 'os:scheduler_hints': hints}
            )
            servers.append(self._wait_for_state_change(made, 'ACTIVE'))
        return self.hosts_of(servers)

    def test_members_booted_one_by_one_fill_the_largest_host(self):
        hosts = self.boot_one_by_one(4)
        self.assertEqual(['b1', 'b1', 'b1'], hosts[1:])

    def test_members_booted_one_by_one_with_hint_share_a_switch(self):
        # JSON has it as a number (Heat) or as text (Terraform, the CLI).
        hosts = self.boot_one_by_one(4, vhpc_members=4)
        self.assertEqual(['a1', 'a1', 'a2', 'a2'], hosts)

    def test_aggregates_multiplier_overrides_the_option(self):
        self.publish_separate(a1=1, b1=1, a2=1, b2=1)
        (aggregate,) = (
            found
            for found in self.api.api_get('/os-aggregates').body['aggregates']
            if found['name'] == 'a'
        )
        self.api.post_aggregate_action(
            aggregate['id'],
            {'set_metadata': {'metadata': {'vhpc_weight_multiplier': '-9'}}},
        )
        servers = self.boot_cluster(self.flavor(base.SEPARATE), 2)
        self.assertEqual(['b1', 'b2'], self.hosts_of(servers))


class ReservedTest(base.SchedulerTestCase):
    """Placement offers less of a host than Nova reports of it."""

    def setUp(self):
        super().setUp()
        self.flags(cpu_allocation_ratio=1.0)

    def start(self, resource, left=None, **changes):
        """Start a host with enough capacity, and one that only seems to have.

        :param resource: resource class that is short on the latter.
        :param left: amount left of the resource; the rest is reserved.
        :param changes: changes of the resource's inventory in Placement.
        """
        self.start_hosts('roomy', 'tight')
        # Of equally good hosts the fuller one would win: the wrong one here.
        self._create_server(host='tight', networks='none')
        # Set in Placement, because all hosts here share one configuration.
        root = self._get_provider_uuid_by_host('tight')
        inventories = self._get_provider_inventory(root)
        inventory = inventories[resource]
        if left is not None:
            used = self._get_provider_usages(root)[resource]
            inventory['reserved'] = inventory['total'] - used - left
        inventory.update(changes)
        self._inventory(root, inventories)
        for host in ('roomy', 'tight'):
            self.publish(host)

    def assert_roomy(self, members, **flavor):
        flavor_id = self.flavor({'vhpc:workload': 'parallel'}, **flavor)
        servers = self.boot_cluster(flavor_id, members, self.group('affinity'))
        self.assertEqual(['roomy'] * members, self.hosts_of(servers))

    def test_reserved_cpus_are_left_out_of_the_plan(self):
        self.start('VCPU', reserved=2)
        self.assert_roomy(4, vcpu=2)

    def test_plan_uses_placements_ram_allocation_ratio(self):
        self.start('MEMORY_MB', allocation_ratio=0.5)
        self.assert_roomy(4, memory_mb=1024)

    def test_reserved_disk_is_left_out_of_the_plan(self):
        # A member of these tests needs 11 GB.
        self.start('DISK_GB', left=40)
        self.assert_roomy(4)

    def test_reserved_cpus_are_not_counted_twice(self):
        # nova-compute reports reserved CPUs as used; Placement excludes them.
        self.flags(reserved_host_cpus=3)
        # Without a plan, the host with more free RAM would win.
        self.flags(group='filter_scheduler', ram_weight_multiplier=9.0)
        self.start_hosts('roomy', 'tight')
        for host, vcpu, memory_mb in (('roomy', 1, 4096), ('tight', 2, 64)):
            flavor_id = self.flavor({}, vcpu=vcpu, memory_mb=memory_mb)
            self._create_server(
                flavor_id=flavor_id, host=host, networks='none'
            )
            self.publish(host)
        # Six of roomy's ten CPUs are free, and five of tight's.
        self.assert_roomy(3, vcpu=2)


class UnknownTopologyTest(base.SchedulerTestCase):
    """Hosts whose uplinks were never published, or long ago."""

    def setUp(self):
        super().setUp()
        self.start_hosts('dark', 'known', 'stale')
        self.uplink = base.shared('br1', 'eth1')
        self.publish('known', self.uplink)
        self.publish('stale', self.uplink, stamp_s=time.time() - 7200)
        # Placement would accept any of the hosts, because nothing is claimed.
        self.flavor_id = self.flavor({'vhpc:network': 'shared'})

    def test_hosts_of_unknown_topology_are_rejected_by_default(self):
        servers = self.boot_cluster(self.flavor_id, 5)
        self.assertEqual(['known'] * 5, self.hosts_of(servers))

    def test_allowed_hosts_of_unknown_topology_come_last(self):
        self.flags(group='vhpc_scheduler', unknown_topology='allow')
        servers = self.boot_cluster(self.flavor_id, 5)
        self.assertEqual(['known'] * 5, self.hosts_of(servers))
        services = self.api.get_services(binary='nova-compute', host='known')
        self.api.put_service(services[0]['id'], {'status': 'disabled'})
        (server,) = (
            s
            for s in self.boot_cluster(self.flavor_id, 1)
            if s['id'] not in {one['id'] for one in servers}
        )
        self.assertIn(server['OS-EXT-SRV-ATTR:host'], ('dark', 'stale'))

    def test_members_are_placed_until_the_snapshot_is_too_old(self):
        cache = uplink_cache.for_process(self._conf())
        good = cache._get
        calls = []

        def away(path, version):
            calls.append(path)
            raise ConnectionError('connection refused')

        log = self.useFixture(
            fixtures.FakeLogger('nova_vhpc.scheduler', nuke_handlers=False)
        )
        self.flags(group='vhpc_scheduler', snapshot_ttl=1)
        cache.snapshot()
        cache._get = away
        cache.expire()
        self._wait_for_assert(lambda: self.assertLess(1, len(calls)))
        # The last snapshot is young enough.
        (first,) = self.boot_cluster(self.flavor_id, 1)
        self.assertEqual('ACTIVE', first['status'])
        # Now it is too old.
        self.flags(group='vhpc_scheduler', snapshot_max_age=1)
        server = self._create_server(
            name='late',
            flavor_id=self.flavor_id,
            networks='none',
            expected_state='ERROR',
        )
        self.assertIn('No valid host', server['fault']['message'])
        self.assertIn('connection refused', log.output)
        self.assertIn('snapshot_max_age is 1 s', log.output)
        # One line per change of state, however often it fails.
        self.assertEqual(1, log.output.count('Cannot read the uplinks'))
        cache._get = good
        cache.expire()
        self._wait_for_assert(lambda: self.assertIn('works again', log.output))
        server = self._create_server(
            name='again', flavor_id=self.flavor_id, networks='none'
        )
        self.assertEqual('known', server['OS-EXT-SRV-ATTR:host'])
