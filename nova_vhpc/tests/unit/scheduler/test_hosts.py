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

import fixtures
from nova import objects
from nova.objects import pci_device_pool
from nova.pci import stats
from nova.scheduler import host_manager
from oslotest import base

from nova_vhpc.scheduler import hosts, room
from nova_vhpc.scheduler.planner_model import NO_LIMIT
from nova_vhpc.scheduler.snapshot import Resource

objects.register_all()

DEFAULTS = room.Defaults(16.0, 1.5, 1.0, cpus=1, ram_mb=512)
SHARED = hosts.Member()
PINNED = hosts.Member(pinned=True)


def aggregate(number, names=(), **metadata):
    return objects.Aggregate(
        id=number,
        hosts=list(names),
        metadata={f'vhpc:{key}': metadata[key] for key in metadata},
    )


class FabricTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.fabric = hosts.Fabric('vhpc:switch', 'vhpc:rack')
        self.state = host_manager.HostState('one', 'one', 'cell')

    def test_no_aggregate(self):
        self.assertEqual((None, None), self.fabric.place(self.state))

    def test_switch_and_rack_may_come_from_two_aggregates(self):
        self.state.aggregates = [
            aggregate(1, switch='a'),
            aggregate(2, other='x'),
            aggregate(3, rack='r'),
        ]
        self.assertEqual(('a', 'r'), self.fabric.place(self.state))

    def test_aggregates_of_two_switches(self):
        # Nova has the aggregates of a host in any order.
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        a = aggregate(1, ['one', 'two'], switch='a', rack='s')
        b = aggregate(2, ['one', 'two'], switch='b', rack='r')
        two = host_manager.HostState('two', 'two', 'cell')
        two.aggregates = [b, a]
        for aggregates in ([a, b], [b, a]):
            fabric = hosts.Fabric('vhpc:switch', 'vhpc:rack')
            self.state.aggregates = aggregates
            self.assertEqual(('a', 'r'), fabric.place(self.state))
            self.assertEqual(('a', 'r'), fabric.place(two))
            self.assertEqual(('a', 'r'), fabric.place_of('two'))
        self.assertEqual(1, log.output.count('two values of vhpc:switch'))

    def test_hosts_that_did_not_pass_are_known_by_their_neighbours(self):
        self.state.aggregates = [
            aggregate(1, ['one', 'full'], switch='a'),
            aggregate(2, ['one', 'full', 'far'], rack='r'),
        ]
        self.fabric.place(self.state)
        self.assertEqual(('a', 'r'), self.fabric.place_of('full'))
        self.assertEqual((None, 'r'), self.fabric.place_of('far'))
        self.assertEqual((None, None), self.fabric.place_of('unknown'))

    def test_racks_that_no_neighbour_tells(self):
        self.state.aggregates = [aggregate(1, ['one', 'full'], switch='a')]
        self.fabric.place(self.state)
        # Where no host has a rack, it does not matter.
        self.assertEqual(set(), self.fabric.racks_missing(['full', 'far']))
        self.state.aggregates = [aggregate(2, ['one'], rack='r')]
        self.fabric.place(self.state)
        self.assertEqual(
            {'full', 'far'}, self.fabric.racks_missing(['one', 'full', 'far'])
        )
        self.fabric.add_racks({'full': 'q', 'far': 'r'})
        self.assertEqual(('a', 'q'), self.fabric.place_of('full'))
        self.assertEqual((None, 'r'), self.fabric.place_of('far'))
        self.assertEqual(set(), self.fabric.racks_missing(['full', 'far']))


