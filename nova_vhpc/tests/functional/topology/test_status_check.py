# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-status`` checks a real Placement in this process."""

import pathlib
import time
import uuid

import fixtures
from keystoneauth1 import adapter, session
from keystoneauth1.loading._plugins import admin_token
from oslo_upgradecheck import upgradecheck
from placement.tests.functional.fixtures import placement as placement_fixture

from nova_vhpc.cli import status
from nova_vhpc.placement import client as placement_client
from nova_vhpc.placement import publisher
from nova_vhpc.tests import base
from nova_vhpc.topology import model
from nova_vhpc.upgradecheck import facts


class PlacementTest(base.TestCase):
    """Runs the Placement check after agents have published, or not."""

    def setUp(self):
        super().setUp()
        self.placement = self.useFixture(placement_fixture.PlacementFixture())

    def check(self, scheduler=''):
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(
            '[placement]\n'
            'auth_type = admin_token\n'
            'token = admin\n'
            f'endpoint = {self.placement.endpoint}\n'
            f'[scheduler]\n{scheduler}\n'
        )
        conf = status.make_conf()
        conf(['--config-file', str(file)], default_config_files=[])
        return facts.Checks(conf)._check_placement()

    def test_placement_without_any_agent_is_a_warning(self):
        """Placement knows neither the trait nor the resource class yet."""
        result = self.check()
        self.assertEqual(
            upgradecheck.Code.WARNING, result.code, result.details
        )
        self.assertIn('no agent has published', result.details)

    def publish(self, node, stamp, *uplinks):
        """Publish a compute node and its uplinks."""
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
        publisher.Publisher(
            placement_client.PlacementClient(client), [node]
        ).publish(
            model.HostTopology(
                node,
                tuple(
                    model.Bridge(uplink.bridge, uplink.kind, (uplink,))
                    for uplink in uplinks
                ),
            ),
            stamp,
        )

    def test_number_of_requests_does_not_grow_with_hosts(self):
        """The check may run on each of thousands of hosts."""
        for number in range(5):
            self.publish(f'cn{number}', model.stamp(time.time()))
        requested_urls = []
        get = adapter.Adapter.get

        def counted(client, url, **more):
            requested_urls.append(url)
            return get(client, url, **more)

        self.useFixture(
            fixtures.MonkeyPatch('keystoneauth1.adapter.Adapter.get', counted)
        )
        result = self.check()
        self.assertEqual('5 hosts, all fresh.', result.details)
        self.assertEqual(3, len(requested_urls), requested_urls)

    def test_host_with_an_old_stamp_is_a_warning(self):
        self.publish('cn1', model.stamp(time.time()))
        self.publish('cn2', 77)
        result = self.check()
        self.assertEqual(
            upgradecheck.Code.WARNING, result.code, result.details
        )
        self.assertIn('1 of 2 hosts', result.details)
        self.assertIn('(cn2)', result.details)

    def test_unexpected_error_of_placement_is_a_failure(self):
        self.useFixture(
            fixtures.MonkeyPatch('nova_vhpc.topology.model.TRAIT_HOST', '')
        )
        result = self.check()
        self.assertEqual(
            upgradecheck.Code.FAILURE, result.code, result.details
        )
        self.assertIn('400', result.details)

    def publish_uplinks(self, hosts):
        """Publish hosts with two uplinks each."""
        for number in range(hosts):
            self.publish(
                f'cn{number}',
                model.stamp(time.time()),
                *(
                    model.Uplink(
                        f'eth{nic}',
                        f'br{nic}',
                        model.BridgeKind.SEPARATE,
                        1000,
                    )
                    for nic in range(2)
                ),
            )

    def placement_option(self, name, value):
        """Set an option of ``[placement]`` of Placement itself."""
        self.placement.conf_fixture.config(**{name: value}, group='placement')

    def test_hosts_that_placement_cuts_off_are_a_warning(self):
        self.publish_uplinks(3)
        self.placement_option('max_allocation_candidates', 2)
        result = self.check()
        self.assertEqual(
            upgradecheck.Code.WARNING, result.code, result.details
        )
        self.assertIn('leaves 1 of 3 hosts out', result.details)

    def test_hosts_that_nova_does_not_see_are_a_warning(self):
        self.publish_uplinks(3)
        # It makes no difference: Placement takes any of all candidates.
        self.placement_option(
            'allocation_candidates_generation_strategy', 'breadth-first'
        )
        result = self.check('max_placement_results = 2')
        self.assertEqual(
            upgradecheck.Code.WARNING, result.code, result.details
        )
        self.assertIn('max_placement_results', result.details)
        result = self.check('max_placement_results = 6')
        self.assertEqual(
            upgradecheck.Code.SUCCESS, result.code, result.details
        )
