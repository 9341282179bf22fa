# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The publish worker on a real Open vSwitch, with a real Placement."""

import logging
import pathlib
import time
from typing import Any

import fixtures
import requests

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import claims, publish_worker
from nova_vhpc.tests.functional.topology import (
    ovs_lab,
    test_publisher,
    test_publishing,
)
from nova_vhpc.topology import model


class OvsPlacementCase(test_publisher.PlacementCase):
    """Has a served Placement, and an Open vSwitch with one bridge."""

    def setUp(self) -> None:
        super().setUp()
        served = test_publishing.serve(self)
        self.endpoint = f'http://127.0.0.1:{served.port}'
        self.lab = self.useFixture(ovs_lab.OvsLab())
        self.nic = self.lab.veth('n1')
        self.bridge = self.lab.bridge('b1', self.nic)
        self.log = self.useFixture(
            fixtures.FakeLogger('nova_vhpc', level=logging.INFO)
        )


class OvsPublishingTest(OvsPlacementCase):
    def setUp(self) -> None:
        super().setUp()
        self.lab.ovn(ovn_bridge_mappings=f'hpc-0:{self.bridge}')
        self.provider = model.provider_uuid('cn1', self.bridge, self.nic)

        self.marker = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'm'
        )

    def start(
        self, state: str = 'published', optional: bool = False
    ) -> publish_worker.PublishWorker:
        """Start an agent's worker, and wait for a state.

        :param optional: whether the connection is the default one.
        """
        ovsdb = connection.Ovsdb(
            self.lab.switch.remote, optional=optional, marker=self.marker
        )
        ovsdb.start()
        self.addCleanup(ovsdb.stop)
        worker = publish_worker.PublishWorker(
            test_publishing.make_conf(
                self.endpoint, nic_patterns=[self.lab.links.prefix + 'n*']
            ),
            'a-host',
            ovsdb,
        )
        worker.start()
        self.addCleanup(worker.stop)
        self.wait_for_state(worker, state)
        return worker

    def wait_for_state(
        self, worker: publish_worker.PublishWorker, state: str
    ) -> None:
        ovs_lab.wait_for(lambda: worker.status()['state'] == state)

    def get(self, what: str) -> Any:
        # Over the port, since the worker may write at the same time, and
        # Placement's database in memory has one connection.
        answer = requests.get(
            f'{self.endpoint}/resource_providers/{self.provider}/{what}',
            headers={'OpenStack-API-Version': 'placement 1.36'},
            timeout=60,
        )
        answer.raise_for_status()
        return answer.json()[what]

    def in_placement(self) -> list[Any]:
        """Return all that Placement has of the uplink."""
        return [
            self.get(what) for what in ('inventories', 'traits', 'allocations')
        ]

    def remove_socket(self) -> None:
        """End the database as a boot finds it: without its socket."""
        self.lab.switch.kill_database()
        pathlib.Path(self.lab.switch.remote.removeprefix('unix:')).unlink()

    def traits(self) -> set[str]:
        return set(self.get('traits'))

    def slots(self) -> int:
        total: int = self.get('inventories')[model.UPLINK]['total']
        return total

    def test_physnet_trait_is_published_without_rules(self) -> None:
        worker = self.start()
        self.assertIn('CUSTOM_PHYSNET_HPC_0', self.traits())
        self.assertEqual([], worker.status()['problems'])
        (uplink,) = worker.status()['uplinks']
        self.assertEqual(['hpc-0'], uplink['physnets'])

    def test_change_in_ovsdb_is_published_at_once(self) -> None:
        self.start()
        self.lab.ovn(ovn_bridge_mappings=f'hpc-1:{self.bridge}')
        ovs_lab.wait_for(lambda: 'CUSTOM_PHYSNET_HPC_1' in self.traits())
        self.assertNotIn('CUSTOM_PHYSNET_HPC_0', self.traits())

    def test_topology_is_kept_while_ovsdb_is_away(self) -> None:
        worker = self.start()
        slots = self.slots()
        self.lab.switch.kill_database()
        ovs_lab.wait_for(lambda: worker.status()['problems'])
        # A link is followed nevertheless.
        self.lab.links.set(self.nic + 'x', state='down')
        ovs_lab.wait_for(lambda: not worker.status()['uplinks'][0]['up'])
        ovs_lab.wait_for(lambda: worker.status()['state'] == 'published')
        self.assertEqual(slots, self.slots())
        self.assertIn('CUSTOM_PHYSNET_HPC_0', self.traits())
        self.assertEqual(1, self.log.output.count('is away'))
        self.assertFalse(worker.status()['ovsdb']['connected'])

        self.lab.switch.start_database()
        self.lab.ovn(ovn_bridge_mappings=f'hpc-1:{self.bridge}')
        ovs_lab.wait_for(lambda: 'CUSTOM_PHYSNET_HPC_1' in self.traits())
        ovs_lab.wait_for(lambda: not worker.status()['problems'])

    def check_restart_without_ovsdb(self, optional: bool) -> None:
        """Start an agent while ovsdb-server is away; check what it keeps."""
        first = self.start(optional=optional)
        server = self.claim(self.provider)
        first.stop()
        before = self.in_placement()
        self.assertEqual([server], list(before[2]))

        self.remove_socket()
        worker = self.start('ovsdb-away', optional)
        detail = worker.status()['detail']
        self.assertIn(self.lab.switch.remote, detail)
        self.assertIn('ovsdb_connection', detail)
        # More than one look.
        time.sleep(publish_worker.FIRST_READ_S + 2)
        self.assertEqual('ovsdb-away', worker.status()['state'])
        self.assertEqual(before, self.in_placement())
        self.assertIsNone(worker.publication())
        self.assertEqual(1, self.log.output.count('not published'))

        self.lab.switch.start_database()
        self.wait_for_state(worker, 'published')
        self.assertEqual([], worker.status()['problems'])
        uplinks = claims.UplinkClaims(worker.publication).uplinks(server)
        self.assertEqual(
            [(self.bridge, self.nic)], [one[:2] for one in uplinks or ()]
        )

    def test_claimed_uplink_stays_if_an_agent_starts_without_ovsdb(
        self,
    ) -> None:
        self.check_restart_without_ovsdb(optional=False)

    def test_claimed_uplink_stays_if_an_agent_starts_before_its_socket_exists(
        self,
    ) -> None:
        """As after a boot, where the default connection is used."""
        self.check_restart_without_ovsdb(optional=True)

    def test_server_that_nobody_has_seen_is_awaited_once_it_refuses(
        self,
    ) -> None:
        self.lab.switch.kill_database()
        worker = self.start('ovsdb-away', optional=True)
        self.lab.switch.start_database()
        self.wait_for_state(worker, 'published')

    def test_host_without_open_vswitch_publishes_at_once(self) -> None:
        self.remove_socket()
        worker = self.start(optional=True)
        self.assertEqual([], worker.status()['problems'])
        self.assertFalse(self.marker.exists())
