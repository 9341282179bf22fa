# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import itertools
from unittest import mock

from nova import objects
from nova.scheduler import host_manager
from oslotest import base

from nova_vhpc.scheduler.hosts import capacity
from nova_vhpc.scheduler.hosts import state as host_state
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.sources.snapshot import Resource
from nova_vhpc.tests.unit.scheduler import world

objects.register_all()


class FreeCapacityTest(base.BaseTestCase):
    """Free capacity from the figures of host state and Placement."""

    def test_host_state_alone_counts_without_placement(self):
        self.assertEqual(
            13.0, capacity.free(capacity.Inventory(8, 2.0, 3), None)
        )

    def test_free_capacity_is_exact_if_both_count_the_same_guests(self):
        ratios = (0.5, 1.0, 1.5, 4.0)
        for values in itertools.product(
            ratios, ratios, (0, 2), (0, 5), (0, 3)
        ):
            ratio, placement_ratio, reserved, guests, placed = values
            if placement_ratio > ratio:
                conf = reserved
            elif placement_ratio < ratio:
                conf = 99  # has no effect
            else:
                conf = 0
            in_placement = int((100 - reserved) * placement_ratio)
            self.assertEqual(
                in_placement - guests - placed,
                capacity.free(
                    capacity.Inventory(
                        100, ratio, reserved + guests + placed, placed, conf
                    ),
                    Resource(in_placement, guests),
                ),
                values,
            )

    def test_rounding_of_a_ratio_does_not_reduce_free_capacity(self):
        inventory = capacity.Inventory(131072, 0.7, 512 + 5)
        self.assertLessEqual(
            91387, capacity.free(inventory, Resource(91392, 5))
        )

    def test_guests_since_the_last_read_do_not_count_as_reserved(self):
        inventory = capacity.Inventory(100, 1.0, 2 + 5 + 20)
        self.assertEqual(98 - 25, capacity.free(inventory, Resource(98, 5)))
        # With a greater ratio in Placement, nova.conf says what is reserved.
        inventory = capacity.Inventory(100, 1.0, 2 + 5 + 20, reserved=2)
        self.assertEqual(196 - 25, capacity.free(inventory, Resource(196, 5)))

    def test_guests_that_left_since_the_last_read_do_not_count(self):
        inventory = capacity.Inventory(100, 1.0, 2 + 5)
        self.assertEqual(98 - 7, capacity.free(inventory, Resource(98, 25)))


class DefaultsTest(base.BaseTestCase):
    def test_each_default_comes_from_its_option(self):
        conf = mock.Mock(
            initial_cpu_allocation_ratio=4.5,
            initial_ram_allocation_ratio=1.5,
            initial_disk_allocation_ratio=2.5,
            reserved_host_cpus=3,
            reserved_host_memory_mb=512,
            reserved_host_disk_mb=7,
        )
        self.assertEqual(
            capacity.Defaults(
                cpu_ratio=4.5,
                ram_ratio=1.5,
                disk_ratio=2.5,
                cpus=3,
                ram_mb=512,
                disk_mb=7,
            ),
            capacity.Defaults.from_conf(conf),
        )


