# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Members whose Neutron ports bring their uplinks, and networks of uplinks.

Neutron's part is played by Nova's fixture, with networks, ports and providers
in Placement of the shape that Neutron 29 with OVN makes. Nova asks Placement
by them, claims and binds as in production.
"""

import contextlib
import io
import json
import uuid

import fixtures
from nova.tests.functional import test_servers_resource_request as nova_ports

from nova_vhpc.cli import explain as command
from nova_vhpc.flavor import recipes
from nova_vhpc.tests.functional import sdk
from nova_vhpc.tests.functional.scheduler import base, test_network
from nova_vhpc.topology import model

EGRESS = 'NET_BW_EGR_KILOBIT_PER_SEC'
INGRESS = 'NET_BW_IGR_KILOBIT_PER_SEC'

LINK_KBPS = 1_000_000

NAMESPACE = uuid.UUID('87ee7d5c-73bb-11e8-9008-c4d987b2a692')


def by_ports(network, **options):
    """Return the extra specs of a flavor whose servers bring ports."""
    return recipes.recipe(
        {'workload': 'parallel', 'network': network, **options}, ports=True
    )


class PortsTestCase(test_network.NetworkTestCase):
    """Hosts with one bridge for each of some physical networks."""

    def setUp(self):
        super().setUp()
        fixture = nova_ports.ExtendedResourceRequestNeutronFixture
        self.neutron = self.useFixture(
            fixture.create_with_existing_neutron_state(self.neutron)
        )
        self.ports = 0

    def network(self, physnet):
        """Return the id of the provider network of a physical network.

        :param physnet: None for a tenant network, which is tunneled.
        """
        network_id = str(uuid.uuid5(NAMESPACE, physnet or 'tenant'))
        if network_id not in self.neutron._networks:
            subnet_id = str(uuid.uuid5(NAMESPACE, f'{physnet} subnet'))
            self.neutron._networks[network_id] = {
                **self.neutron.network_1,
                'id': network_id,
                'name': physnet or 'tenant',
                'subnets': [subnet_id],
                'provider:network_type': 'flat' if physnet else 'geneve',
                'provider:physical_network': physnet,
                'provider:segmentation_id': None,
            }
            self.neutron._subnets[subnet_id] = {
                **self.neutron.subnet_1,
                'id': subnet_id,
                'network_id': network_id,
            }
        return network_id

    def port(self, physnet, kbps=0):
        """Create a port, and return its id.

        :param physnet: physical network; None for a tenant network.
        :param kbps: minimum bandwidth of its QoS policy; 0 without a policy.
        """
        self.ports += 1
        port_id = str(uuid.uuid4())
        request = None
        if kbps:
            group = str(uuid.uuid5(NAMESPACE, port_id))
            request = {
                'request_groups': [
                    {
                        'id': group,
                        'required': [
                            model.physnet_trait(physnet),
                            'CUSTOM_VNIC_TYPE_NORMAL',
                        ],
                        'resources': {EGRESS: kbps, INGRESS: kbps},
                    }
                ],
                'same_subtree': [group],
            }
        network_id = self.network(physnet)
        self.neutron._ports[port_id] = {
            **self.neutron.port_1,
            'id': port_id,
            'network_id': network_id,
            'mac_address': f'fa:16:3e:00:00:{self.ports:02x}',
            'fixed_ips': [
                {
                    'ip_address': f'192.168.1.{100 + self.ports}',
                    'subnet_id': self.neutron._networks[network_id]['subnets'][
                        0
                    ],
                }
            ],
            'resource_request': request,
        }
        return port_id

    def publish_bandwidth(self, host, *physnets, kbps=LINK_KBPS):
        """Publish bridges to Placement as Neutron does."""
        root = self._get_provider_uuid_by_host(host)
        name = f'{host}:OVN Controller agent'
        agent = str(uuid.uuid5(NAMESPACE, name))
        self._provider(agent, name, root)
        for physnet in physnets:
            traits = [
                model.physnet_trait(physnet),
                'CUSTOM_VNIC_TYPE_DIRECT',
                'CUSTOM_VNIC_TYPE_NORMAL',
            ]
            for trait in traits:
                self._create_trait(trait)
            bridge = self.bridge(host, physnet)
            self._provider(bridge, f'{name}:br-{physnet}', agent)
            self._inventory(
                bridge,
                {
                    EGRESS: {'total': kbps},
                    INGRESS: {'total': kbps},
                },
            )
            self._set_provider_traits(bridge, traits)

    @staticmethod
    def bridge(host, physnet):
        """Return the uuid of a bridge's provider."""
        name = f'{host}:OVN Controller agent:br-{physnet}'
        return str(uuid.uuid5(NAMESPACE, name))

    def used_kbps(self, host, physnet):
        """Return the claimed bandwidth of a bridge."""
        return self._get_provider_usages(self.bridge(host, physnet))[EGRESS]

    def boot_with(self, flavor, *ports, expected_state='ACTIVE', group=None):
        """Boot one server with ports, and return its host or None."""
        server = self._build_server(
            flavor_id=flavor, networks=[{'port': port} for port in ports]
        )
        request = {'server': server}
        if group is not None:
            request['os:scheduler_hints'] = {'group': group}
        made = self.api.post_server(request)
        self.booted = self._wait_for_state_change(made, expected_state)
        return self.booted['OS-EXT-SRV-ATTR:host']

    def provider_of(self, port):
        """Return the uplink that Nova told Neutron to bind a port to."""
        profile = self.neutron._ports[port]['binding:profile']
        (provider,) = profile['allocation'].values()
        return provider


