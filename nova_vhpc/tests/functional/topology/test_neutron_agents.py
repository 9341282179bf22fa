# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Bridge mappings that only Neutron's API knows, from a real Neutron."""

import pathlib

import fixtures
from keystoneauth1 import adapter, noauth, session

from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import neutron_agents, publish_worker
from nova_vhpc.tests.functional.topology import (
    neutron_server,
    ovs_lab,
    test_ovs_publishing,
    test_publishing,
)
from nova_vhpc.topology import model, open_vswitch

HOST = 'h1'


class NeutronAgentsTest(test_ovs_publishing.OvsPlacementCase):
    def setUp(self) -> None:
        super().setUp()
        self.url = 'http://127.0.0.1:9'
        self.state = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def start_neutron(self) -> None:
        self.neutron = self.useFixture(
            neutron_server.Neutron(
                {
                    HOST: {
                        'bridge_mappings': {'hpc-0': self.bridge},
                        'integration_bridge': 'br-int',
                    },
                    'other': {'bridge_mappings': {'hpc-1': self.bridge}},
                    'tunnels-only': {'bridge_mappings': {}},
                }
            )
        )
        self.url = self.neutron.url

    def agents(self, *hosts: str) -> neutron_agents.NeutronAgents:
        """Return the source of an agent that has just started."""
        return neutron_agents.NeutronAgents(
            lambda: adapter.Adapter(
                session.Session(noauth.NoAuth(), timeout=60),
                endpoint_override=self.url,
            ),
            hosts or (HOST,),
            lambda: 0.0,
            self.state / neutron_agents.FILE,
        )

    def worker(self) -> publish_worker.PublishWorker:
        """Return the started worker of an agent."""
        ovsdb = connection.Ovsdb(self.lab.switch.remote)
        ovsdb.start()
        self.addCleanup(ovsdb.stop)
        worker = publish_worker.PublishWorker(
            test_publishing.make_conf(
                self.endpoint,
                nic_patterns=[self.lab.links.prefix + 'n*'],
                ml2_config_files=[str(self.state / 'none')],
            ),
            HOST,
            ovsdb,
            self.agents(),
        )
        worker.start()
        self.addCleanup(worker.stop)
        ovs_lab.wait_for(lambda: worker.status()['state'] == 'published')
        return worker

    def test_mappings_of_this_host_are_read(self) -> None:
        self.start_neutron()
        self.assertEqual(
            open_vswitch.NeutronBridges({'hpc-0': self.bridge}, 'br-int'),
            self.agents('h1.example.org', HOST).read(),
        )
        # Without mappings, and without an agent.
        agents = self.agents('tunnels-only')
        self.assertIsNone(agents.read())
        self.assertEqual('', agents.note)
        agents = self.agents('nowhere')
        self.assertIsNone(agents.read())
        self.assertIn('no Open vSwitch agent on host nowhere', agents.note)

    def test_uplink_is_published_and_kept_while_neutron_is_away(self) -> None:
        self.start_neutron()
        worker = self.worker()
        provider = model.provider_uuid('cn1', self.bridge, self.nic)
        (uplink,) = worker.status()['uplinks']
        self.assertEqual(['hpc-0'], uplink['physnets'])
        worker.stop()
        self.claim(provider)
        before = self.client.inventories(provider)[1]

        self.neutron.kill()
        worker = self.worker()
        worker.stop()
        self.assertEqual([uplink], worker.status()['uplinks'])
        self.assertEqual(before, self.client.inventories(provider)[1])
        self.assertIn('CUSTOM_PHYSNET_HPC_0', self.client.traits(provider)[1])
        (note,) = worker.status()['notes']
        self.assertIn('not read from Neutron', note)

    def test_neutron_is_not_asked_if_ovn_is_configured(self) -> None:
        self.lab.ovn(ovn_bridge_mappings=f'hpc-5:{self.bridge}')
        status = self.worker().status()
        (uplink,) = status['uplinks']
        self.assertEqual(['hpc-5'], uplink['physnets'])
        # It would say that Neutron is away.
        self.assertEqual([], status['notes'])
