# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Several schedulers race for the same uplinks."""

import collections
import functools
import json
import time

import testtools
from keystoneauth1 import adapter

from nova_vhpc.placement import client, provider_tree, publisher
from nova_vhpc.tests import long
from nova_vhpc.tests.functional.scheduler import boots
from nova_vhpc.topology import model
from nova_vhpc_lab.stack import cloud, config
from nova_vhpc_lab.testbed import patience

HOSTS = ('alpha', 'beta', 'gamma', 'delta')
BOOTS = long.long(100, 200)
UPLINKS = BOOTS // 2 // len(HOSTS)
"""Uplinks of each host, for half of the boots."""
WORKERS = 4
AT_ONCE = 16


class SchedulerCloud(cloud.Cloud):
    """nova-scheduler's workers and the services they need, as processes.

    These are RabbitMQ, MariaDB, Keystone, Placement, nova-conductor, and
    nova-compute with Nova's fake driver. There is no nova-api and no Glance,
    because :mod:`.boots` asks the scheduler.
    """

    def __init__(self):
        super().__init__(HOSTS)
        # Created now, before several threads use it to start services.
        self.keeper  # noqa: B018

    def write_config(self):
        """Configure several workers, and a Placement that can serve them."""
        self.config.write_keystone()
        path = self.config.write_placement() / 'placement.conf'
        parsed = config.read(path)
        sections = {name: dict(parsed[name]) for name in parsed.sections()}
        sections['placement_database'].update(
            # Here one process serves what several do in a deployment.
            max_pool_size=2 * AT_ONCE,
            max_overflow=2 * AT_ONCE,
        )
        config.write(path, sections)
        self.config.write_nova(
            {**cloud.SCHEDULER, 'scheduler': {'workers': WORKERS}}
        )
        for host in self.fake_hosts:
            self.config.write_compute(host, config.fake_compute(host))

    def wait_http(self, name):
        """Wait for a service; return at once for nova-api, which is absent."""
        if name != 'nova':
            super().wait_http(name)

    def _start_glance(self):
        """Do nothing."""

    def _start_nova(self):
        for name in ('nova-conductor', 'nova-scheduler'):
            self.spawn(
                name, self.program(name), '--config-file', self.nova_conf
            )
        self.wait_log('nova-conductor', 'Starting conductor node')
        for name in self.fake_hosts:
            self.spawn(
                f'nova-compute-{name}',
                self.program('nova-compute'),
                '--config-file',
                self.config.etc / f'{name}.conf',
            )
        self.spawn('discover', *self._manage('discover'), str(len(HOSTS)))

    @property
    def nova_conf(self):
        return self.config.etc / 'nova' / 'nova.conf'


class ConcurrencyTest(testtools.TestCase):
    """Boots by four scheduler workers for half as many uplinks of one slot.

    The boots end with the scheduler's claim, because nova-compute's part
    neither claims nor frees.
    """

    def setUp(self):
        super().setUp()
        self.cloud = SchedulerCloud()
        self.addCleanup(self.cloud.stop)
        self.cloud.start()
        self.admin = self.cloud.client('admin')
        placement = client.PlacementClient(
            adapter.Adapter(self.admin.session, service_type='placement')
        )
        for name in HOSTS:
            # Nova knows a compute node before Placement does.
            patience.wait(
                f'provider {name}',
                functools.partial(self.publish, placement, name),
            )

    def publish(self, placement, name):
        """Publish the uplinks of a host; return whether its node is there."""
        try:
            publisher.Publisher(placement, [name]).publish(
                self.topology(name), model.stamp(time.time())
            )
        except provider_tree.NoRootError:
            return False
        return True

    def topology(self, name):
        kind = model.BridgeKind.SEPARATE
        return model.HostTopology(
            name,
            tuple(
                model.Bridge(
                    f'br{n}',
                    kind,
                    (model.Uplink(f'eth{n}', f'br{n}', kind, 10000),),
                )
                for n in range(UPLINKS)
            ),
        )

    def boot_all(self):
        """Return the host or error of each server, by UUID."""
        racer = self.cloud.spawn(
            'boots',
            self.cloud.program('python'),
            '-m',
            boots.__name__,
            self.cloud.nova_conf,
            str(BOOTS),
            str(AT_ONCE),
        )
        self.assertTrue(racer.wait(patience.PATIENCE_S), racer.tail())
        lines = racer.log.read_text().splitlines()
        results = [line for line in lines if line.startswith('{')]
        self.assertEqual(1, len(results), racer.tail())
        return json.loads(results[0])

    def consumers(self, provider):
        """Return a provider's allocations, by server."""
        answer = self.admin.placement(
            'GET', f'/resource_providers/{provider}/allocations'
        )
        return answer['allocations']

    def test_number_of_placed_servers_is_that_of_uplinks(self):
        results = self.boot_all()
        self.assertEqual(BOOTS, len(results))
        placed = {
            uuid: result['host']
            for uuid, result in results.items()
            if 'host' in result
        }
        holders = collections.Counter()
        for host in HOSTS:
            for number in range(UPLINKS):
                uplink = model.provider_uuid(
                    host, f'br{number}', f'eth{number}'
                )
                claims = self.consumers(uplink)
                # Each uplink is claimed exactly once.
                self.assertEqual(1, len(claims), (host, number, claims))
                for uuid, claim in claims.items():
                    self.assertEqual({model.UPLINK: 1}, claim['resources'])
                    self.assertEqual(host, placed.get(uuid))
                    holders[uuid] += 1
        self.assertEqual(dict.fromkeys(placed, 1), dict(holders))
        # Each other server got a clear error, and has no allocation.
        for uuid, result in results.items():
            if uuid not in placed:
                self.assertIn('No valid host was found', result['error'])
                self.assertEqual({}, self.admin.allocations(uuid))
        # More than one worker took part.
        log = self.cloud.daemon('nova-scheduler').log.read_text()
        busy = {
            line.split()[2]
            for line in log.splitlines()
            if ' nova_vhpc.scheduler' in line
        }
        self.assertGreater(len(busy), 1)
