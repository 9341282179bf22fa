# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import strategies as st
from nova.scheduler import utils

from nova_vhpc.flavor import (
    extra_specs,
    pci_aliases,
    recipes,
    request_groups,
    validation,
)
from nova_vhpc.scheduler.hosts import requirements
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.flavor.flavors import (
    RECIPES,
    SHARED,
    UPLINK,
    recipe,
)


def refusal(network=None, **options):
    try:
        recipe(network, **options)
    except recipes.RecipeError as error:
        return str(error)
    raise AssertionError('the recipe was not refused')


class RecipeTest(base.TestCase):
    def test_each_configuration_requests_the_uplinks_it_needs(self):
        for network, group_specs in RECIPES.items():
            self.assertEqual(
                {'vhpc:network': network, **group_specs}, recipe(network)
            )

    def test_exported_with_an_alias_writes_the_alias(self):
        self.assertEqual(
            {
                'vhpc:network': 'exported',
                'pci_passthrough:alias': 'hpcnic:1',
            },
            recipe('exported', alias='hpcnic'),
        )
        self.assertEqual(
            'hpcnic:2',
            recipe('exported', alias='hpcnic:2')['pci_passthrough:alias'],
        )

    def test_exported_with_sriov_ports_writes_no_request_group(self):
        self.assertEqual(
            {'vhpc:network': 'exported'}, recipe('exported', sriov_ports=True)
        )

    def test_ports_leave_no_request_group(self):
        for network in RECIPES:
            self.assertEqual(
                {'vhpc:network': network, 'vhpc:uplink_nic': '0'},
                recipe(network, ports=True, uplink_nic='0'),
            )

    def test_physical_network_is_a_trait_of_every_uplink(self):
        for network, group_specs in RECIPES.items():
            specs = recipe(network, physnet='fast-1')
            traits = [key for key in specs if 'PHYSNET' in key]
            groups = [
                key for key in group_specs if key.startswith('resources')
            ]
            self.assertEqual(len(groups), len(traits))
            for key in traits:
                self.assertTrue(key.endswith(':CUSTOM_PHYSNET_FAST_1'))

    def test_uplink_options_are_written_beside_every_request_group(self):
        for network, group_specs in RECIPES.items():
            self.assertEqual(
                {
                    'vhpc:network': network,
                    'vhpc:uplink_nic': '0',
                    'vhpc:min_link_mbps': '10000',
                    **group_specs,
                },
                recipe(network, uplink_nic='0', min_link_mbps='10000'),
            )

    def test_recipe_without_network_has_no_request_group(self):
        self.assertEqual(
            {'vhpc:workload': 'latency', 'vhpc:time_slice_us': '5000'},
            recipe(workload='latency', time_slice_us='5000'),
        )

    def test_filter_accepts_every_recipe(self):
        for network in extra_specs.NETWORKS:
            exported = network == 'exported'
            specs = recipe(network, alias='nic' if exported else None)
            wanted = requirements.of_flavor(
                specs, 4, devices=pci_aliases.devices(specs)
            )
            self.assertIsNone(wanted.flaw, network)

    def test_nova_accepts_every_recipe(self):
        from nova.api.validation.extra_specs import validators

        for network in extra_specs.NETWORKS:
            specs = recipe(
                network,
                workload='parallel',
                physnet=None if network == 'exported' else 'physnet0',
                alias='nic' if network == 'exported' else None,
            )
            for name, value in specs.items():
                validators.validate(name, value)

    def test_nova_makes_the_request_groups_of_the_recipe(self):
        from nova import objects

        objects.register_all()
        for network, group_specs in RECIPES.items():
            flavor = objects.Flavor(
                vcpus=1,
                memory_mb=1,
                root_gb=0,
                ephemeral_gb=0,
                swap=0,
                extra_specs=recipe(network),
            )
            image = objects.ImageMeta.from_dict({'properties': {}})
            request = utils.ResourceRequest.from_request_spec(
                objects.RequestSpec(
                    flavor=flavor, image=image, requested_resources=[]
                )
            )
            query = request.to_querystring()
            for key in group_specs:
                group, _, name = key.partition(':')
                if group.startswith('resources'):
                    self.assertIn(f'{group}={name}%3A1', query)
            self.assertEqual(
                'none' if network == 'multiple-shared' else None,
                request.group_policy,
            )


