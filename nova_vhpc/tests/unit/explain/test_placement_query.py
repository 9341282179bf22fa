# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import re
import urllib.parse

from nova_vhpc.explain import member_ports
from nova_vhpc.explain.cloud import pci_devices, placement
from nova_vhpc.explain.request import Flavor
from nova_vhpc.flavor import recipes, request_groups
from nova_vhpc.scheduler.planner.model import NO_LIMIT
from nova_vhpc.tests import base


class QueryTest(base.TestCase):
    """The question to Placement must be the one that Nova asks."""

    def nova_query(self, flavor, port_groups=()):
        from nova import objects
        from nova.pci import request
        from nova.scheduler import utils

        objects.register_all()
        nova_flavor = objects.Flavor(
            vcpus=flavor.vcpus,
            memory_mb=flavor.ram_mb,
            root_gb=flavor.disk_gb,
            ephemeral_gb=0,
            swap=0,
            extra_specs=dict(flavor.extra_specs),
        )
        spec = objects.RequestSpec(
            flavor=nova_flavor,
            image=objects.ImageMeta.from_dict({'properties': {}}),
            requested_resources=list(port_groups),
        )
        if 'pci_passthrough:alias' in flavor.extra_specs:
            spec.pci_requests = request.get_pci_requests_from_flavor(
                nova_flavor
            )
            spec.generate_request_groups_from_pci_requests()
        asked = utils.resources_from_request_spec(None, spec, None)
        query = dict(urllib.parse.parse_qsl(asked.to_querystring()))
        query.pop('limit', None)
        return query

    def check(self, **specs):
        flavor = Flavor(4, 2048, specs, disk_gb=10)
        ours = placement.query(flavor)
        self.assertEqual(
            {k: set(v.split(',')) for k, v in self.nova_query(flavor).items()},
            {
                k: set(v.split(','))
                for k, v in urllib.parse.parse_qsl(ours.partition('?')[2])
            },
        )

    def test_query_equals_that_of_nova_for_every_configuration(self):
        for network in request_groups.BRIDGE_TRAITS:
            if network != 'exported':
                recipe = recipes.recipe(
                    {'network': network}, physnet='physnet0'
                )
                self.check(**recipe)

    def test_query_equals_that_of_nova_for_devices_in_placement(self):
        self.pci_in_placement()
        known = pci_devices.aliases(self.ALIASES)
        for network in ('exported', 'shared', 'multiple-shared'):
            for policy in ({}, {'group_policy': 'isolate'}):
                specs = {
                    **request_groups.recipe(network),
                    'pci_passthrough:alias': 'vf:2, gpu:1',
                    **policy,
                }
                flavor = Flavor(4, 2048, specs, disk_gb=10)
                ours = placement.query(
                    flavor, devices=pci_devices.requested(None, specs, known)
                )
                self.assertEqual(
                    self.without_names(self.nova_query(flavor).items()),
                    self.without_names(
                        urllib.parse.parse_qsl(ours.partition('?')[2])
                    ),
                )

    def test_query_equals_that_of_nova_for_ports(self):
        from nova import objects

        objects.register_all()
        ports = [member_ports.Port('hpc0', 1000), member_ports.Port('hpc1', 5)]
        for network, given in (
            ('separate', ports[:1]),
            ('multiple-shared', ports),
        ):
            flavor = Flavor(4, 2048, {'vhpc:network': network}, disk_gb=10)
            requests = member_ports.requests(given)
            groups = [
                objects.RequestGroup.from_port_request(
                    None,
                    f'port-{number}',
                    {'resources': each.kbps, 'required': each.traits},
                )
                for number, each in enumerate(requests)
            ]
            ours = placement.query(flavor, port_requests=requests)
            nova = self.nova_query(flavor, groups)
            self.assertEqual(
                self.without_names(nova.items()),
                self.without_names(
                    (re.sub('_port', 'port-', key), value)
                    for key, value in urllib.parse.parse_qsl(
                        ours.partition('?')[2]
                    )
                ),
            )

    ALIASES = (
        '{"name": "vf", "vendor_id": "8086", "product_id": "154c",'
        ' "device_type": "type-VF"}',
        '{"name": "gpu", "resource_class": "custom_gpu",'
        ' "traits": "CUSTOM_FAST,CUSTOM_NEW"}',
    )

    def pci_in_placement(self):
        """Have Nova ask Placement for the devices of two aliases."""
        from nova import conf
        from nova.pci import request

        for name, value, group in (
            ('pci_in_placement', True, 'filter_scheduler'),
            ('alias', list(self.ALIASES), 'pci'),
        ):
            conf.CONF.set_override(name, value, group)
            self.addCleanup(conf.CONF.clear_override, name, group)
        request.get_alias_from_config.cache_clear()
        self.addCleanup(request.get_alias_from_config.cache_clear)

    @staticmethod
    def without_names(query):
        """Return the groups of a query, whatever those of devices are named.

        Nova names them by random UUIDs.
        """
        return sorted(
            (re.sub('(resources|required).*-.*', r'\1_device', key), value)
            for key, value in (
                (key, ','.join(sorted(value.split(','))))
                for key, value in query
            )
        )

    def test_query_equals_that_of_nova_for_other_extra_specs(self):
        self.check()
        self.check(**{'resources:CUSTOM_X': '2', 'trait:HW_Y': 'forbidden'})
        self.check(**{'resources:DISK_GB': '0'})
        self.check(
            **{'resources:MEMORY_MB': 'much', 'resources_b:CUSTOM_X': '0'}
        )
        self.check(**{'resources:CUSTOM_X': '-2', 'resources:CUSTOM_Y': ' 7 '})
        self.check(**{'group_policy': 'isolate'})
        self.check(**{'group_policy': 'odd'})
        self.check(**{'resources_x1:MEMORY_MB': '512'})
        self.check(**{'resources:VCPU': '3'})
        self.check(**{'resources:PCPU': '4'})
        self.check(**{'resources1:PCPU': '4'})

    def test_query_equals_that_of_nova_for_cpu_policies(self):
        dedicated = {'hw:cpu_policy': 'dedicated'}
        mixed = {'hw:cpu_policy': 'mixed'}
        isolate = {'hw:emulator_threads_policy': 'isolate'}
        realtime = {'hw:cpu_realtime': 'Yes'}
        for specs in (
            {'hw:cpu_policy': 'shared'},
            dedicated,
            {**dedicated, **isolate},
            {**dedicated, 'hw:cpu_thread_policy': 'isolate'},
            {**dedicated, 'hw:cpu_thread_policy': 'require'},
            {**dedicated, 'hw:cpu_thread_policy': 'prefer'},
            {**mixed, 'hw:cpu_dedicated_mask': '^0'},
            {**mixed, 'hw:cpu_dedicated_mask': '0-3,^1', **isolate},
            {**mixed, 'hw:cpu_dedicated_mask': ' 2 , 1,,'},
            {**mixed, **realtime, 'hw:cpu_realtime_mask': '^0-1'},
        ):
            self.check(**specs)
        self.check(**{'resources_a:VGPU': '1', 'group_policy': 'none'})


