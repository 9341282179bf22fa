# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Server groups read from a real Nova API."""

import time
from collections.abc import Callable

from nova.tests import fixtures as nova_fixtures

from nova_vhpc.agent.clusters import groups, nova
from nova_vhpc.tests.functional.clusters import cloud
from nova_vhpc_lab.testbed.patience import PATIENCE_S

UNKNOWN = '11111111-2222-3333-4444-555555555555'


class GroupsTest(cloud.CloudCase):
    def wait_for(self, what: Callable[[], object]) -> None:
        """Wait until a condition is true."""
        end = time.monotonic() + PATIENCE_S
        while not what():
            self.assertLess(time.monotonic(), end, 'it never came true')
            time.sleep(0.02)

    def make_group(self) -> str:
        body = {'name': 'g', 'policy': 'soft-anti-affinity'}
        group: str = self.admin_api.post_server_groups(body)['id']
        return group

    def test_only_members_on_the_own_host_have_a_cluster(self) -> None:
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        here = self.boot(flavor, 'host1', group)
        there = self.boot(flavor, 'host2', group)
        ungrouped = self.boot(flavor, 'host1')
        plain = self.boot(self.make_flavor(), 'host1', group)
        known_groups = groups.Groups(self.make_conf(), 'host1')
        known_groups.refresh()
        self.assertEqual(group, known_groups.cluster_of(here))
        self.assertIsNone(known_groups.cluster_of(there))
        self.assertIsNone(known_groups.cluster_of(ungrouped))
        self.assertIsNone(known_groups.cluster_of(plain))
        other = groups.Groups(self.make_conf(), 'host2')
        other.refresh()
        self.assertEqual(group, other.cluster_of(there))

        # A deleted group is not a virtual cluster any more.
        self.admin_api.delete_server_group(group)
        known_groups.refresh()
        self.assertIsNone(known_groups.cluster_of(here))

    def test_metadata_overrides_the_flavors_cluster_name(self) -> None:
        named = self.make_flavor(workload='parallel', cluster='cfd')
        by_flavor = self.boot(named, 'host1')
        by_metadata = self.boot(
            named, 'host1', metadata={'vhpc:cluster': 'weather'}
        )
        known_groups = groups.Groups(self.make_conf(), 'host1')
        known_groups.refresh()
        project = self.api_fixture.project_id
        self.assertEqual(f'{project}/cfd', known_groups.cluster_of(by_flavor))
        self.assertEqual(
            f'{project}/weather', known_groups.cluster_of(by_metadata)
        )

    def test_members_of_a_cluster_are_found_on_all_hosts(self) -> None:
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        placed = {
            self.boot(flavor, host, group): host for host in ('host1', 'host2')
        }
        named = {'vhpc:cluster': 'weather'}
        other = self.boot(flavor, 'host2', metadata=named)
        servers = nova.NovaServers(self.make_conf(), '')
        self.assertEqual(placed, servers.members_of(group))
        self.assertEqual(
            {other: 'host2'},
            servers.members_of(f'{self.api_fixture.project_id}/weather'),
        )
        error = self.assertRaises(nova.NovaError, servers.members_of, UNKNOWN)
        self.assertIn(f'no server group {UNKNOWN}', str(error))

    def test_servers_on_all_pages_are_read(self) -> None:
        self.flags(max_limit=2, group='api')
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        servers = [self.boot(flavor, 'host1', group) for _ in range(5)]
        known_groups = groups.Groups(self.make_conf(), 'host1')
        known_groups.refresh()
        self.assertEqual(
            [group] * 5,
            [known_groups.cluster_of(server) for server in servers],
        )

    def follow_a_member(self) -> tuple[groups.Groups, str, str]:
        """Return groups that poll often, and a server and its group."""
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        server = self.boot(flavor, 'host1', group)
        known_groups = groups.Groups(
            self.make_conf(poll_interval=1, min_interval=1), 'host1'
        )
        known_groups.start()
        self.addCleanup(known_groups.stop)
        self.wait_for(lambda: known_groups.cluster_of(server) == group)
        return known_groups, server, group

    def test_groups_are_kept_while_nova_is_away(self) -> None:
        known_groups, server, group = self.follow_a_member()
        self.assertEqual({group: 1}, known_groups.status()['clusters'])

        self.api_down = True
        self.wait_for(lambda: known_groups.status()['state'] == 'nova-away')
        before = known_groups.status()['age_s']
        self.wait_for(lambda: known_groups.status()['age_s'] > before)
        self.assertEqual(group, known_groups.cluster_of(server))

        self.api_down = False
        self.wait_for(lambda: known_groups.status()['state'] == 'fresh')

    def test_groups_are_kept_while_a_cell_is_away(self) -> None:
        """Nova then lists no server of the cell, with status 200."""
        known_groups, server, group = self.follow_a_member()
        with nova_fixtures.DownCellFixture():
            self.wait_for(lambda: known_groups.status()['state'] == 'partial')
            before = known_groups.status()['age_s']
            self.wait_for(lambda: known_groups.status()['age_s'] > before)
            self.assertEqual(group, known_groups.cluster_of(server))
        self.wait_for(lambda: known_groups.status()['state'] == 'fresh')
        self.assertEqual(group, known_groups.cluster_of(server))

    def test_another_name_of_this_host_is_reported(self) -> None:
        server = self.boot(self.make_flavor(workload='parallel'), 'host1')
        known_groups = groups.Groups(
            self.make_conf(poll_interval=1, min_interval=1), 'host1.local'
        )
        known_groups.start()
        self.addCleanup(known_groups.stop)

        def is_partial() -> bool:
            known_groups.cluster_of(server)
            return bool(known_groups.status()['state'] == 'partial')

        self.wait_for(is_partial)
        self.assertIn(
            f'it has {server} on host1;', known_groups.status()['detail']
        )

    def test_cluster_of_an_unknown_server_is_read_before_the_next_poll(
        self,
    ) -> None:
        flavor = self.make_flavor(workload='parallel')
        group = self.make_group()
        known_groups = groups.Groups(
            self.make_conf(poll_interval=3600, min_interval=1), 'host1'
        )
        known_groups.start()
        self.addCleanup(known_groups.stop)
        self.wait_for(lambda: known_groups.status()['state'] == 'fresh')
        server = self.boot(flavor, 'host1', group)
        self.wait_for(lambda: known_groups.cluster_of(server) == group)
