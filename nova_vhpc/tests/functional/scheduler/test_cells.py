# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A virtual cluster in a cloud of two cells."""

from nova.tests import fixtures as nova_fixtures

from nova_vhpc.tests import osc_shell
from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base


class CellsTest(base.SchedulerTestCase):
    """A member moves within its cell, to a host near a peer in the other."""

    NUMBER_OF_CELLS = 2

    def test_moved_member_goes_near_a_peer_in_another_cell(self):
        self._start_compute('peer', cell_name='cell2')
        for host in ('start', 'near', 'far'):
            self._start_compute(host, cell_name='cell1')
        uplink = base.separate('br1', 'eth1')
        for rack, hosts in (('r1', ('peer', 'near')), ('r2', ('far',))):
            made = self.api.post_aggregate({'aggregate': {'name': rack}})
            metadata = {'vhpc:switch': rack, 'vhpc:rack': rack}
            self.api.post_aggregate_action(
                made['id'], {'set_metadata': {'metadata': metadata}}
            )
            for host in hosts:
                self.api.add_host_to_aggregate(made['id'], host)
        for host in ('peer', 'start', 'near', 'far'):
            self.publish(host, uplink)
        # Of equally good hosts the fuller one would win: the wrong one here.
        self._create_server(
            flavor_id=self.flavor({}), host='far', networks='none'
        )
        flavor_id = self.flavor(base.SEPARATE)
        group = self.group()
        self.boot_cluster(flavor_id, 1, group, host='peer')
        moved = self.boot_cluster(flavor_id, 1, group, host='start')
        (server,) = (
            server
            for server in moved
            if server['OS-EXT-SRV-ATTR:host'] == 'start'
        )
        server = self._live_migrate(server, 'completed')
        self.assertEqual('near', server['OS-EXT-SRV-ATTR:host'])
        with nova_fixtures.DownCellFixture([self.cell_mappings['cell2']]):
            self.check_dark_cell('--flavor', flavor_id)

    def check_dark_cell(self, *argv):
        """Nova then lists no hypervisors; nothing counts as not there."""
        cloud = sdk.connect(self.api_fixture, self.placement.fixture.endpoint)
        for command in (
            ('explain', *argv),
            ('claim', 'heal', '--apply'),
        ):
            with self.subTest(command):
                status, out, err = osc_shell.run(cloud, *command)
                self.assertEqual((1, ''), (status, out))
                self.assertIn('does not answer, that of peer:', err)
