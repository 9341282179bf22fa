# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Several schedulers race for the same uplinks."""

import collections
import json
import time

import testtools
from keystoneauth1 import adapter

from nova_vhpc.placement import client as placement
from nova_vhpc.placement import publisher
from nova_vhpc.tests.functional.scheduler import boots
from nova_vhpc.tests.stack import cloud, config
from nova_vhpc.topology import model

HOSTS = ('alpha', 'beta', 'gamma', 'delta')
UPLINKS = 25
BOOTS = 200
WORKERS = 4
AT_ONCE = 16
PATIENCE_S = 240


class NoLibvirt:
    """In place of the stack's libvirtd: these hosts run no guests."""

    uri = 'test:///default'

    def start(self):
        """Nothing to start."""

    def stop(self):
        """Nothing to stop."""


class SchedulerCloud(cloud.Cloud):
    """nova-scheduler's workers and what they need, each a process.

    RabbitMQ, MariaDB, Placement over HTTP, nova-conductor, and nova-compute
    with Nova's fake driver. No API: :mod:`.boots` asks the scheduler.
    """

    def __init__(self):
        super().__init__(HOSTS)
        self.libvirt = NoLibvirt()
        # Made before the threads that start the parts ask for it.
        self.keeper  # noqa: B018

    def write_config(self):
        """Many worker processes; Placement for as many requests."""
        self.config.write_standins()
        where = self.config.write_placement() / 'placement.conf'
        found = config.read(where)
        sections = {name: dict(found[name]) for name in found.sections()}
        sections['placement_database'].update(
            # One process serves here what is many in a deployment.
            max_pool_size=2 * AT_ONCE,
            max_overflow=2 * AT_ONCE,
        )
        config.write(where, sections)
        self.config.write_nova(
            {**cloud.SCHEDULER, 'scheduler': {'workers': WORKERS}}
        )
        for host in self.fake_hosts:
            self.config.write_compute(host, config.fake_compute(host))

    def wait_http(self, name, timeout_s=PATIENCE_S):
        """There is no nova-api to wait for."""
        if name != 'nova':
            super().wait_http(name, timeout_s)

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
    """200 boots, four scheduler processes, 100 uplinks for one guest each.

    The boots end where the scheduler has claimed: what nova-compute does
    afterwards neither claims nor frees.
    """

    def setUp(self):
        super().setUp()
        self.cloud = SchedulerCloud()
        self.addCleanup(self.cloud.stop)
        self.cloud.start()
        self.admin = self.cloud.client('admin')
        client = placement.PlacementClient(
            adapter.Adapter(self.admin.session, service_type='placement')
        )
        for host in HOSTS:
            publisher.Publisher(client, [host]).publish(
                self.topology(host), model.stamp(time.time())
            )

    def topology(self, host):
        kind = model.BridgeKind.SEPARATE
        return model.HostTopology(
            host,
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
        """What became of each server, by its uuid."""
        racer = self.cloud.spawn(
            'boots',
            self.cloud.program('python'),
            '-m',
            boots.__name__,
            self.cloud.nova_conf,
            str(BOOTS),
            str(AT_ONCE),
        )
        self.assertTrue(racer.wait(PATIENCE_S), racer.tail())
        lines = racer.log.read_text().splitlines()
        found = [line for line in lines if line.startswith('{')]
        self.assertEqual(1, len(found), racer.tail())
        return json.loads(found[0])

    def consumers(self, provider):
        """Servers that hold an allocation of a provider."""
        found = self.admin.placement(
            'GET', f'/resource_providers/{provider}/allocations'
        )
        return found['allocations']

    def test_as_many_succeed_as_there_are_uplinks(self):
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
                # None twice and none lost.
                self.assertEqual(1, len(claims), (host, number, claims))
                for uuid, claim in claims.items():
                    self.assertEqual({model.UPLINK: 1}, claim['resources'])
                    self.assertEqual(host, placed.get(uuid))
                    holders[uuid] += 1
        self.assertEqual(dict.fromkeys(placed, 1), dict(holders))
        # The rest are told clearly, and hold nothing else either.
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
