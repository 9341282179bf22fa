# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


from nova_vhpc.tests.unit.cli import bus, test_cluster
from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world

STATUS = {
    'agent': {'paused': False, 'dry_run': False},
    'health': {'healthy': True, 'parts': {}},
    'vms': [],
}


class FactsTest(test_cluster.ClusterTestCase):
    def setUp(self):
        super().setUp()
        self.bus = self.useFixture(bus.Bus())

    def test_list_shows_load_uplinks_and_free_slots(self):
        used = world.uplink_uuids(self.hosts[0])[1]
        resources = self.bulk['provider_summaries'][used]['resources']
        resources[model.UPLINK]['used'] = 1
        first, second = self.json('host', 'list')
        self.assertEqual(
            ['host00000', 'up', 16, 8, 'leaf1', 'r1', 4, 3, None],
            list(first.values()),
        )
        self.assertEqual(4, second['Free Slots'])

    def test_list_asks_agents_if_it_can(self):
        self.bus.agent(self.hosts[0], **STATUS)
        self.bus.agent(
            self.hosts[1],
            **{**STATUS, 'agent': {'paused': True, 'dry_run': False}},
        )
        found = self.json('host', 'list', *self.bus.options)
        self.assertEqual(['ok', 'paused'], [one['Agent'] for one in found])

    def test_host_without_an_agent_has_no_uplinks(self):
        root = world.root_uuid(self.hosts[1])
        self.bulk['provider_summaries'] = {
            key: summary
            for key, summary in self.bulk['provider_summaries'].items()
            if summary['root_provider_uuid'] != root
        }
        _, second = self.json('host', 'list')
        self.assertIsNone(second['Uplinks'])
        answer = self.json('host', 'show', 'host00001')
        self.assertIn('no agent has published', answer['remarks'][0])

    def test_tenant_is_refused_in_one_sentence(self):
        self.as_tenant()
        for argv in (('list',), ('show', 'host00000')):
            status, out, err = self.run_('host', *argv)
            self.assertEqual((1, ''), (status, out))
            self.assertIn('only an administrator may see the hosts', err)
            self.assertNotIn('403', err)

    def test_show_says_what_is_wrong(self):
        dead = world.uplink_uuids(self.hosts[0])[0]
        resources = self.bulk['provider_summaries'][dead]['resources']
        resources[model.UPLINK]['capacity'] = 0
        self.bus.agent(
            'host00000',
            **{k: v for k, v in STATUS.items() if k != 'health'},
            health={
                'healthy': False,
                'parts': {
                    'bus': {
                        'healthy': False,
                        'state': 'degraded',
                        'since': 0,
                        'what': 'no broker',
                        'action': 'start it',
                    }
                },
            },
        )
        answer = self.json('host', 'show', 'host00000', *self.bus.options)
        self.assertEqual('not healthy', answer['agent'])
        self.assertEqual(0, answer['servers'])
        link, broker = answer['remarks']
        self.assertIn('link of NIC eth0 on bridge br0 is down', link)
        self.assertIn('no broker; start it', broker)
        self.assertEqual(4, len(answer['uplinks']))

    def test_time_of_publication_is_in_utc(self):
        marker = model.marker_uuid('host00000')
        resources = self.bulk['provider_summaries'][marker]['resources']
        resources[model.STAMP]['capacity'] = 29_000_000
        answer = self.json('host', 'show', 'host00000')
        self.assertEqual('2025-02-19T21:20+00:00', answer['published'])

    def test_unknown_host_is_named(self):
        status, _, err = self.run_('host', 'show', 'nix')
        self.assertEqual(1, status)
        self.assertIn("no compute host 'nix'", err)

    def test_cluster_shows_what_agents_measure(self):
        vm = {'uuid': 'a', 'received': 0.5, 'sync_latency_us': 9}
        self.bus.agent(self.hosts[0], **{**STATUS, 'vms': [vm]})
        self.bus.agent(self.hosts[1], **STATUS)
        answer = self.json('cluster', 'show', 'g', *self.bus.options)
        self.assertEqual(0.5, answer['cpu_received'])
        self.assertIn('a (50%)', answer['limited_by'][0])
        self.assertEqual([], answer['not_shown'])
        self.assertEqual(9, answer['members'][0]['sync_latency_us'])

    def test_agent_that_does_not_answer_is_said(self):
        self.bus.agent(self.hosts[0], **STATUS)
        answer = self.json(
            'cluster', 'show', 'g', *self.bus.options, '--timeout', '2'
        )
        (missing,) = answer['not_shown']
        self.assertIn(self.hosts[1], missing)