class RefusalTest(base.TestCase):
    def test_what_cannot_be_given_is_named(self):
        exported = {'network': 'exported', 'alias': 'n'}
        for said, options in (
            ("'mesh' is not one of", {'network': 'mesh'}),
            ('vhpc:speed', {'speed': '1'}),
            ('vhpc:spare_cpus', {'spare_cpus': '-1'}),
            ('number > 0', {'max_overcommit': '0'}),
            # One source of devices, and for exported alone.
            ('--alias NAME', {'network': 'exported'}),
            ('--alias NAME', {**exported, 'sriov_ports': True}),
            *(
                ('--network exported', {'network': network, **devices})
                for network in (*RECIPES, None)
                for devices in ({'alias': 'nic'}, {'sriov_ports': True})
            ),
            ('asks for no device', {**exported, 'alias': 'n:0'}),
            ("'n:x' is not NAME", {**exported, 'alias': 'n:x'}),
            # A physical network needs a bridge, and ports an uplink of one.
            ('--physnet', {'physnet': 'p'}),
            ('--physnet', {**exported, 'physnet': 'p'}),
            ('--sriov-ports', {**exported, 'ports': True}),
            ('give a --network', {'ports': True}),
            (
                'the network of each port',
                {'network': 'shared', 'physnet': 'p', 'ports': True},
            ),
            ('vhpc:uplink_nic', {'uplink_nic': '1'}),
            ('vhpc:uplink_nic', {**exported, 'uplink_nic': '1'}),
            ('vhpc:min_link_mbps', {**exported, 'min_link_mbps': '1000'}),
            # ATC paper, Algorithm 2: SPECIFIED is for non-parallel VMs.
            (
                'vhpc:time_slice_us',
                {'workload': 'parallel', 'time_slice_us': '5000'},
            ),
        ):
            with self.subTest(options):
                self.assertIn(said, refusal(**options))


