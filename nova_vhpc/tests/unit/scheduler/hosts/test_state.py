# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from nova import objects
from nova.scheduler import host_manager
from oslotest import base

from nova_vhpc.scheduler.hosts import capacity
from nova_vhpc.scheduler.hosts import fabric as fabrics
from nova_vhpc.scheduler.hosts import state as hosts
from nova_vhpc.scheduler.sources.snapshot import Resource

objects.register_all()

DEFAULTS = capacity.Defaults(16.0, 1.5, 1.0, cpus=1, ram_mb=512)
SHARED = hosts.Member()
PINNED = hosts.Member(pinned=True)


class CpusTest(base.BaseTestCase):
    """CPUs for shared and for dedicated vCPUs of a host."""

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

    def test_shared_and_dedicated_cpus_are_counted_apart(self):
        self.assert_cpus(
            self.state(
                (range(4), range(4, 16), range(4, 7)),
                (range(20, 24), range(24, 32), [24]),
            ),
            (8, 8),
            (20, 4),
        )

    def test_isolated_emulator_threads_do_not_count_as_shared_cpus(self):
        # Three mixed guests of one shared and one dedicated vCPU, with
        # isolated emulator threads.
        state = self.state((range(4), range(4, 16), range(4, 10)), used=6)
        state.numa_topology.cells[0].cpu_usage = 3
        self.assert_cpus(state, (8, 3), (12, 6))

    def test_host_with_dedicated_cpus_only_has_no_shared_ones(self):
        state = self.state(([], range(4), [1]), total=0, used=1)
        self.assert_cpus(state, (0, 0), (4, 1))

    def test_cpus_of_both_kinds_count_as_either(self):
        state = self.state((range(8), range(8), [1, 2]))
        self.assert_cpus(state, (8, 12), (8, 12))

    def test_shared_cpus_count_as_dedicated_if_there_are_none(self):
        self.assert_cpus(self.state((range(8), [], [])), (8, 12), (8, 12))

    def test_all_cpus_count_as_either_without_numa_topology(self):
        state = self.state()
        state.numa_topology = None
        self.assert_cpus(state, (8, 12), (8, 12))

    def test_dedicated_cpus_are_never_overcommitted(self):
        state = self.state((range(4), range(4, 16), range(4, 7)), total=4)
        fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')
        facts = hosts.facts(state, 'one', 1, 0, fabric, DEFAULTS, PINNED)
        self.assertEqual((12, 3, 9.0), facts[1:4])
        facts = hosts.facts(state, 'one', 1, 0, fabric, DEFAULTS, SHARED)
        self.assertEqual((4, 9, 7.0), facts[1:4])


class FactsTest(base.BaseTestCase):
    def test_capacity_is_multiplied_by_allocation_ratios(self):
        state = host_manager.HostState('one', 'one', 'cell')
        state.vcpus_total = 8
        state.vcpus_used = 4
        state.total_usable_ram_mb = 1000
        state.free_ram_mb = 600
        state.cpu_allocation_ratio = 2.0
        fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')
        facts = hosts.facts(state, 'name', 3, 1000, fabric, DEFAULTS, SHARED)
        self.assertEqual(('name', 8, 4, 12.0), facts[:4])
        # The host has no RAM ratio, so the initial one counts.
        self.assertEqual(1100.0, facts.free_ram_mb)
        self.assertEqual(3, facts.slots)

    def test_free_cpus_follow_the_inventory_in_placement(self):
        state = host_manager.HostState('one', 'one', 'cell')
        state.vcpus_total = 8
        state.vcpus_used = 3
        state.cpu_allocation_ratio = 2.0
        fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')

        def free(member=SHARED, claimed=3, **capacity):
            resources = {k: Resource(v, claimed) for k, v in capacity.items()}
            return hosts.facts(
                state, 'one', 1, 0, fabric, DEFAULTS, member, resources
            ).free_cpus

        self.assertEqual(13.0, free())
        # Placement has another allocation ratio.
        self.assertEqual(9, free(VCPU=12))
        self.assertEqual(29, free(VCPU=32, PCPU=1))
        # Of three used CPUs, one is reserved in nova.conf.
        self.assertEqual(30, free(VCPU=32, claimed=2))
        # A pinned member on a host that reports no dedicated CPUs.
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

    def test_free_ram_follows_the_inventory_in_placement(self):
        state = host_manager.HostState('one', 'one', 'cell')
        state.total_usable_ram_mb = 8192
        state.ram_allocation_ratio = 1.0
        # Two guests, and 512 MB reserved in nova.conf.
        state.free_ram_mb = 8192 - 512 - 2048
        fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')

        def free(capacity):
            resources = {'MEMORY_MB': Resource(capacity, 2048)}
            return hosts.facts(
                state, 'one', 1, 0, fabric, DEFAULTS, SHARED, resources
            ).free_ram_mb

        self.assertEqual(7680 - 2048, free(7680))
        self.assertEqual(2 * 7680 - 2048, free(2 * 7680))
        self.assertEqual(7680 // 2 - 2048, free(7680 // 2))

    def test_ram_ratio_of_the_host_overrides_the_option(self):
        state = host_manager.HostState('one', 'one', 'cell')
        fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')
        state.total_usable_ram_mb, state.free_ram_mb = 8192, 4096
        for ratio, free_mb in ((None, 8192), (2.0, 12288)):
            state.ram_allocation_ratio = ratio
            facts = hosts.facts(state, 'one', 1, 0, fabric, DEFAULTS, SHARED)
            self.assertEqual(free_mb, facts.free_ram_mb)

    def test_only_isolated_emulator_threads_need_a_cpu(self):
        spec = objects.RequestSpec()
        self.assertEqual(0, hosts.emulator_cpus(spec))
        spec.numa_topology = None
        self.assertEqual(0, hosts.emulator_cpus(spec))
        for policy, cpus in ((None, 0), ('share', 0), ('isolate', 1)):
            spec.numa_topology = objects.InstanceNUMATopology(
                cells=[], emulator_threads_policy=policy
            )
            self.assertEqual(cpus, hosts.emulator_cpus(spec), policy)

    def test_new_compute_node_has_no_capacity(self):
        state = host_manager.HostState('new', 'new', 'cell')
        fabric = fabrics.Fabric('vhpc:switch', 'vhpc:rack')
        facts = hosts.facts(state, 'new', 0, 0, fabric, DEFAULTS, SHARED)
        self.assertEqual((0, 0, 0.0, 0.0), facts[1:5])
