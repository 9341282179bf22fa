# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Base classes of the tests of filter and weigher in a real Nova."""

import contextlib
import sys
import time

from nova.tests.functional import integrated_helpers

from nova_vhpc.flavor import recipes
from nova_vhpc.placement import publisher
from nova_vhpc.scheduler.sources import server_groups, uplink_cache
from nova_vhpc.tests.functional import patience
from nova_vhpc.topology import model

FILTER = 'nova_vhpc.scheduler.filters.VirtualClusterFilter'
WEIGHER = 'nova_vhpc.scheduler.weights.VirtualClusterWeigher'

SEPARATE = recipes.recipe({'workload': 'parallel', 'network': 'separate'})
SHARED = recipes.recipe({'workload': 'parallel', 'network': 'shared'})


def shared(bridge, nic, slots=8, mbps=1000, up=True):
    """Return an uplink of a shared bridge."""
    return model.Uplink(
        nic, bridge, model.BridgeKind.SHARED, mbps, up, slots=slots
    )


def separate(bridge, nic, mbps=1000, up=True):
    """Return an uplink for one guest."""
    return model.Uplink(nic, bridge, model.BridgeKind.SEPARATE, mbps, up)


def configure(test, enabled_filters):
    """Configure a test's Nova to load this project's filter and weigher."""
    # pip installs the file under sys.prefix, not beside the code.
    test.flags(
        group='wsgi',
        api_paste_config=sys.prefix + '/etc/nova/api-paste.ini',
    )
    test.flags(
        group='filter_scheduler',
        available_filters=['nova.scheduler.filters.all_filters', FILTER],
        enabled_filters=enabled_filters,
        weight_classes=['nova.scheduler.weights.all_weighers', WEIGHER],
    )
    test.addCleanup(uplink_cache.reset)
    test.addCleanup(server_groups.reset)


class Publishing(integrated_helpers.PlacementInstanceHelperMixin):
    """Publishes uplinks to Placement's API, as the agent does."""

    def publish(self, node, *uplinks, stamp_s=None):
        """Publish a host's uplinks to Placement.

        :param stamp_s: time of the publication, in seconds since the epoch;
            None for now.
        """
        root = self._get_provider_uuid_by_host(node)
        for resource_class in (model.UPLINK, model.MBPS, model.STAMP):
            self.placement.put(
                f'/resource_classes/{resource_class}', None, version='1.7'
            )
        traits = (model.TRAIT_HOST, model.TRAIT_SHARED, model.TRAIT_SEPARATE)
        for trait in traits:
            self.placement.put(f'/traits/{trait}', {}, version='1.6')
        self._trait(root, model.TRAIT_HOST)
        marker = model.marker_uuid(node)
        self._provider(marker, model.marker_name(node), root)
        now_s = time.time() if stamp_s is None else stamp_s
        self._inventory(marker, {model.STAMP: {'total': model.stamp(now_s)}})
        for uplink in uplinks:
            uuid = model.provider_uuid(node, uplink.bridge, uplink.nic)
            self._provider(
                uuid,
                model.provider_name(node, uplink.bridge, uplink.nic),
                root,
            )
            dead = {} if uplink.up else {'reserved': uplink.slots}
            self._inventory(
                uuid,
                {
                    model.UPLINK: {'total': uplink.slots, **dead},
                    model.MBPS: {
                        'total': max(1, uplink.mbps),
                        'reserved': 0 if uplink.up else max(1, uplink.mbps),
                    },
                },
            )
            for trait in publisher.traits(uplink):
                self.placement.put(f'/traits/{trait}', {}, version='1.6')
                self._trait(uuid, trait)
        cache = uplink_cache.for_process(self._conf())
        cache.refresh()

    @staticmethod
    def _conf():
        from nova import conf

        return conf.CONF

    def _provider(self, uuid, name, root):
        answer = self.placement.post(
            '/resource_providers',
            {'uuid': uuid, 'name': name, 'parent_provider_uuid': root},
            version='1.20',
        )
        self.assertIn(answer.status, (200, 409))

    def _inventory(self, uuid, inventories):
        provider = self._get_resource_provider_by_uuid(uuid)
        answer = self.placement.put(
            f'/resource_providers/{uuid}/inventories',
            {
                'resource_provider_generation': provider['generation'],
                'inventories': inventories,
            },
            version='1.26',
        )
        self.assertEqual(200, answer.status, answer.content)

    def _trait(self, uuid, trait):
        traits = set(self._get_provider_traits(uuid))
        self._set_provider_traits(uuid, sorted(traits | {trait}))


