# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import copy
import logging
import threading
import time
from pathlib import Path

import fixtures
from nova import objects
from nova.objects import pci_device_pool
from nova.pci import stats
from nova.scheduler import filters as nova_filters
from nova.scheduler import host_manager
from oslo_config import cfg
from oslo_utils import uuidutils

from nova_vhpc.scheduler import filters, weights
from nova_vhpc.scheduler.session import session
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.scheduler import world
from nova_vhpc.topology import model
from nova_vhpc_lab.bench.scheduler import world as scheduler_world


class FilterTest(world.WorldTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger('nova_vhpc', level=logging.DEBUG)
        )

    def test_request_without_extra_specs_passes_all_hosts(self):
        spec = scheduler_world.request(1, 'affinity', {'hw:cpu_policy': 'x'})
        self.assertIs(self.states, self.filter.filter_all(self.states, spec))
        self.assertEqual([], self.reads)

    def test_flavor_without_extra_specs_attribute_passes_all_hosts(self):
        spec = self.request()
        spec.flavor = objects.Flavor(flavorid='old', vcpus=1, memory_mb=1)
        self.assertIs(self.states, self.filter.filter_all(self.states, spec))

    def test_rebuild_passes_all_hosts(self):
        spec = self.request()
        spec.scheduler_hints = {'_nova_check_type': ['rebuild']}
        for state in self.states:
            state.allocation_candidates = []
        self.assertIs(self.states, self.filter.filter_all(self.states, spec))

    def test_other_check_types_are_filtered(self):
        spec = self.request()
        spec.scheduler_hints = {'_nova_check_type': ['live_migrate']}
        self.summary('host00002', 0)['resources'][model.UPLINK].update(
            capacity=0
        )
        self.assertEqual(4, len(self.passing(spec)))
        self.body['provider_summaries'].clear()
        self.cache.refresh()
        self.assertEqual([], self.passing(self.request()))

    def test_empty_list_stays_empty(self):
        self.assertEqual([], self.filter.filter_all([], self.request()))

    def test_single_host_passes(self):
        spec = self.request()
        self.assertTrue(self.filter.host_passes(self.states[0], spec))

    def test_every_rejection_is_logged_once_with_its_reason(self):
        for port in range(4):
            self.summary('host00002', port)['resources'][model.MBPS][
                'capacity'
            ] = 100
        spec = self.request(members=3)
        self.place(spec)
        lines = [
            line
            for line in self.log.output.splitlines()
            if 'host00002 cannot take' in line
        ]
        self.assertEqual(1, len(lines), self.log.output)
        self.assertIn('NIC eth0 on bridge br0', lines[0])

    def test_rejection_of_all_hosts_is_logged_as_a_summary(self):
        self.body['provider_summaries'].clear()
        self.assertEqual([], self.passing(self.request()))
        self.assertIn('None of 4 host(s) can take', self.log.output)

    def test_host_without_free_uplinks_is_logged_once(self):
        placed = self.place(self.request(members=17))
        self.assertEqual([None], placed[16:])
        lines = [
            line
            for line in self.log.output.splitlines()
            if line.startswith('Host ')
        ]
        self.assertEqual(4, len(lines))
        for line in lines:
            self.assertIn('is not claimed by another member', line)

    def test_full_hosts_are_not_logged_after_the_last_member(self):
        # Nova calls the filter again, for alternates.
        spec = self.request(members=16)
        self.assertNotIn(None, self.place(spec))
        before = self.log.output
        self.passing(spec)
        self.assertEqual(before, self.log.output)

    def test_request_without_uplinks_waits_for_no_read(self):
        spec = scheduler_world.request(
            1, 'affinity', {'vhpc:workload': 'parallel'}
        )
        done = threading.Event()
        self.addCleanup(done.set)
        self.cache._get = lambda path, version: done.wait()
        self.flags(first_read_timeout=600)
        self.assertEqual(4, len(self.passing(spec)))
        self.assertFalse(done.is_set())

    def test_old_publication_is_stale(self):
        self.flags(topology_max_age=1200)
        for minutes, passing in ((1, 4), (30, 0)):
            for summary in self.body['provider_summaries'].values():
                if model.STAMP in summary['resources']:
                    summary['resources'][model.STAMP]['capacity'] = int(
                        time.time() / 60 - minutes
                    )
            # The cache's thread may still store an earlier answer.
            waiting.wait_for(
                lambda passing=passing: self.count_refreshed() == passing
            )
        self.assertIn('its agent last published', self.log.output)

    def count_refreshed(self):
        """Return the number of hosts that pass after a read of Placement."""
        self.cache.refresh()
        self.states = scheduler_world.World(self.hosts).states
        return len(self.passing(self.request()))

    def test_invalid_extra_specs_are_logged_once(self):
        for _ in range(3):
            spec = self.request(vhpc_io_pool='sometimes')
            self.assertEqual(4, len(self.passing(spec)))
        self.assertEqual(1, self.log.output.count("'sometimes' is not"))

    def test_extra_specs_without_effect_are_logged_once(self):
        spec = self.request(
            vhpc_network='exported', vhpc_min_link_mbps='100000'
        )
        for _ in range(2):
            self.passing(spec)
            for state in self.states:
                del state._vhpc
        self.assertEqual(
            1, self.log.output.count('vhpc:min_link_mbps is compared with')
        )

    def test_overcommit_of_zero_leaves_no_host_and_says_so(self):
        spec = self.request(vhpc_max_overcommit='0', vhpc_paradigm='openmp')
        self.assertEqual([], self.passing(spec))
        self.assertIn(
            'max_overcommit=0, which leaves no host', self.log.output
        )

    def test_invalid_option_stops_filter_and_weigher_at_start(self):
        text = '[vhpc_scheduler]\nmax_overcommit = openmpi:1.0\n'
        path = Path(self.useFixture(fixtures.TempDir()).path, 'nova.conf')
        path.write_text(text)
        world.CONF([], default_config_files=[str(path)], project='nova')
        for loaded in (
            filters.VirtualClusterFilter,
            weights.VirtualClusterWeigher,
        ):
            error = self.assertRaises(cfg.ConfigFileValueError, loaded)
            self.assertIn('max_overcommit', str(error))

    def test_compute_node_without_stats_does_not_pass(self):
        new = host_manager.HostState('new', 'new', 'cell')
        self.assertFalse(hasattr(new, 'stats'))
        spec = self.request()
        self.assertNotIn('new', self.passing(spec, [*self.states, new]))
        self.assertIn('new cannot take', self.log.output)

    def test_simultaneous_requests_have_separate_sessions(self):
        first = self.request(members=2)
        second = self.request(members=2)
        others = scheduler_world.World(self.hosts).states
        self.passing(first)
        self.passing(second, others)
        self.assertIsNot(self.states[0]._vhpc.session, others[0]._vhpc.session)
        self.assertEqual(4, len(self.passing(first)))

    def test_alternates_are_the_same_hosts_without_new_log_lines(self):
        spec = self.request(members=2)
        self.place(spec)
        before = self.log.output
        again = self.passing(spec)
        self.assertEqual(again, self.passing(spec))
        self.assertEqual(4, len(again))
        self.assertEqual(before, self.log.output)


