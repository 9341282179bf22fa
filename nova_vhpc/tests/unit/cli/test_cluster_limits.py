# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What limits a cluster, and what to do about it."""

from nova_vhpc.cli import cluster_reader
from nova_vhpc.tests.unit.cli import test_cluster
from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world


class LimitTest(test_cluster.ClusterTestCase):
    def limits(self, *argv):
        """Return what limits the cluster ``g``, and what to do."""
        answer = self.json('cluster', 'show', 'g', *argv)
        return answer['limited_by'], answer['what_to_do']

    def assertLimit(self, *words):
        """Check the first limit; each has a remedy."""
        limits, remedies = self.limits()
        self.assertEqual(len(limits), len(remedies))
        for word in words:
            self.assertIn(word, limits[0])

    def test_stopped_members(self):
        self.server('b', self.hosts[1], status='SHUTOFF')
        self.assertLimit('1 of 2 members', 'b (SHUTOFF)')

    def test_stopped_members_are_shown_to_tenants(self):
        self.server('b', self.hosts[1], status='ERROR')
        self.as_tenant()
        # It may run after a failed action, but nobody can rely on it.
        self.assertLimit('1 of 2 members', 'b (ERROR)')
        self.server('b', None, status='SHELVED_OFFLOADED')
        self.assertLimit('1 of 2 members', 'b (SHELVED_OFFLOADED)')

    def test_wrong_flavor(self):
        self.server('b', self.hosts[1], specs={'vhpc:network': 'nix'})
        self.assertLimit('flavor hpc.4', "'nix'")

    def test_dead_link_of_a_claimed_uplink(self):
        uplink = world.uplink_uuids(self.hosts[1])[0]
        resources = self.bulk['provider_summaries'][uplink]['resources']
        resources[model.UPLINK]['capacity'] = 0
        self.assertLimit('link of NIC eth0', 'host00001', 'b claimed')

    def test_dead_link_that_nobody_claimed_is_no_limit(self):
        uplink = world.uplink_uuids(self.hosts[1])[3]
        resources = self.bulk['provider_summaries'][uplink]['resources']
        resources[model.UPLINK]['capacity'] = 0
        self.assertEqual([], self.limits()[1])

    def test_member_without_a_claim(self):
        self.claim('a')
        self.assertLimit('a claimed no uplink')

    def test_flavor_for_ports_needs_no_claim(self):
        self.claim('a')
        self.server('a', self.hosts[0], specs={'vhpc:network': 'separate'})
        self.claim('a')
        self.assertEqual([], self.limits()[1])

    def test_members_that_share_cpus_with_each_other(self):
        self.hypervisors[0]['vcpus'] = 2
        self.assertLimit('with each other', 'host00000 (4 vCPUs on 2 CPUs)')

    def test_remedy_has_the_flavor_of_a_member_that_has_one(self):
        """The first in the order of names is in a cell that is down."""
        self.servers['a'] = {'id': 'a', 'tenant_id': 'p', 'status': 'UNKNOWN'}
        self.servers['b']['flavor']['vcpus'] = 24
        _, remedies = self.limits()
        self.assertIn('--flavor hpc.4 --group', remedies[1])

    def test_hosts_that_are_full(self):
        self.hypervisors[1]['vcpus_used'] = 24
        self.assertLimit('with other servers', 'host00001 (1.50 vCPUs')

    def test_dedicated_cpus_are_shared_with_nobody(self):
        self.hypervisors[0]['vcpus_used'] = 24
        specs = {**test_cluster.SPECS, 'hw:cpu_policy': 'dedicated'}
        self.server('a', self.hosts[0], specs=specs)
        self.assertEqual([], self.limits()[1])

    def test_host_down(self):
        self.hypervisors[1]['state'] = 'down'
        self.assertLimit('nova-compute is down on host00001')

    def test_agent_that_fell_silent(self):
        self.publish(self.hosts[1:], minutes_ago=90)
        self.assertLimit('silent on host00001 (for 9')
        answer = self.json('host', 'show', 'host00001')
        self.assertIn('last published 9', answer['remarks'][0])

    def test_agent_that_missed_one_publication_is_no_limit(self):
        self.publish(self.hosts, minutes_ago=10)
        self.assertEqual([], self.limits()[1])

    def test_unknown_switch(self):
        self.metadata = {}
        self.assertLimit('unknown at which switch host00000, host00001')

    def test_spread_over_switches_and_racks(self):
        for keys, tier, words in (
            (('vhpc:switch',), 'rack', '2 switches of one rack'),
            (('vhpc:switch', 'vhpc:rack'), 'several racks', '2 racks'),
        ):
            for host in self.hosts:
                self.metadata[host] |= dict.fromkeys(keys, f'of {host}')
            answer = self.json('cluster', 'show', 'g')
            self.assertEqual(tier, answer['tier'])
            self.assertIn(words, answer['limited_by'][0])
            self.assertIn('--move', answer['what_to_do'][0])

    def test_member_of_a_cell_that_is_down_is_left_alone(self):
        """It most probably runs."""
        self.servers['a'] = {
            **{'id': 'a', 'tenant_id': 'p', 'status': 'UNKNOWN'},
            'links': [],
        }
        for as_user in (lambda: None, self.as_tenant):
            as_user()
            limits, remedies = self.limits()
            self.assertEqual(
                'Nova does not know the state of 1 member (a): its cell is '
                'down',
                limits[0],
            )
            self.assertIn('ask the operator', remedies[0])
            self.assertFalse(
                [text for text in (*limits, *remedies) if 'not run' in text]
            )
            answer = self.json('cluster', 'show', 'g')
            self.assertEqual('1 of 2, 1 unknown', answer['running'])
            self.assertIsNone(answer['vcpus'])
            self.assertIsNone(answer['members'][0]['vcpus'])

    def test_member_whose_host_does_not_say_is_unknown(self):
        self.servers['a']['OS-EXT-STS:power_state'] = 0
        self.assertLimit('state of 1 member (a): its host does not say')
        # A server that is stopped has no power state either, on some hosts.
        self.servers['a']['status'] = 'SHUTOFF'
        self.assertLimit('a (SHUTOFF)')

    def test_no_remedy_loses_data_or_ends_what_goes_on(self):
        for status in (
            *('BUILD', 'ERROR', 'HARD_REBOOT', 'PAUSED', 'REBUILD', 'RESCUE'),
            *('RESIZE', 'REVERT_RESIZE', 'SHELVED', 'SHELVED_OFFLOADED'),
            *('SHUTOFF', 'SOFT_DELETED', 'SUSPENDED', 'UNKNOWN'),
        ):
            self.server('b', self.hosts[1], status=status)
            _, (remedy, *_) = self.limits()
            for word in ('delete', 'evacuate', 'rebuild', '--force'):
                self.assertNotIn(word, remedy)
            busy = status in ('BUILD', 'HARD_REBOOT', 'REBUILD', 'RESIZE')
            if busy:
                self.assertIn('wait until Nova is done', remedy)

    def test_link_of_a_silent_agent_is_unknown(self):
        uplink = world.uplink_uuids(self.hosts[1])[0]
        resources = self.bulk['provider_summaries'][uplink]['resources']
        resources[model.UPLINK]['capacity'] = 0
        self.publish(self.hosts[1:], minutes_ago=90)
        limits, _ = self.limits()
        self.assertFalse([text for text in limits if 'link of' in text])

    def test_uplinks_that_may_not_be_seen_are_not_called_missing(self):
        self.cloud.refused = ['/allocation_candidates', '/allocations/']
        answer = self.json('cluster', 'show', 'g')
        self.assertFalse(
            [text for text in answer['limited_by'] if 'no agent' in text]
        )
        self.assertIn(cluster_reader.UPLINKS_UNSEEN, answer['not_shown'])
        answer = self.json('host', 'show', self.hosts[0])
        self.assertEqual([], answer['remarks'])
