# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Members whose ports with a minimum bandwidth bring their uplinks."""

import logging

import fixtures
from nova import objects
from oslo_utils.fixture import uuidsentinel as uuids

from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.tests.unit.scheduler import neutron, world
from nova_vhpc.topology import model


class PortsTest(world.WorldTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger('nova_vhpc', level=logging.DEBUG)
        )
        self.neutron = neutron.Providers(self.body)

    def get(self, path, version):
        answer = super().get(path, version)
        if path.startswith('/resource_providers'):
            return {'resource_providers': [*self.names, *self.neutron.names]}
        return answer

    def spec(self, *groups, networks=None, **specs):
        """A request for one server of a flavor without request groups."""
        wanted = {'vhpc_network': 'separate', **specs}
        spec = self.request(**wanted)
        extra_specs = spec.flavor.extra_specs
        for key in list(extra_specs):
            if '_uplink:' in key or key not in {
                name.replace('_', ':', 1) for name in wanted
            }:
                del extra_specs[key]
        spec.requested_resources = list(groups)
        if networks is not None:
            spec.network_metadata = objects.NetworkMetadata(
                physnets=set(networks), tunneled=False
            )
        return spec

    def offer(self, state, *candidates):
        """Have Placement offer candidates: uplinks by port."""
        state.allocation_candidates = [
            {
                'allocations': {
                    state.uuid: {'resources': {'VCPU': 2, 'MEMORY_MB': 1024}},
                    **{
                        uplink: {'resources': neutron.both(1)}
                        for uplink in candidate.values()
                    },
                },
                'mappings': {
                    '': [state.uuid],
                    **{
                        neutron.provider_uuid(port): [uplink]
                        for port, uplink in candidate.items()
                    },
                },
            }
            for candidate in candidates
        ]

    def bridges(self, physnet='HPC1', hosts=None, **arguments):
        """Have Neutron publish a bridge on each host, and offer it."""
        for state in self.states if hosts is None else hosts:
            uplink = self.neutron.add(state.nodename, physnet, **arguments)
            self.offer(state, {'port': uplink})

    def reason(self, spec):
        self.assertEqual([], self.passing(spec))
        return self.states[0]._vhpc.fit_result.reason

    def test_server_with_a_port_passes_where_its_uplink_is(self):
        self.bridges(hosts=self.states[:2])
        self.bridges('HPC0', hosts=self.states[2:])
        spec = self.spec(neutron.group('HPC1'), networks=['hpc1'])
        self.assertEqual(['host00000', 'host00001'], self.passing(spec))
        self.assertIn('br-hpc0', self.states[2]._vhpc.fit_result.reason)

    def test_server_without_such_a_port_is_told_to_make_one(self):
        self.bridges()
        for groups in ((), (neutron.group('HPC1', CUSTOM_OTHER=1),)):
            reason = self.reason(self.spec(*groups, networks=['hpc1']))
            self.assertIn('openstack port create', reason)
            self.assertIn('as large as the link', reason)
            self.assertIn('--network instead of --port', reason)

    def test_candidates_that_do_not_serve_are_removed(self):
        for state in self.states:
            # The port would not fill it.
            faster = self.neutron.add(
                state.nodename, 'HPC1', neutron.OVS, kbps=2_000_000
            )
            right = self.neutron.add(state.nodename, 'HPC1')
            self.offer(state, {'port': faster}, {'port': right})
        spec = self.spec(neutron.group('HPC1'))
        self.assertEqual(4, len(self.passing(spec)))
        for state in self.states:
            (candidate,) = state.allocation_candidates
            (uplink,) = candidate['mappings'][neutron.provider_uuid('port')]
            self.assertIn('OVN', self.name_of(uplink))

    def name_of(self, uuid):
        (name,) = (
            each['name'] for each in self.neutron.names if each['uuid'] == uuid
        )
        return name

    def test_planner_goes_where_bandwidth_is_free_for_the_whole_cluster(self):
        free = {'host00000': 2, 'host00001': 3, 'host00002': 4, 'host00003': 1}
        for state in self.states:
            self.bridges(
                hosts=[state], used=1_000_000 - 250_000 * free[state.host]
            )
        spec = self.spec(
            neutron.group('HPC1', 250_000),
            vhpc_network='shared',
            vhpc_members='4',
        )
        states = list(self.filter.filter_all(self.states, spec))
        raw = self.weigher.weigh_objects(
            [world.weights_of(state) for state in states], spec
        )
        best = max(range(len(states)), key=raw.__getitem__)
        self.assertEqual('host00002', states[best].host)

    def test_slots_are_members_that_free_bandwidth_serves(self):
        self.bridges(used=300_000)
        # Placement offers this one: the snapshot is older.
        self.bridges(used=1_000_000, hosts=self.states[1:2])
        spec = self.spec(neutron.group('HPC1', 200_000), vhpc_network='shared')
        self.passing(spec)
        for state, slots in zip(self.states, (3, 1), strict=False):
            host_info = state._vhpc
            host_fit = state._vhpc.session.host_fit
            self.assertEqual(slots, host_fit.slots(host_info))
            self.assertEqual(1000, host_info.fit_result.link_mbps)

    def test_host_of_unknown_topology_passes_if_allowed(self):
        self.flags(unknown_topology='allow')
        self.bridges()
        self.body['provider_summaries'].clear()
        self.assertEqual(4, len(self.passing(self.spec(neutron.group('X')))))
        host_info = self.states[0]._vhpc
        self.assertTrue(host_info.fit_result.unknown)
        self.assertEqual(1, host_info.fit_result.slots)

    def test_flavor_without_network_is_not_restricted_by_ports(self):
        for state in self.states:
            self.offer(state, {'port': 'unknown'})
        spec = self.spec(neutron.group('HPC1', 1000), networks=['hpc1'])
        spec.flavor.extra_specs = {'vhpc:workload': 'parallel'}
        self.assertEqual(4, len(self.passing(spec)))
        self.assertEqual(NO_LIMIT, self.states[0]._vhpc.fit_result.slots)


