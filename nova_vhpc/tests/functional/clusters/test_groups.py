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


"""Groups as a real Nova API tells them."""

import time
from collections.abc import Callable

from nova.tests import fixtures as nova_fixtures

from nova_vhpc.agent.clusters import groups
from nova_vhpc.tests.functional.clusters import cloud

UNKNOWN = '11111111-2222-3333-4444-555555555555'


class GroupsTest(cloud.CloudCase):
    def wait_for(self, what: Callable[[], object]) -> None:
        """Wait for a thing to come true; fail when it never does."""
        end = time.monotonic() + 30
        while not what():
            self.assertLess(time.monotonic(), end, 'it never came true')
            time.sleep(0.02)

    def make_group(self) -> str:
        body = {'name': 'g', 'policy': 'soft-anti-affinity'}
        group: str = self.admin_api.post_server_groups(body)['id']
        return group

    def test_one_host_at_a_time(self) -> None:
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        here = self.boot(flavor, 'host1', group)
        there = self.boot(flavor, 'host2', group)
        loner = self.boot(flavor, 'host1')
        not_ours = self.boot(self.make_flavor(), 'host1', group)
        told = groups.Groups(self.make_conf(), 'host1')
        told.refresh()
        self.assertEqual(group, told.cluster_of(here))
        self.assertIsNone(told.cluster_of(there))
        self.assertIsNone(told.cluster_of(loner))
        self.assertIsNone(told.cluster_of(not_ours))
        other = groups.Groups(self.make_conf(), 'host2')
        other.refresh()
        self.assertEqual(group, other.cluster_of(there))

        # A group that was deleted is no virtual cluster any more.
        self.admin_api.delete_server_group(group)
        told.refresh()
        self.assertIsNone(told.cluster_of(here))

    def test_names_from_flavor_and_metadata(self) -> None:
        named = self.make_flavor(workload='parallel', cluster='cfd')
        by_flavor = self.boot(named, 'host1')
        by_metadata = self.boot(
            named, 'host1', metadata={'vhpc:cluster': 'weather'}
        )
        told = groups.Groups(self.make_conf(), 'host1')
        told.refresh()
        project = self.api_fixture.project_id
        self.assertEqual(f'{project}/cfd', told.cluster_of(by_flavor))
        self.assertEqual(f'{project}/weather', told.cluster_of(by_metadata))

    def test_all_pages(self) -> None:
        self.flags(max_limit=2, group='api')
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        servers = [self.boot(flavor, 'host1', group) for _ in range(5)]
        told = groups.Groups(self.make_conf(), 'host1')
        told.refresh()
        self.assertEqual(
            [group] * 5, [told.cluster_of(server) for server in servers]
        )

    def follow_a_member(self) -> tuple[groups.Groups, str, str]:
        """One that asks often and knows of a server, that, and its group."""
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        server = self.boot(flavor, 'host1', group)
        told = groups.Groups(
            self.make_conf(poll_interval=1, min_interval=1), 'host1'
        )
        told.start()
        self.addCleanup(told.stop)
        self.wait_for(lambda: told.cluster_of(server) == group)
        return told, server, group

    def test_nova_away_and_back(self) -> None:
        told, server, group = self.follow_a_member()
        self.assertEqual({group: 1}, told.status()['clusters'])

        self.api_down = True
        self.wait_for(lambda: told.status()['state'] == 'nova-away')
        before = told.status()['age_s']
        self.wait_for(lambda: told.status()['age_s'] > before)
        self.assertEqual(group, told.cluster_of(server))

        self.api_down = False
        self.wait_for(lambda: told.status()['state'] == 'fresh')

    def test_a_cell_away_and_back(self) -> None:
        """Nova then lists none of its servers, with 200."""
        told, server, group = self.follow_a_member()
        with nova_fixtures.DownCellFixture():
            self.wait_for(lambda: told.status()['state'] == 'partial')
            before = told.status()['age_s']
            self.wait_for(lambda: told.status()['age_s'] > before)
            self.assertEqual(group, told.cluster_of(server))
        self.wait_for(lambda: told.status()['state'] == 'fresh')
        self.assertEqual(group, told.cluster_of(server))

    def test_another_name_of_this_host_is_reported(self) -> None:
        server = self.boot(self.make_flavor(workload='parallel'), 'host1')
        told = groups.Groups(
            self.make_conf(poll_interval=1, min_interval=1), 'host1.local'
        )
        told.start()
        self.addCleanup(told.stop)

        def is_partial() -> bool:
            told.cluster_of(server)
            return bool(told.status()['state'] == 'partial')

        self.wait_for(is_partial)
        self.assertIn(f'it has {server} on host1;', told.status()['detail'])

    def test_an_unknown_server_is_asked_for(self) -> None:
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        told = groups.Groups(
            self.make_conf(poll_interval=3600, min_interval=1), 'host1'
        )
        told.start()
        self.addCleanup(told.stop)
        self.wait_for(lambda: told.status()['state'] == 'fresh')
        server = self.boot(flavor, 'host1', group)
        self.wait_for(lambda: told.cluster_of(server) == group)