class ExportedTest(world.WorldTestCase):
    """Members need a PCI device; one of four hosts has two."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(
            fixtures.FakeLogger('nova_vhpc', level=logging.DEBUG)
        )
        for number, state in enumerate(self.states):
            state.pci_stats = self.devices(2 if number == 1 else 0)

    def devices(self, count):
        pool = pci_device_pool.PciDevicePool(
            vendor_id='8086',
            product_id='154c',
            numa_node=None,
            count=count,
            tags={'dev_type': 'type-VF'},
        )
        pools = pci_device_pool.PciDevicePoolList(
            objects=[pool] if count else []
        )
        return stats.PciDeviceStats(None, stats=pools)

    def ask(self, asks_for_device=True):
        spec = scheduler_world.request(
            3, 'soft-affinity', {'vhpc:network': 'exported'}
        )
        wanted = objects.InstancePCIRequest(
            count=1,
            alias_name='hpc',
            spec=[{'vendor_id': '8086', 'product_id': '154c'}],
            request_id=uuidutils.generate_uuid(),
        )
        spec.pci_requests = objects.InstancePCIRequests(
            requests=[wanted] if asks_for_device else []
        )
        return spec

    def test_host_takes_as_many_members_as_it_has_free_devices(self):
        spec = self.ask()
        for _ in range(2):
            self.assertEqual(['host00001'], self.passing(spec))
            self.states[1].consume_from_request(spec)
        self.assertEqual([], self.passing(spec))
        self.assertIn(
            'Host host00001 cannot take a member of this virtual cluster: it '
            'has 0 free PCI device(s) for alias hpc',
            self.log.output,
        )

    def test_server_without_device_request_has_no_host(self):
        self.assertEqual([], self.passing(self.ask(asks_for_device=False)))
        self.assertIn('ask for a PCI device', self.log.output)


def pinned_topology(**fields):
    """Return the topology of a guest with two dedicated CPUs."""
    return objects.InstanceNUMATopology(
        cells=[
            objects.InstanceNUMACell(
                id=0, cpuset=set(), pcpuset={0, 1}, memory=1024
            )
        ],
        **fields,
    )


class Replacing(nova_filters.CandidateFilterMixin):
    """Replaces a host's candidates with a new list, as Nova's filters do."""

    def host_passes(self, state):
        return bool(self.filter_candidates(state, lambda _: True))


class AllocationCandidateTest(world.WorldTestCase):
    hosts = 2

    def test_each_member_has_an_uplink_of_its_own(self):
        placed = self.place(self.request(members=8))
        self.assertNotIn(None, placed)
        self.assertEqual(8, len({uplink for _, uplink in placed}))

    def test_pinned_members_claim_no_shared_cpus(self):
        spec = self.request(members=3)
        spec.numa_topology = pinned_topology()
        for state in self.states[1:]:
            pinned = copy.deepcopy(state.allocation_candidates)
            for candidate in pinned:
                own = candidate['allocations'][state.uuid]['resources']
                own['PCPU'] = own.pop('VCPU')
            # Nova appends the candidates of its fallback query for VCPU.
            state.allocation_candidates[:0] = pinned
        self.assertEqual(2, len(self.passing(spec)))
        kinds = [
            {
                kind
                for candidate in state.allocation_candidates
                for kind in candidate['allocations'][state.uuid]['resources']
            }
            - {'MEMORY_MB'}
            for state in self.states
        ]
        self.assertEqual([{'VCPU'}, {'PCPU'}], kinds)

    def test_pinned_members_take_a_cpu_for_emulator_threads(self):
        spec = self.request(members=3)
        spec.numa_topology = pinned_topology(emulator_threads_policy='isolate')
        self.passing(spec)
        self.assertEqual(3, self.states[0]._vhpc.session.requirements.vcpus)

    def test_ninth_member_for_eight_uplinks_is_not_placed(self):
        placed = self.place(self.request(members=9))
        self.assertEqual(1, placed.count(None))

    def test_used_uplinks_have_no_slots(self):
        state = self.states[0]
        for port in (1, 2):
            self.summary('host00000', port)['resources'][model.UPLINK] = {
                'capacity': 1,
                'used': 1,
            }
            state.allocation_candidates.pop(1)
        self.states = [state]
        spec = self.request(members=2)
        for left in (1, 0):
            self.place(spec, uuids=spec.instance_group.members[left:][:1])
            self.passing(spec)
            current = session.SchedulingSession.of_host_state(state, spec)
            self.assertEqual(
                left, current.host_fit.slots(current.host_info(state))
            )

    def test_member_that_lost_a_race_tries_each_uplink_once(self):
        free = scheduler_world.uplink_uuids('host00001')[3]
        tried = []

        def claim(candidate):
            (uplink,) = candidate['mappings']['_uplink']
            tried.append(uplink)
            return uplink == free

        placed = self.place(self.request(), claim)
        self.assertEqual([('host00001', free)], placed)
        self.assertEqual(len(tried), len(set(tried)))

    def race(self, members, spared=0):
        """Place members while another request claims uplinks.

        It takes the first uplink that is tried on each host.

        :param spared: number of hosts, of those tried first, on which it
            takes none.
        """
        lost = {}
        tried = []

        def claims(candidate):
            (uplink,) = candidate['mappings']['_uplink']
            (root,) = candidate['mappings']['']
            tried.append(uplink)
            first = None if len(lost) < spared else uplink
            return lost.setdefault(root, first) != uplink

        placed = self.place(
            self.request(members), claims, before=Replacing().host_passes
        )
        self.assertNotIn(None, placed)
        self.assertEqual(len(tried), len(set(tried)))

    def test_each_uplink_is_tried_once_if_candidates_are_replaced_before(self):
        """NUMATopologyFilter, which pinned members need, replaces them."""
        self.race(members=3 * self.hosts)

    def test_each_uplink_is_tried_once_if_first_host_is_spared(self):
        """Its candidates are replaced, too, when members are placed."""
        self.race(members=7, spared=1)

    def test_members_have_own_uplinks_if_candidates_are_replaced_after(self):
        placed = self.place(
            self.request(members=8), after=Replacing().host_passes
        )
        self.assertNotIn(None, placed)
        self.assertEqual(8, len({uplink for _, uplink in placed}))

    def test_members_have_own_uplinks_without_network_configuration(self):
        spec = self.request(members=8)
        del spec.flavor.extra_specs['vhpc:network']
        del spec.flavor.extra_specs['vhpc:min_link_mbps']
        placed = self.place(spec)
        self.assertEqual(8, len({uplink for _, uplink in placed}))

    def test_choice_of_a_host_by_chance_is_logged_once(self):
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc.scheduler'))
        filters.VirtualClusterFilter()
        self.assertEqual('', log.output)
        world.CONF.set_override('host_subset_size', 3, 'filter_scheduler')
        self.addCleanup(
            world.CONF.clear_override, 'host_subset_size', 'filter_scheduler'
        )
        found = filters.VirtualClusterFilter()
        list(found.filter_all(self.states, self.request()))
        self.assertEqual(1, log.output.count('host_subset_size is 3'))

    def test_attempts_per_member_are_limited(self):
        # At least one attempt per host, at most one per uplink.
        for attempts, made in ((3, 3), (6, 6), (20, 8), (0, 2)):
            self.flags(claim_attempts=attempts)
            self.states = scheduler_world.World(self.hosts).states
            tried = []
            placed = self.place(self.request(), tried.append)
            self.assertEqual([None], placed)
            self.assertEqual(made, len(tried))

    def test_alternate_passes_if_the_last_host_was_dropped(self):
        # Another filter has dropped it; only alternates are left.
        self.flags(claim_attempts=0)
        spec = self.request(vhpc_max_overcommit='1')
        first, second = self.states[:2]
        second.vcpus_used = second.vcpus_total
        (passing,) = self.filter.filter_all([first, second], spec)
        self.assertIs(first, passing)
        self.assertIsNotNone(passing.allocation_candidates[0])
        first.consume_from_request(spec)
        self.assertEqual([second], self.filter.filter_all([second], spec))

    def test_members_after_a_full_host_go_to_the_next_one(self):
        spec = self.request(members=3, vhpc_max_overcommit='1')
        # Of its 32 CPUs the first host has enough left for one member.
        self.states[0].vcpus_used = 30
        self.states[1].vcpus_used = 28
        placed = self.place(spec)
        self.assertEqual(
            ['host00000', 'host00001', 'host00001'],
            sorted(host for host, _ in placed),
        )
