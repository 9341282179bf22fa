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

import concurrent.futures
import threading

from nova import context, exception, objects
from nova.scheduler import manager
from oslo_messaging.rpc import dispatcher as rpc_dispatcher
from oslo_utils import uuidutils

from nova_vhpc.tests.functional.scheduler import base

HOSTS = 10
UPLINKS = 10
BOOTS = 200
SCHEDULERS = 4
AT_ONCE = 16


class ConcurrencyTest(base.SchedulerTestCase):
    """200 boots, four schedulers, 100 uplinks for one guest each.

    The boots end where the scheduler has claimed: what nova-compute does
    afterwards neither claims nor frees.
    """

    def setUp(self):
        super().setUp()
        names = [f'host{number}' for number in range(HOSTS)]
        self.start_hosts(*names)
        for name in names:
            self.publish(
                name,
                *(
                    base.separate(f'br{number}', f'eth{number}')
                    for number in range(UPLINKS)
                ),
            )
        self.schedulers = [
            self.scheduler_service.manager,
            *(manager.SchedulerManager() for _ in range(SCHEDULERS - 1)),
        ]
        self.context = context.get_admin_context()
        self.flavor = objects.Flavor.get_by_flavor_id(
            self.context, self.flavor(base.SEPARATE)
        )
        self.barrier = threading.Barrier(AT_ONCE)

    def spec(self, uuid, members=1):
        spec = objects.RequestSpec.from_components(
            self.context,
            uuid,
            objects.ImageMeta.from_dict({}),
            self.flavor,
            None,
            objects.InstancePCIRequests(requests=[]),
            {},
            None,
            None,
            project_id='project',
            user_id='user',
        )
        spec.num_instances = members
        return spec

    def boot(self, number):
        """One boot: the claimed uplink, or None without a valid host."""
        uuid = uuidutils.generate_uuid()
        if number < AT_ONCE:
            # All look at the same hundred uplinks before any is claimed.
            self.barrier.wait(60)
        try:
            ((selection, *_),) = self.schedulers[
                number % SCHEDULERS
            ].select_destinations(
                context.RequestContext('user', 'project', is_admin=True),
                spec_obj=self.spec(uuid),
                instance_uuids=[uuid],
                return_objects=True,
                return_alternates=True,
            )
        except rpc_dispatcher.ExpectedException as error:
            # RPC servers mark what they expect and do not log.
            self.assertIsInstance(error.exc_info[1], exception.NoValidHost)
            return uuid, str(error.exc_info[1])
        return uuid, selection.service_host

    def test_as_many_succeed_as_there_are_uplinks(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = dict(pool.map(self.boot, range(BOOTS)))
        placed = {
            uuid: host
            for uuid, host in results.items()
            if host.startswith('host')
        }
        self.assertEqual(HOSTS * UPLINKS, len(placed))
        for error in set(results.values()) - set(placed.values()):
            self.assertIn('No valid host was found', error)
        uplinks = []
        for uuid, host in results.items():
            claims = self.claims({'id': uuid})
            if uuid in placed:
                ((name, slots),) = claims.items()
                self.assertEqual(1, slots)
                self.assertEqual(host, name.split(':')[0])
                uplinks.append(name)
            else:
                self.assertEqual({}, claims)
        self.assertEqual(HOSTS * UPLINKS, len(set(uplinks)))