class BesideTest(base.BaseTestCase):
    """Disk, and dedicated CPUs of members that have shared ones, too."""

    def setUp(self):
        super().setUp()
        self.state = host_manager.HostState('one', 'one', 'cell')
        self.state.total_usable_disk_gb = 100
        self.state.disk_mb_used = 30 << 10
        self.resources = {'DISK_GB': Resource(100, 30)}

    def members(
        self, pinned=False, placed=0, ratio=1.0, disk_mb=10 << 10, **asked
    ):
        return host_state.members_beside(
            self.state,
            asked,
            capacity.Defaults(16.0, 1.0, ratio, disk_mb=disk_mb),
            pinned,
            self.resources,
            placed,
        )

    def test_disk(self):
        self.assertEqual(NO_LIMIT, self.members(VCPU=2))
        self.assertEqual(7, self.members(DISK_GB=10))
        self.assertEqual(5, self.members(DISK_GB=10, placed=2))
        self.assertEqual(0, self.members(DISK_GB=71))
        self.assertEqual(0, self.members(DISK_GB=10, placed=9))

    def test_disk_that_placement_has_another_ratio_for(self):
        self.resources = {'DISK_GB': Resource(200, 30)}
        self.assertEqual(17, self.members(DISK_GB=10))
        # Ten are reserved, as nova.conf says.
        self.resources = {'DISK_GB': Resource(180, 20)}
        self.assertEqual(16, self.members(DISK_GB=10))

    def test_disk_by_the_ratio_of_the_host_or_the_option(self):
        # Ten are reserved, as the figures of Nova and Placement tell.
        self.state.disk_mb_used = 40 << 10
        self.resources = {'DISK_GB': Resource(180, 30)}
        self.assertEqual(15, self.members(DISK_GB=10, ratio=2.0, disk_mb=0))
        self.state.disk_allocation_ratio = 2.0
        self.assertEqual(15, self.members(DISK_GB=10, disk_mb=0))

    def test_disk_of_members_that_were_just_placed_is_not_reserved(self):
        self.resources = {'DISK_GB': Resource(55, 30)}
        self.assertEqual(2, self.members(DISK_GB=10))
        self.assertEqual(1, self.members(DISK_GB=10, placed=1))
        self.assertEqual(0, self.members(DISK_GB=10, placed=2))

    def test_disk_elsewhere(self):
        # A volume, or a sharing provider: Placement has none of the host's.
        self.resources = {}
        self.assertEqual(NO_LIMIT, self.members(DISK_GB=71))

    def test_dedicated_cpus_of_a_mixed_member(self):
        self.assertEqual(NO_LIMIT, self.members(VCPU=1, PCPU=3))
        self.state.vcpus_total = 4
        self.state.numa_topology = objects.NUMATopology(
            cells=[
                objects.NUMACell(
                    id=0,
                    cpuset=set(range(4)),
                    pcpuset=set(range(4, 12)),
                    pinned_cpus={4},
                    cpu_usage=0,
                )
            ]
        )
        self.assertEqual(2, self.members(VCPU=1, PCPU=3))
        self.assertEqual(1, self.members(VCPU=1, PCPU=4))
        # Of a pinned member the plan counts them itself.
        self.assertEqual(NO_LIMIT, self.members(PCPU=4, pinned=True))
        # Another one wants none.
        self.assertEqual(NO_LIMIT, self.members(VCPU=4))
        # What is short counts.
        self.assertEqual(1, self.members(VCPU=1, PCPU=3, DISK_GB=40))
        self.assertEqual(2, self.members(VCPU=1, PCPU=3, DISK_GB=10))
        # Placement gives six out, of which one is taken, and two by a member
        # that was just placed.
        self.resources['PCPU'] = Resource(6, 1)
        self.state.numa_topology.cells[0].pinned_cpus = {4, 5, 6}
        self.assertEqual(1, self.members(VCPU=1, PCPU=2, placed=1))
        self.resources['PCPU'] = Resource(2, 1)
        self.assertEqual(0, self.members(VCPU=1, PCPU=2, placed=1))


class PlanTest(world.WorldTestCase):
    """Affinity ties all members to the first one's host."""

    def host_of_three(self, **lacking):
        """Where the plan puts three members; the fullest host lacks this."""
        full = self.states[-1]
        full.vcpus_used += 1
        resources = self.body['provider_summaries'][full.uuid]['resources']
        resources.update(
            {k: {'capacity': v, 'used': 0} for k, v in lacking.items()}
        )
        placed = self.place(self.request(3, 'affinity'))
        return {host for host, _ in placed}

    def test_fullest_host_first(self):
        self.assertEqual({'host00003'}, self.host_of_three())

    def test_ram(self):
        self.assertNotIn('host00003', self.host_of_three(MEMORY_MB=2048))

    def test_members_that_were_just_placed_are_not_reserved(self):
        # Ratios in Placement are far below Nova's.
        lower = {'MEMORY_MB': (8192, 1024), 'VCPU': (9, 1)}
        for state in self.states:
            state.vcpus_used = 1
            own = self.body['provider_summaries'][state.uuid]['resources']
            for name, (total, used) in lower.items():
                own[name] = {'capacity': total, 'used': used}
        spec = self.request(3)
        ((name, _), *others) = self.place(spec)
        on_host = 1 + sum(host == name for host, _ in others)
        self.filter.filter_all(self.states, spec)
        host_info = next(s._vhpc for s in self.states if s.host == name)
        (fact,) = host_info.state._vhpc.session.plan_score._facts([host_info])
        self.assertEqual(8192 - 1024 * (1 + on_host), fact.free_ram_mb)
        self.assertEqual(9 - 1 - 2 * on_host, fact.free_cpus)

    def test_disk(self):
        for state in self.states:
            state.total_usable_disk_gb = 100
            for candidate in state.allocation_candidates:
                own = candidate['allocations'][state.uuid]
                own['resources']['DISK_GB'] = 1
        self.assertNotIn('host00003', self.host_of_three(DISK_GB=2))
