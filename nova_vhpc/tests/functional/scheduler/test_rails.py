# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Servers on tenant networks of OVN: uplinks with encap IPs, on rails."""

import contextlib
import dataclasses
import io
import json

from nova_vhpc.cli import explain as command
from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base, test_ports


def tunnel(number, host=1, mbps=1000):
    """Return an uplink for one guest, on rail ``10.NUMBER.0.0/24``."""
    return dataclasses.replace(
        base.separate(f'br{number}', f'eth{number}', mbps),
        encap_ip=f'10.{number}.0.{host}',
        rail=f'10.{number}.0.0/24',
    )


class RailsTestCase(test_ports.PortsTestCase):
    def setUp(self):
        super().setUp()
        self.own = self.flavor(base.SEPARATE)

    def boot_members(self, count, group):
        """Boot members on the tenant network by one request."""
        server = self._build_server(
            name='member',
            flavor_id=self.own,
            networks=[{'uuid': self.neutron.network_1['id']}],
        )
        server['min_count'] = server['max_count'] = count
        self.api.post_server(
            {'server': server, 'os:scheduler_hints': {'group': group}}
        )
        return [
            self._wait_for_state_change(server, 'ACTIVE')
            for server in self.api.get_servers()
            if server['name'].startswith('member')
        ]

    def explained(self, *argv):
        """Return what nova-vhpc-explain prints as JSON."""
        cloud = sdk.connect(self.api_fixture, self.placement.fixture.endpoint)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command.main(['--flavor', self.own, '--json', *argv], cloud)
        return json.loads(out.getvalue())


class TunnelTest(RailsTestCase):
    """A tunneled network needs an uplink that tunnels end at."""

    def test_server_on_a_tenant_network_claims_an_uplink_with_encap_ip(self):
        self.start_hosts('one', 'two')
        plain = base.separate('br9', 'eth9', 10000)
        self.publish('one', plain)
        self.publish('two', plain, tunnel(1), tunnel(2))
        for _ in range(2):
            self.assertEqual('two', self.boot_with(self.own, self.port(None)))
            self.assertEqual(0, self.used('two', plain))
        self.assertIn(
            'Host one cannot take a member of this virtual cluster: NIC eth9 '
            'on bridge br9 has no encap IP',
            self.log.output,
        )
        self.boot_with(self.own, self.port(None), expected_state='ERROR')
        # Of a provider network, none of them is known not to serve.
        self.boot_with(self.own, self.port('hpc1'))

    def test_without_any_encap_ip_servers_are_placed_as_before(self):
        self.start_hosts('one')
        self.publish('one', base.separate('br9', 'eth9'))
        (host,) = self.explained('--tunneled')['hosts']
        self.assertIn('has no encap IP', host['unsteered'])
        self.assertEqual('one', self.boot_with(self.own, self.port(None)))

    def test_moved_server_keeps_to_uplinks_with_encap_ip(self):
        self.start_hosts('one', 'two')
        for host in ('one', 'two'):
            plain = base.separate('br9', 'eth9', 10000)
            self.publish(host, plain, tunnel(1), tunnel(2))
        self.boot_with(self.own, self.port(None))
        source = self.booted['OS-EXT-SRV-ATTR:host']
        server = self._live_migrate(self.booted, 'completed')
        target = server['OS-EXT-SRV-ATTR:host']
        self.assertNotEqual(source, target)
        (claimed,) = self.claims(server)
        self.assertIn(claimed, {f'{target}:vhpc:br{n}:eth{n}' for n in (1, 2)})

    def test_moved_server_on_a_provider_network_keeps_off_tunnels(self):
        self.start_hosts('one', 'two')
        for host in ('one', 'two'):
            on_bond = [
                dataclasses.replace(
                    base.separate('br-hpc1', nic),
                    physnets=('hpc1',),
                    bond='bond1',
                )
                for nic in ('eth3', 'eth4')
            ]
            self.publish(host, tunnel(1, mbps=10000), *on_bond)
        self.boot_with(self.own, self.port('hpc1'))
        server = self._live_migrate(self.booted, 'completed')
        (claimed,) = self.claims(server)
        self.assertIn(':br-hpc1:', claimed)
        found = self.explained('--port', 'hpc1')
        self.assertEqual(
            {'bond_entry'}, {host['steered_by'] for host in found['hosts']}
        )


class RailTest(RailsTestCase):
    """Members of one cluster claim uplinks of the same rails."""

    def rails_of(self, servers):
        return [
            provider.split(':')[-1]
            for server in servers
            for provider in self.claims(server)
        ]

    def occupied(self, host, number):
        """Have another server claim an uplink of a host."""
        others = [tunnel(n) for n in range(1, 4) if n != number]
        for uplink in others:
            self.publish(host, dataclasses.replace(uplink, up=False))
        self.publish(host, tunnel(number))
        server = self._build_server(
            flavor_id=self.own,
            networks=[{'port': self.port(None)}],
            host=host,
        )
        made = self.api.post_server({'server': server})
        self._wait_for_state_change(made, 'ACTIVE')
        self.publish(host, *others)

    def test_members_of_three_hosts_claim_one_rail(self):
        hosts = ('one', 'two', 'three')
        self.start_hosts(*hosts)
        for number, host in enumerate(hosts, 1):
            self.occupied(host, 3 if number == 3 else 1)
        # Rail 2 alone is free on all three.
        group = self.group('anti-affinity')
        plan = self.explained('--members=3', f'--group={group}', '--tunneled')
        servers = self.boot_members(3, group)
        self.assertEqual(sorted(hosts), self.hosts_of(servers))
        self.assertEqual(['eth2'] * 3, self.rails_of(servers))
        self.assertEqual(
            {host: ['10.2.0.0/24'] for host in hosts}, plan['plan']['rails']
        )
        self.assertEqual(
            {'encap_ip'}, {host['steered_by'] for host in plan['hosts']}
        )

    def test_later_and_moved_members_join_the_rail_of_the_first(self):
        hosts = ('one', 'two', 'three')
        self.start_hosts(*hosts)
        for host in hosts:
            self.publish(host, *(tunnel(n) for n in range(1, 5)))
        group = self.group('anti-affinity')
        servers = []
        for _ in range(2):
            self.boot_with(self.own, self.port(None), group=group)
            servers.append(self.booted)
        first, second = self.rails_of(servers)
        self.assertEqual(first, second)
        plan = self.explained(f'--group={group}', '--tunneled')['plan']
        rail = f'10.{first.removeprefix("eth")}.0.0/24'
        self.assertEqual([[rail]], list(plan['rails'].values()))
        moved = self._live_migrate(servers[1], 'completed')
        self.assertNotEqual(
            servers[1]['OS-EXT-SRV-ATTR:host'], moved['OS-EXT-SRV-ATTR:host']
        )
        self.assertEqual([first], self.rails_of([moved]))

    def test_members_of_a_host_claim_the_rails_of_the_other_host(self):
        self.start_hosts('one', 'two')
        self.occupied('one', 1)
        self.publish('two', *(tunnel(n) for n in range(1, 4)))
        servers = self.boot_members(4, self.group('soft-anti-affinity'))
        self.assertEqual(['one', 'one', 'two', 'two'], self.hosts_of(servers))
        self.assertEqual(
            ['eth2', 'eth2', 'eth3', 'eth3'], sorted(self.rails_of(servers))
        )
