# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What is left on a host for the members of one request."""

from nova import objects
from nova.objects import pci_device_pool
from nova.pci import stats
from oslo_utils.fixture import uuidsentinel

from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.scheduler.session import host_fit
from nova_vhpc.scheduler.sources import nova_db
from nova_vhpc.tests.unit.scheduler import world


class HostFitTest(world.WorldTestCase):
    def host_fit(self, spec):
        return host_fit.HostFit(spec, world.CONF)

    def host_info(self, spec, state=None):
        """A host's host_info, as the filter makes it."""
        state = state or self.states[0]
        list(self.filter.filter_all([state], spec))
        return state._vhpc

    def devices(self, count):
        """A pool of PCI devices on the first host."""
        pool = pci_device_pool.PciDevicePool(
            vendor_id='8086',
            product_id='154c',
            numa_node=0,
            count=count,
            tags={'dev_type': 'type-VF'},
        )
        self.states[0].pci_stats = stats.PciDeviceStats(
            None, stats=pci_device_pool.PciDevicePoolList(objects=[pool])
        )

    def exported(self, devices=1):
        spec = self.request(4, vhpc_network='exported')
        for key in list(spec.flavor.extra_specs):
            if 'uplink' in key:
                del spec.flavor.extra_specs[key]
        spec.pci_requests = objects.InstancePCIRequests(
            requests=[
                objects.InstancePCIRequest(
                    count=devices,
                    alias_name='hpc',
                    spec=[{'product_id': '154c'}],
                    request_id=uuidsentinel.request,
                )
            ]
        )
        return spec

    def test_slots_are_limited_by_uplinks(self):
        host_info = self.host_info(self.request(4))
        self.assertEqual(
            4, host_info.state._vhpc.session.host_fit.slots(host_info)
        )
        # Another member has just claimed one.
        state = host_info.state
        _ = state.allocation_candidates[0]
        state.num_instances += 1
        self.host_info(host_info.state._vhpc.session.spec_obj)
        self.assertEqual(
            3, host_info.state._vhpc.session.host_fit.slots(host_info)
        )

    def test_slots_are_limited_by_devices(self):
        for count, each, members in ((6, 1, 6), (6, 4, 1), (6, 7, 0)):
            self.devices(count)
            state = self.states[0]
            state.__dict__.pop('_vhpc', None)
            host_info = self.host_info(self.exported(each))
            self.assertEqual(
                members,
                host_info.state._vhpc.session.host_fit.slots(host_info),
            )

    def test_candidates_without_devices_are_of_no_use(self):
        state = self.states[0]
        for count, useful in ((0, 0), (1, 4)):
            self.devices(count)
            found = self.host_fit(self.exported()).usable(state)
            self.assertEqual(useful, len(found))
            found = self.host_fit(self.request()).usable(state)
            self.assertEqual(4, len(found))

    def test_devices_do_not_matter_to_others(self):
        self.devices(0)
        host_info = self.host_info(self.request(4))
        self.assertIsNone(host_info.fit_result.reason)
        self.assertEqual(
            4, host_info.state._vhpc.session.host_fit.slots(host_info)
        )

    def test_slots_are_limited_by_disk(self):
        state = self.states[0]
        state.total_usable_disk_gb = 100
        for candidate in state.allocation_candidates:
            own = candidate['allocations'][state.uuid]
            own['resources']['DISK_GB'] = 10
        found = self.body['provider_summaries'][state.uuid]['resources']
        found['DISK_GB'] = {'capacity': 25, 'used': 0}
        host_info = self.host_info(self.request(4))
        self.assertEqual(
            2, host_info.state._vhpc.session.host_fit.slots(host_info)
        )

    def test_one_shared_vcpu_is_no_dedicated_one(self):
        spec = self.request()
        for vcpus, dedicated, pinned, counted in (
            (1, 0, False, 1),
            (3, 2, False, 1),
            (2, 2, True, 2),
        ):
            spec.flavor.vcpus = vcpus
            spec.numa_topology = objects.InstanceNUMATopology(
                cells=[
                    objects.InstanceNUMACell(
                        cpuset=set(range(dedicated, vcpus)),
                        pcpuset=set(range(dedicated)),
                    )
                ]
            )
            found = self.host_fit(spec)
            self.assertIs(pinned, found.pinned)
            self.assertEqual(counted, found.requirements.vcpus)

    def test_a_member_that_stops_frees_cpus_of_the_kind_it_had(self):
        state = self.states[0]
        move_source = nova_db.MoveSource(state.host, state.nodename, 3, 2)
        spec = self.request()
        of_host = {}
        for name, dedicated in (('apart', {8, 9}), ('together', set())):
            cell = objects.NUMACell(
                cpuset=set(range(8)),
                pcpuset=dedicated or set(range(8)),
                cpu_usage=0,
                pinned_cpus=set(),
            )
            state.numa_topology = objects.NUMATopology(cells=[cell])
            for pinned in (False, True):
                spec.numa_topology = objects.InstanceNUMATopology(
                    cells=[
                        objects.InstanceNUMACell(
                            cpuset=set(), pcpuset=set(range(4 * pinned))
                        )
                    ]
                )
                found = host_fit.HostFit(spec, world.CONF, move_source)
                self.assertIs(pinned, found.pinned)
                of_host[name, pinned] = found.source_vcpus(state)
        self.assertEqual(
            {
                ('apart', False): 3,
                # Nova wants the old and the new ones to be free.
                ('apart', True): 0,
                ('together', False): 5,
                ('together', True): 5,
            },
            of_host,
        )

    def test_resources_are_unknown_before_the_first_read(self):
        self.cache.latest = lambda: None
        spec = self.request()
        spec.flavor.extra_specs = {'vhpc:workload': 'parallel'}
        host_info = self.host_info(spec)
        self.assertEqual(
            {}, host_info.state._vhpc.session.host_fit.resources(host_info)
        )
        self.assertEqual(
            NO_LIMIT, host_info.state._vhpc.session.host_fit.slots(host_info)
        )