class SchedulerTestCase(
    patience.Patience,
    integrated_helpers.ProviderUsageBaseTestCase,
    Publishing,
):
    """Has a real API, conductor, scheduler, Placement; fake hypervisors."""

    compute_driver = 'fake.MediumFakeDriver'

    enabled_filters = [
        'ComputeFilter',
        'ServerGroupAntiAffinityFilter',
        'ServerGroupAffinityFilter',
        'PciPassthroughFilter',
        'VirtualClusterFilter',
    ]

    def setUp(self):
        configure(self, self.enabled_filters)
        super().setUp()

    def start_hosts(self, *names):
        """Start compute services without uplinks."""
        for name in names:
            self._start_compute(name)

    def flavor(self, extra_specs, vcpu=1, memory_mb=256):
        """Create a flavor with extra specs, and return its ID."""
        return self._create_flavor(
            vcpu=vcpu, memory_mb=memory_mb, disk=1, extra_spec=extra_specs
        )

    def group(self, policy='soft-affinity', **rules):
        """Create a server group, and return its ID."""
        body = {'name': 'cluster', 'policy': policy}
        if rules:
            body['rules'] = rules
        return self.api.post_server_groups(body)['id']

    def boot_cluster(
        self,
        flavor_id,
        members,
        group=None,
        expected_state='ACTIVE',
        host=None,
    ):
        """Boot a virtual cluster in one multi-create.

        :param group: ID of its server group.
        :param host: host that the user requests.
        :returns: all servers named "member", as the API lists them.
        """
        server = self._build_server(
            name='member', flavor_id=flavor_id, networks='none'
        )
        server['min_count'] = server['max_count'] = members
        if host is not None:
            server['host'] = host
        request = {'server': server}
        if group is not None:
            request['os:scheduler_hints'] = {'group': group}
        first = self.api.post_server(request)
        servers = [
            server
            for server in self.api.get_servers(detail=False)
            if server['name'].startswith('member')
        ]
        self.assertIn(first['id'], {server['id'] for server in servers})
        return [
            self._wait_for_state_change(
                self.api.get_server(server['id']), expected_state
            )
            for server in servers
        ]

    @contextlib.contextmanager
    def part(self, name):
        """Run a part of a test, and delete the servers that it made.

        Parts share one Nova, whose start takes longer than most of them.
        """
        before = {server['id'] for server in self.api.get_servers()}
        with self.subTest(name):
            yield
        for server in self.api.get_servers():
            if server['id'] not in before:
                self._delete_server(server)

    def claims(self, server):
        """Return the claimed slots of a server, by provider name."""
        claims = {}
        allocations = self._get_allocations_by_server_uuid(server['id'])
        for uuid, allocation in allocations.items():
            slots = allocation['resources'].get(model.UPLINK)
            if slots:
                provider = self._get_resource_provider_by_uuid(uuid)
                claims[provider['name']] = slots
        return claims

    def used(self, node, uplink):
        """Return the number of claimed slots of an uplink."""
        uuid = model.provider_uuid(node, uplink.bridge, uplink.nic)
        return self._get_provider_usages(uuid)[model.UPLINK]

    def hosts_of(self, servers):
        """Return the hosts of servers, one entry per server, sorted."""
        return sorted(server['OS-EXT-SRV-ATTR:host'] for server in servers)