class CpusTest(base.BaseTestCase):
    """Dedicated CPUs are a pool of their own where there are any."""

    def state(self, *cells, total=8, used=12):
        state = host_manager.HostState('one', 'one', 'cell')
        state.vcpus_total = total
        state.vcpus_used = used
        state.cpu_allocation_ratio = 4.0
        state.numa_topology = objects.NUMATopology(
            cells=[
                objects.NUMACell(
                    id=number,
                    cpuset=set(cpuset),
                    pcpuset=set(pcpuset),
                    pinned_cpus=set(pinned),
                    cpu_usage=0,
                )
                for number, (cpuset, pcpuset, pinned) in enumerate(cells)
            ]
        )
        return state

    def assert_cpus(self, state, shared, dedicated):
        self.assertEqual(shared, hosts.cpus(state, False)[:2])
        self.assertEqual(dedicated, hosts.cpus(state, True)[:2])

    def test_both_kinds(self):
        self.assert_cpus(
            self.state(
                (range(4), range(4, 16), range(4, 7)),
                (range(20, 24), range(24, 32), [24]),
            ),
            (8, 8),
            (20, 4),
        )

    def test_emulator_threads_are_no_guests(self):
        # Three mixed guests of a shared and a dedicated one, and isolated.
        state = self.state((range(4), range(4, 16), range(4, 10)), used=6)
        state.numa_topology.cells[0].cpu_usage = 3
        self.assert_cpus(state, (8, 3), (12, 6))

    def test_only_dedicated_ones(self):
        state = self.state(([], range(4), [1]), total=0, used=1)
        self.assert_cpus(state, (0, 0), (4, 1))

    def test_all_cpus_are_for_either(self):
        state = self.state((range(8), range(8), [1, 2]))
        self.assert_cpus(state, (8, 12), (8, 12))

    def test_no_dedicated_ones(self):
        self.assert_cpus(self.state((range(8), [], [])), (8, 12), (8, 12))

    def test_no_topology(self):
        state = self.state()
        state.numa_topology = None
        self.assert_cpus(state, (8, 12), (8, 12))

    def test_dedicated_ones_are_never_over_committed(self):
        state = self.state((range(4), range(4, 16), range(4, 7)), total=4)
        fabric = hosts.Fabric('vhpc:switch', 'vhpc:rack')
        facts = hosts.facts(state, 'one', 1, 0, fabric, DEFAULTS, PINNED)
        self.assertEqual((12, 3, 9.0), facts[1:4])
        facts = hosts.facts(state, 'one', 1, 0, fabric, DEFAULTS, SHARED)
        self.assertEqual((4, 9, 7.0), facts[1:4])