class ChangeTest(base.TestCase):
    def test_each_configuration_changes_to_each_other(self):
        for one in RECIPES:
            before = {**recipe(one, physnet='p'), 'hw:mem_page_size': 'large'}
            for other in RECIPES:
                change = recipes.change(before, recipe(other))
                self.assertEqual(
                    {**recipe(other), 'hw:mem_page_size': 'large'},
                    change.after,
                    f'{one} to {other}',
                )

    def test_ports_take_the_place_of_the_request_groups(self):
        for network in RECIPES:
            before = recipe(network, physnet='p')
            self.assertFalse(recipes.uses_ports(before))
            after = recipes.change(before, recipe(network, ports=True)).after
            self.assertEqual({'vhpc:network': network}, after)
            self.assertTrue(recipes.uses_ports(after))
        for specs in ({}, {'vhpc:network': 'exported'}, {'vhpc:network': '?'}):
            self.assertFalse(recipes.uses_ports(specs))

    def test_change_without_difference_is_false(self):
        self.assertFalse(
            recipes.change(recipe('separate'), recipe('separate'))
        )
        # Something to write or to remove is a change.
        self.assertTrue(recipes.change({}, recipe('separate')))
        self.assertTrue(recipes.change(recipe('separate'), {}))

    def test_unset_keeps_extra_specs_of_others(self):
        others = {
            'hw:cpu_policy': 'shared',
            'quota:cpu_shares': '512',
            'resources:CUSTOM_LICENCE': '1',
            'resources_gpu:VGPU': '1',
        }
        for network in RECIPES:
            before = recipes.change(others, recipe(network)).after
            self.assertEqual(others, recipes.change(before, {}).after)

    def test_alias_that_stays_is_reported(self):
        before = recipe('exported', alias='nic')
        for wanted in (recipe('shared'), {}):
            made = recipes.change(before, wanted)
            self.assertEqual('nic:1', made.after['pci_passthrough:alias'])
            (report,) = made.left_behind
            self.assertIn('pci_passthrough:alias=nic:1 stays', report)
            gone = recipes.without_alias(made, 'nic')
            self.assertEqual([], gone.left_behind)
        # Here the alias is not of an exported flavor, or is replaced.
        gpu = {'pci_passthrough:alias': 'gpu:1'}
        for one, two in (
            (gpu, recipe('shared')),
            ({**recipe('shared'), **gpu}, {}),
            (before, recipe('exported', alias='other')),
        ):
            self.assertEqual([], recipes.change(one, two).left_behind)

    def test_group_policy_is_set_beside_other_request_groups(self):
        change = recipes.change(
            {'resources_gpu:VGPU': '1'}, recipe('separate')
        )
        self.assertEqual('none', change.after['group_policy'])

    def test_group_policy_of_other_request_groups_is_kept(self):
        before = {
            'resources_a:VGPU': '1',
            'resources_b:VGPU': '1',
            'group_policy': 'isolate',
        }
        change = recipes.change(before, recipe('separate'))
        self.assertEqual('isolate', change.after['group_policy'])
        self.assertEqual(before, recipes.change(change.after, {}).after)

    def test_group_policy_of_other_groups_is_kept_for_two_uplinks(self):
        for policy in ('none', 'isolate'):
            change = recipes.change(
                {'resources_gpu:VGPU': '1', 'group_policy': policy},
                recipe('multiple-shared'),
            )
            self.assertEqual(policy, change.after['group_policy'])

    def test_group_policy_that_nova_ignores_is_replaced(self):
        change = recipes.change(
            {'resources_gpu:VGPU': '1', 'group_policy': 'odd'},
            recipe('multiple-shared'),
        )
        self.assertEqual('none', change.after['group_policy'])

    def test_two_devices_of_an_alias_are_not_isolated_from_each_other(self):
        change = recipes.change(
            {'pci_passthrough:alias': 'vf:2'}, recipe('multiple-shared')
        )
        self.assertEqual('none', change.after['group_policy'])

    def test_other_aliases_are_kept(self):
        before = {'pci_passthrough:alias': 'gpu:2'}
        change = recipes.change(before, recipe('exported', alias='nic'))
        self.assertEqual('gpu:2,nic:1', change.after['pci_passthrough:alias'])
        again = recipes.change(change.after, recipe('exported', alias='nic:2'))
        self.assertEqual('gpu:2,nic:2', again.after['pci_passthrough:alias'])
        undone = recipes.without_alias(recipes.change(again.after, {}), 'nic')
        self.assertEqual(before, undone.after)

    def test_key_is_removed_with_the_last_alias(self):
        before = recipe('exported', alias='nic')
        undone = recipes.without_alias(recipes.change(before, {}), 'nic')
        self.assertEqual({}, undone.after)

    def test_removing_an_absent_alias_changes_nothing(self):
        made = recipes.change(recipe('shared'), {})
        self.assertEqual(made, recipes.without_alias(made, 'nic'))

    def test_io_pool_is_refused_beside_dedicated_cpus(self):
        for key, value in (
            ('hw:cpu_policy', 'dedicated'),
            ('hw:cpu_policy', 'mixed'),
            ('resources:PCPU', '4'),
            ('resources2:PCPU', '4'),
        ):
            error = self.assertRaises(
                recipes.RecipeError,
                recipes.change,
                {key: value},
                recipe(io_pool='always'),
            )
            self.assertIn(f'{key}={value} are never', str(error))
        for specs in ({'resources:PCPU': '0'}, {'resources:VCPU': '4'}):
            recipes.change(specs, recipe(io_pool='always'))

    @given(
        st.dictionaries(
            st.sampled_from(
                [
                    'hw:cpu_policy',
                    'resources_gpu:VGPU',
                    'trait_gpu:CUSTOM_FAST',
                    'trait:HW_CPU_X86_AVX2',
                    'vhpc:spare_cpus',
                    'vhpc:network',
                    UPLINK,
                    SHARED,
                ]
            ),
            st.sampled_from(['1', 'required', 'shared', 'separate']),
        ),
        st.sampled_from(list(RECIPES)),
    )
    def test_set_flavor_has_no_problem_and_unset_removes_all_our_keys(
        self, before, network
    ):
        after = recipes.change(before, recipe(network)).after
        self.assertEqual([], validation.problems(after))
        gone = recipes.change(after, {}).after
        self.assertFalse(any(request_groups.is_ours(key) for key in gone))
        for key in before:
            if not request_groups.is_ours(key):
                self.assertEqual(before[key], gone[key])


class ReadingTest(base.TestCase):
    def test_earlier_options_are_kept_unless_given_again(self):
        current = recipe('separate', spare_cpus='2', physnet='fast')
        self.assertEqual(
            {'network': 'separate', 'spare_cpus': '1'},
            recipes.merged(current, {'spare_cpus': '1'}),
        )
        self.assertEqual('FAST', recipes.physnet_of(current))
        self.assertIsNone(recipes.physnet_of(recipe('separate')))
        # A forbidden physical network is not a requested one.
        current['trait_uplink:CUSTOM_PHYSNET_FAST'] = 'forbidden'
        self.assertIsNone(recipes.physnet_of(current))