class BandwidthTest(PortsTestCase):
    """Way N: the port's claim on Neutron's provider is the own uplink."""

    def setUp(self):
        super().setUp()
        self.start_hosts('one', 'two')
        for host in ('one', 'two'):
            self.publish_bandwidth(host, 'hpc0', 'hpc1')
            self.publish(host)

    def explained(self, flavor, *ports):
        """Return what nova-vhpc-explain says of each host: a reason or ''."""
        cloud = sdk.connect(self.api_fixture, self.placement.fixture.endpoint)
        out = io.StringIO()
        argv = [f'--port={port}' for port in ports]
        with contextlib.redirect_stdout(out):
            command.main(['--flavor', flavor, '--json', *argv], cloud)
        return {
            host['name']: host['reason'] or ''
            for host in json.loads(out.getvalue())['hosts']
        }

    def test_ports_as_fast_as_the_link_get_one_host_each(self):
        flavor = self.flavor(by_ports('separate'))
        port = f'hpc1:{LINK_KBPS}'
        self.assertEqual({'one': '', 'two': ''}, self.explained(flavor, port))
        group = self.group()
        ports = [self.port('hpc1', LINK_KBPS) for _ in range(3)]
        first = self.boot_with(flavor, ports[0], group=group)
        other = 'two' if first == 'one' else 'one'
        with self.subTest('the other host is explained to fit'):
            found = self.explained(flavor, port)
            self.assertIn('Placement offers no', found[first])
            self.assertEqual('', found[other])
            for reason in self.explained(flavor, 'hpc1:1000').values():
                self.assertIn('as large as the link', reason)
        hosts = [first, self.boot_with(flavor, ports[1], group=group)]
        self.assertEqual(['one', 'two'], sorted(hosts))
        for host, port in zip(hosts, ports[:2], strict=True):
            self.assertEqual(self.bridge(host, 'hpc1'), self.provider_of(port))
            self.assertEqual(LINK_KBPS, self.used_kbps(host, 'hpc1'))
            self.assertEqual(0, self.used_kbps(host, 'hpc0'))
        self.boot_with(flavor, ports[2], expected_state='ERROR')
        self.assertIn('No valid host', self.booted['fault']['message'])

    def test_port_that_brings_no_uplink_finds_no_host(self):
        flavor = self.flavor(by_ports('separate'))
        with self.subTest('it leaves room to others'):
            self.boot_with(
                flavor,
                self.port('hpc1', LINK_KBPS // 2),
                expected_state='ERROR',
            )
            for host in ('one', 'two'):
                self.assert_rejected(
                    host, 'br-hpc1', '500000 kbit/s', 'as large as the link'
                )
        self.forget_log()
        with self.subTest('it has no policy'):
            self.boot_with(flavor, self.port('hpc1'), expected_state='ERROR')
            self.assert_rejected('one', 'openstack port create', '--port')

    def test_two_ports_bring_two_uplinks(self):
        with self.part('of two shared bridges'):
            ports = [self.port('hpc0', 1000), self.port('hpc1', 2000)]
            host = self.boot_with(
                self.flavor(by_ports('multiple-shared')), *ports
            )
            self.assertEqual(1000, self.used_kbps(host, 'hpc0'))
            self.assertEqual(2000, self.used_kbps(host, 'hpc1'))
        # An own uplink beside a network for peers.
        flavor = self.flavor(by_ports('shared-separate'))
        host = self.boot_with(
            flavor, self.port('hpc0'), self.port('hpc1', LINK_KBPS)
        )
        self.assertEqual(LINK_KBPS, self.used_kbps(host, 'hpc1'))
        self.boot_with(
            flavor, self.port('hpc1', LINK_KBPS), expected_state='ERROR'
        )
        other = 'two' if host == 'one' else 'one'
        self.assert_rejected(other, 'none is for co-located peers')

    def test_members_gather_where_bandwidth_is_free_for_all(self):
        # Placement offers both hosts for the first member.
        flavor = self.flavor(by_ports('shared', members='4'))
        taken = self.boot_with(
            self.flavor({'vhpc:workload': 'general'}),
            self.port('hpc1', LINK_KBPS // 2),
        )
        # The scheduler reads it again.
        self.publish('one')
        group = self.group()
        hosts = {
            self.boot_with(
                flavor, self.port('hpc1', LINK_KBPS // 4), group=group
            )
            for _ in range(4)
        }
        self.assertEqual({'one', 'two'} - {taken}, hosts)

    def test_migrated_member_takes_the_same_uplink_of_another_host(self):
        port = self.port('hpc1', LINK_KBPS)
        source = self.boot_with(self.flavor(by_ports('separate')), port)
        server = self._live_migrate(self.booted, 'completed')
        target = server['OS-EXT-SRV-ATTR:host']
        self.assertEqual({'one', 'two'}, {source, target}, self.log.output)
        self.assertEqual(LINK_KBPS, self.used_kbps(target, 'hpc1'))
        self.assertEqual(self.bridge(target, 'hpc1'), self.provider_of(port))


class PhysnetTest(PortsTestCase):
    """Uplinks that flavors claim must be on the networks of the server."""

    def publish_on(self, host, physnet, mbps=1000):
        """Publish an uplink for one guest, on a physical network."""
        bridge = f'br-{physnet}'
        self.publish(host, base.separate(bridge, f'n-{physnet}', mbps))
        trait = model.physnet_trait(physnet)
        self._create_trait(trait)
        uplink = model.provider_uuid(host, bridge, f'n-{physnet}')
        self._trait(uplink, trait)
        self.publish(host)

    def test_server_on_hpc0_is_never_placed_for_an_uplink_of_hpc1(self):
        self.start_hosts('one', 'two')
        self.publish_on('one', 'hpc1', mbps=10000)
        self.publish_on('two', 'hpc1', mbps=10000)
        self.publish_on('two', 'hpc0')
        flavor = self.flavor(base.SEPARATE)
        self.assertEqual('two', self.boot_with(flavor, self.port('hpc0')))
        self.assertEqual(
            {'two:vhpc:br-hpc0:n-hpc0': 1}, self.claims(self.booted)
        )
        self.assert_rejected(
            'one', 'NIC n-hpc1 on bridge br-hpc1', 'CUSTOM_PHYSNET_HPC0'
        )
        self.boot_with(flavor, self.port('hpc0'), expected_state='ERROR')
        self.assertEqual({}, self.claims(self.booted))

    def test_moved_server_keeps_to_the_physical_network_of_its_nic(self):
        self.move(kbps=0)

    def test_moved_server_keeps_to_a_port_with_bandwidth_without_database(
        self,
    ):
        # The server's NICs cannot be read.
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.scheduler.sources.nova_db._nics', None
            )
        )
        self.move(1000)
        self.assertIn('which networks', self.log.output)

    def move(self, kbps):
        """Migrate a server whose port is not on the fastest uplink."""
        self.start_hosts('one', 'two')
        for host in ('one', 'two'):
            self.publish_on(host, 'hpc0', mbps=10000)
            self.publish_on(host, 'hpc1')
            self.publish_bandwidth(host, 'hpc1')
        self.boot_with(self.flavor(base.SEPARATE), self.port('hpc1', kbps))
        source = self.booted['OS-EXT-SRV-ATTR:host']
        server = self._live_migrate(self.booted, 'completed')
        target = server['OS-EXT-SRV-ATTR:host']
        self.assertNotEqual(source, target)
        self.assertEqual(
            {f'{target}:vhpc:br-hpc1:n-hpc1': 1}, self.claims(server)
        )