class FactsTest(base.BaseTestCase):
    def test_allocation_ratios(self):
        state = host_manager.HostState('one', 'one', 'cell')
        state.vcpus_total = 8
        state.vcpus_used = 4
        state.total_usable_ram_mb = 1000
        state.free_ram_mb = 600
        state.cpu_allocation_ratio = 2.0
        fabric = hosts.Fabric('vhpc:switch', 'vhpc:rack')
        facts = hosts.facts(state, 'name', 3, 1000, fabric, DEFAULTS, SHARED)
        self.assertEqual(('name', 8, 4, 12.0), facts[:4])
        # No ratio of its own for RAM: the initial one counts.
        self.assertEqual(1100.0, facts.free_ram_mb)
        self.assertEqual(3, facts.slots)

    def test_cpus_that_placement_gives_out(self):
        state = host_manager.HostState('one', 'one', 'cell')
        state.vcpus_total = 8
        state.vcpus_used = 3
        state.cpu_allocation_ratio = 2.0
        fabric = hosts.Fabric('vhpc:switch', 'vhpc:rack')

        def free(member=SHARED, claimed=3, **capacity):
            resources = {k: Resource(v, claimed) for k, v in capacity.items()}
            return hosts.facts(
                state, 'one', 1, 0, fabric, DEFAULTS, member, resources
            ).free_cpus

        self.assertEqual(13.0, free())
        # The ratio is another one there.
        self.assertEqual(9, free(VCPU=12))
        self.assertEqual(29, free(VCPU=32, PCPU=1))
        # Of three in use, one is reserved, as nova.conf says.
        self.assertEqual(30, free(VCPU=32, claimed=2))
        # Pinned on a host that reports no dedicated CPUs.
        self.assertEqual(9, free(PINNED, VCPU=12))
        state.numa_topology = objects.NUMATopology(
            cells=[
                objects.NUMACell(
                    id=0,
                    cpuset=set(range(8)),
                    pcpuset=set(range(8, 16)),
                    pinned_cpus={8, 9},
                    cpu_usage=0,
                )
            ]
        )
        self.assertEqual(6.0, free(PINNED, VCPU=12))
        self.assertEqual(5, free(PINNED, VCPU=12, PCPU=7))
        self.assertEqual(11, free(VCPU=12, PCPU=7))

    def test_ram_that_placement_gives_out(self):
        state = host_manager.HostState('one', 'one', 'cell')
        state.total_usable_ram_mb = 8192
        state.ram_allocation_ratio = 1.0
        # Two guests, and 512 reserved as nova.conf has it.
        state.free_ram_mb = 8192 - 512 - 2048
        fabric = hosts.Fabric('vhpc:switch', 'vhpc:rack')

        def free(capacity):
            resources = {'MEMORY_MB': Resource(capacity, 2048)}
            return hosts.facts(
                state, 'one', 1, 0, fabric, DEFAULTS, SHARED, resources
            ).free_ram_mb

        self.assertEqual(7680 - 2048, free(7680))
        self.assertEqual(2 * 7680 - 2048, free(2 * 7680))
        self.assertEqual(7680 // 2 - 2048, free(7680 // 2))

    def test_emulator_threads(self):
        spec = objects.RequestSpec()
        self.assertEqual(0, hosts.emulator_cpus(spec))
        spec.numa_topology = None
        self.assertEqual(0, hosts.emulator_cpus(spec))
        for policy, cpus in ((None, 0), ('share', 0), ('isolate', 1)):
            spec.numa_topology = objects.InstanceNUMATopology(
                cells=[], emulator_threads_policy=policy
            )
            self.assertEqual(cpus, hosts.emulator_cpus(spec), policy)

    def test_new_compute_node(self):
        state = host_manager.HostState('new', 'new', 'cell')
        fabric = hosts.Fabric('vhpc:switch', 'vhpc:rack')
        facts = hosts.facts(state, 'new', 0, 0, fabric, DEFAULTS, SHARED)
        self.assertEqual((0, 0, 0.0, 0.0), facts[1:5])


class DevicesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.state = host_manager.HostState('one', 'one', 'cell')
        self.state.pci_stats = stats.PciDeviceStats(
            None,
            stats=pci_device_pool.PciDevicePoolList(
                objects=[
                    self.pool(3, physical_network='fabric'),
                    self.pool(2, product_id='ffff'),
                ]
            ),
        )

    def pool(self, count, product_id='154c', **tags):
        return pci_device_pool.PciDevicePool(
            vendor_id='8086',
            product_id=product_id,
            numa_node=0,
            count=count,
            tags={'dev_type': 'type-VF', **tags},
        )

    def request(self, count=1, alias='hpc', **spec):
        return objects.InstancePCIRequest(
            count=count, alias_name=alias, spec=[spec]
        )

    def test_alias(self):
        request = self.request(2, vendor_id='8086', product_id='154c')
        self.assertIsNone(hosts.devices_lack(self.state, [request]))
        self.assertEqual(1, hosts.device_members(self.state, [request]))

    def test_port(self):
        request = self.request(alias=None, physical_network='fabric')
        self.assertEqual(3, hosts.device_members(self.state, [request]))
        request = self.request(alias=None, physical_network='other')
        self.assertEqual(
            'it has 0 free PCI device(s) for a port on physical network '
            'other, 1 are needed',
            hosts.devices_lack(self.state, [request]),
        )

    def test_just_enough(self):
        request = self.request(3, product_id='154c')
        self.assertIsNone(hosts.devices_lack(self.state, [request]))

    def test_too_few(self):
        request = self.request(4, product_id='154c')
        self.assertIn(
            'it has 3 free PCI device(s) for alias hpc, 4 are needed',
            hosts.devices_lack(self.state, [request]),
        )

    def test_several_ports_take_from_the_same_devices(self):
        ports = [
            self.request(alias=None, physical_network='fabric')
            for _ in range(2)
        ]
        self.assertIsNone(hosts.devices_lack(self.state, ports))
        self.assertEqual(1, hosts.device_members(self.state, ports))
        self.assertEqual(
            'it has 3 free PCI device(s) for a port on physical network '
            'fabric, 4 are needed',
            hosts.devices_lack(self.state, ports * 2),
        )
        self.assertEqual(0, hosts.device_members(self.state, ports * 2))

    def test_devices_of_two_kinds(self):
        port = self.request(alias=None, physical_network='fabric')
        other = self.request(alias='other', product_id='ffff')
        self.assertEqual(2, hosts.device_members(self.state, [port, other]))
        # Five devices serve the alias, of which the port wants one.
        any_vf = self.request(4, vendor_id='8086')
        self.assertIsNone(hosts.devices_lack(self.state, [any_vf, port]))
        self.assertIn(
            'it has 5 free PCI device(s)',
            hosts.devices_lack(self.state, [any_vf, port, other]),
        )

    def test_nothing_reported_yet(self):
        new = host_manager.HostState('new', 'new', 'cell')
        self.assertIn(
            'no PCI devices yet', hosts.devices_lack(new, [self.request()])
        )
        self.assertEqual(0, hosts.device_members(new, [self.request()]))

    def test_nothing_asked_for(self):
        self.assertEqual(NO_LIMIT, hosts.device_members(self.state, []))
        self.assertEqual(0, hosts.devices_asked([]))