class PhysnetTest(world.WorldTestCase):
    """Flavors that claim uplinks, of which each is on a physical network."""

    def setUp(self):
        super().setUp()
        for state in self.states:
            for port in range(4):
                self.summary(state.nodename, port)['traits'].append(
                    f'CUSTOM_PHYSNET_HPC{port}'
                )

    def claimed(self, spec):
        """Bridges that the candidates of the first host claim."""
        self.passing(spec)
        names = {each['uuid']: each['name'] for each in self.names}
        return [
            names[uuid].split(':')[-2]
            for candidate in self.states[0].allocation_candidates
            for uuid in candidate['mappings']['_uplink']
        ]

    def test_only_uplinks_on_the_servers_networks_are_claimed(self):
        spec = self.request()
        spec.network_metadata = objects.NetworkMetadata(
            physnets={'hpc2', 'public'}, tunneled=False
        )
        self.assertEqual(['br2'], self.claimed(spec))

    def test_moved_server_claims_uplinks_on_its_networks(self):
        spec = self.request()
        spec.requested_destination = objects.Destination(
            cell=objects.CellMapping(uuid=uuids.cell)
        )
        # One port has a minimum bandwidth, the other one has not.
        spec.requested_resources = [neutron.group('HPC1', 1000)]
        # What Nova says of every moved server.
        spec.network_metadata = objects.NetworkMetadata(
            physnets={'hpc1', 'hpc3'}, tunneled=True
        )
        self.moved_networks = objects.NetworkMetadata(
            physnets={'hpc1', 'hpc3'}, tunneled=False
        )
        self.assertEqual({'br1', 'br3'}, set(self.claimed(spec)))

    def test_moved_server_claims_uplinks_on_its_ports_networks(self):
        spec = self.request()
        spec.requested_destination = objects.Destination(
            cell=objects.CellMapping(uuid=uuids.cell)
        )
        spec.network_metadata = objects.NetworkMetadata(
            physnets={'hpc1', 'hpc3'}, tunneled=True
        )
        spec.requested_resources = [neutron.group('HPC1', 1000)]
        self.assertEqual(['br1'], self.claimed(spec))

    def test_host_without_uplink_on_the_networks_is_rejected(self):
        spec = self.request()
        spec.network_metadata = objects.NetworkMetadata(
            physnets={'public'}, tunneled=False
        )
        self.assertEqual([], self.passing(spec))
        reason = self.states[0]._vhpc.fit_result.reason
        self.assertIn(
            'NIC eth0 on bridge br0 is on CUSTOM_PHYSNET_HPC0', reason
        )
        self.assertIn('are on CUSTOM_PHYSNET_PUBLIC', reason)

    def test_uplinks_of_unknown_physical_network_serve_any_server(self):
        for state in self.states:
            self.summary(state.nodename, 3)['traits'].pop()
        spec = self.request()
        spec.network_metadata = objects.NetworkMetadata(
            physnets={'hpc0'}, tunneled=False
        )
        self.assertEqual({'br0', 'br3'}, set(self.claimed(spec)))

    def test_server_on_a_tunneled_network_claims_uplinks_with_encap_ips(self):
        # One host is enough: its agent tells that the cloud has OVN.
        for state in self.states[:1]:
            for port in (1, 2):
                self.summary(state.nodename, port)['traits'].append(
                    model.TRAIT_TUNNEL
                )
        spec = self.request()
        spec.network_metadata = objects.NetworkMetadata(
            physnets=set(), tunneled=True
        )
        self.assertEqual({'br1', 'br2'}, set(self.claimed(spec)))
        self.assertEqual(['host00000'], self.passing(spec))
        reason = self.states[1]._vhpc.fit_result.reason
        self.assertIn('NIC eth0 on bridge br0 has no encap IP', reason)

    def test_moved_server_claims_by_what_novas_database_has(self):
        for state in self.states:
            self.summary(state.nodename, 1)['traits'].append(
                model.TRAIT_TUNNEL
            )
        spec = self.request()
        spec.requested_destination = objects.Destination(
            cell=objects.CellMapping(uuid=uuids.cell)
        )
        # Nova says of every moved server that it is tunneled.
        spec.network_metadata = objects.NetworkMetadata(
            physnets={'hpc3'}, tunneled=True
        )
        self.moved_networks = objects.NetworkMetadata(
            physnets={'hpc3'}, tunneled=False
        )
        self.assertEqual(['br3'], self.claimed(spec))

    def test_server_on_a_tunneled_network_may_claim_any_uplink(self):
        spec = self.request()
        spec.network_metadata = objects.NetworkMetadata(
            physnets={'hpc2'}, tunneled=True
        )
        self.assertEqual(4, len(self.claimed(spec)))
