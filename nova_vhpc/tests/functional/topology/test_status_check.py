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

"""``nova-vhpc-status`` beside a real Placement, in process."""

import pathlib
import time
import uuid

import fixtures
from keystoneauth1 import adapter, session
from keystoneauth1.loading._plugins import admin_token
from oslo_upgradecheck import upgradecheck
from placement.tests.functional.fixtures import placement as placement_fixture

from nova_vhpc.cmd import status
from nova_vhpc.placement import client as api
from nova_vhpc.placement import publisher
from nova_vhpc.tests import base
from nova_vhpc.topology import model
from nova_vhpc.upgradecheck import facts


class PlacementTest(base.TestCase):
    """The check against a real Placement in this process."""

    def setUp(self):
        super().setUp()
        self.placement = self.useFixture(placement_fixture.PlacementFixture())

    def check(self):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(
            '[placement]\n'
            'auth_type = admin_token\n'
            'token = admin\n'
            f'endpoint = {self.placement.endpoint}\n'
        )
        conf = status.make_conf()
        conf(['--config-file', str(file)], default_config_files=[])
        return facts.Checks(conf)._check_placement()

    def test_before_the_first_agent_has_published(self):
        """Placement knows neither our trait nor our resource class yet."""
        found = self.check()
        self.assertEqual(upgradecheck.Code.WARNING, found.code, found.details)
        self.assertIn('no agent has published', found.details)

    def publish(self, node, stamp):
        """Publish a compute node without uplinks."""
        loader = admin_token.AdminToken()
        auth = loader.load_from_options(
            endpoint=self.placement.endpoint, token='admin'
        )
        client = adapter.Adapter(
            session.Session(auth=auth), service_type='placement'
        )
        client.post(
            '/resource_providers',
            json={'name': node, 'uuid': str(uuid.uuid4())},
            microversion='1.20',
        )
        publisher.Publisher(api.PlacementClient(client), [node]).publish(
            model.HostTopology(node), stamp
        )

    def test_asks_no_more_of_many_hosts_than_of_few(self):
        """It may be run on each of thousands."""
        for number in range(5):
            self.publish(f'cn{number}', model.stamp(time.time()))
        asked = []
        get = adapter.Adapter.get

        def counted(client, url, **more):
            asked.append(url)
            return get(client, url, **more)

        self.useFixture(
            fixtures.MonkeyPatch('keystoneauth1.adapter.Adapter.get', counted)
        )
        found = self.check()
        self.assertEqual('5 hosts, all fresh.', found.details)
        self.assertEqual(3, len(asked), asked)

    def test_a_host_whose_agent_is_gone(self):
        self.publish('cn1', model.stamp(time.time()))
        self.publish('cn2', 77)
        found = self.check()
        self.assertEqual(upgradecheck.Code.WARNING, found.code, found.details)
        self.assertIn('1 of 2 hosts', found.details)
        self.assertIn('(cn2)', found.details)

    def test_another_refusal_is_a_failure(self):
        self.useFixture(
            fixtures.MonkeyPatch('nova_vhpc.topology.model.TRAIT_HOST', '')
        )
        found = self.check()
        self.assertEqual(upgradecheck.Code.FAILURE, found.code, found.details)
        self.assertIn('400', found.details)