class OffersTest(base.TestCase):
    def test_members_are_limited_by_resources_beyond_cpus_and_ram(self):
        own = {
            'VCPU': {'capacity': 64, 'used': 4},
            'MEMORY_MB': {'capacity': 8192, 'used': 1024},
            'DISK_GB': {'capacity': 100, 'used': 41},
            'PCPU': {'capacity': 8, 'used': 3},
        }
        asked = {'VCPU': 1, 'MEMORY_MB': 1024, 'DISK_GB': 20, 'PCPU': 3}
        for without, pinned, vcpus, ram_mb, members in (
            ((), False, 1, 1024, 1),
            (('PCPU',), False, 1, 1024, 2),
            # As of a sharing provider. The plan counts the others itself,
            (('PCPU', 'DISK_GB'), False, 1, 1024, NO_LIMIT),
            # unless the flavor claims more of them than it has.
            (('PCPU', 'DISK_GB'), False, 1, 512, 7),
            (('DISK_GB', 'MEMORY_MB'), True, 3, 1024, 60),
            (('DISK_GB', 'MEMORY_MB', 'VCPU'), True, 3, 1024, NO_LIMIT),
        ):
            summary = {
                'root_provider_uuid': 'root',
                'resources': {k: own[k] for k in own if k not in without},
            }
            offers = placement.Offers(pinned)
            offers.add(
                {
                    'provider_summaries': {'root': summary},
                    'allocation_requests': [
                        {'allocations': {'root': {'resources': asked}}}
                    ],
                }
            )
            self.assertEqual(members, offers.members('root', vcpus, ram_mb))

    def test_emulator_threads_count_for_pinned_members(self):
        for specs, judged in (
            ({'hw:cpu_policy': 'dedicated'}, (5, True)),
            ({'resources:PCPU': '5'}, (5, True)),
            # Nova counts the shared ones of this; the other is dedicated.
            (
                {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0'},
                (1, False),
            ),
        ):
            specs['hw:emulator_threads_policy'] = 'isolate'
            self.assertEqual(judged, Flavor(4, 1, specs).checked_vcpus)
            specs['hw:emulator_threads_policy'] = 'share'
            judged = (4, True) if judged[1] else judged
            self.assertEqual(judged, Flavor(4, 1, specs).checked_vcpus)
