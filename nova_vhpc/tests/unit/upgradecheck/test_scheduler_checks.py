# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Options of nova-scheduler."""

import types

from oslo_upgradecheck import upgradecheck

from nova_vhpc.tests import base
from nova_vhpc.upgradecheck import scheduler

Code = upgradecheck.Code
FILTER = scheduler.FILTER
ENABLED = ('ComputeFilter', 'ServerGroupAffinityFilter', FILTER)
DEFAULT_MULTIPLIERS = {
    'ram_weight_multiplier': 1.0,
    'cpu_weight_multiplier': 1.0,
    'disk_weight_multiplier': 1.0,
    'hypervisor_version_weight_multiplier': 1.0,
    'num_instances_weight_multiplier': 0.0,
    'io_ops_weight_multiplier': -1.0,
    'image_props_weight_multiplier': 0.0,
    'pci_weight_multiplier': 1.0,
    'soft_affinity_weight_multiplier': 1.0,
    'soft_anti_affinity_weight_multiplier': 1.0,
}


class SchedulerChecksTest(base.TestCase):
    def check(
        self, multipliers=DEFAULT_MULTIPLIERS, own_multiplier=20.0, **options
    ):
        """Check right options, but for the given ones."""
        right = {
            'available_filters': (
                scheduler.ALL_FILTERS,
                scheduler.FILTER_CLASS,
            ),
            'enabled_filters': ENABLED,
            'weight_classes': (
                scheduler.ALL_WEIGHERS,
                scheduler.WEIGHER_CLASS,
            ),
            'host_subset_size': 1,
            'track_instance_changes': True,
            'shuffle_best_same_weighed_hosts': False,
        }
        return scheduler.check(
            types.SimpleNamespace(**right | options),
            multipliers,
            own_multiplier,
        )

    def assert_warning(self, result, *words):
        self.assertEqual(Code.WARNING, result.code, result.details)
        for word in words:
            self.assertIn(word, result.details)

    def test_right_options_are_a_success_without_details(self):
        result = self.check()
        self.assertEqual(Code.SUCCESS, result.code)
        self.assertIsNone(result.details)

    def test_failure_names_each_missing_line(self):
        result = self.check(
            available_filters=(scheduler.ALL_FILTERS,),
            enabled_filters=ENABLED[:2],
            weight_classes=(scheduler.ALL_WEIGHERS,),
        )
        self.assertEqual(Code.FAILURE, result.code)
        for option in ('available_filters', 'enabled_filters', 'weight_cl'):
            self.assertIn(option, result.details)

    def test_failure_where_nova_s_own_filters_are_not_available(self):
        result = self.check(available_filters=(scheduler.FILTER_CLASS,))
        self.assertEqual(Code.FAILURE, result.code)
        self.assertIn('all_filters', result.details)

    def test_warning_names_each_filter_behind_ours(self):
        for name in ('NUMATopologyFilter', 'PciPassthroughFilter', 'OurOwn'):
            self.assert_warning(
                self.check(enabled_filters=(*ENABLED, name)), f'before {name}'
            )

    def test_warning_for_host_subset_size_says_what_becomes_of_the_plan(self):
        self.assert_warning(
            self.check(host_subset_size=3),
            'host_subset_size is 3',
            'Set it to 1',
        )

    def test_warning_where_instances_are_not_tracked(self):
        self.assert_warning(
            self.check(track_instance_changes=False), 'track_instance_changes'
        )

    def test_several_traps_are_named_at_once(self):
        self.assert_warning(
            self.check(host_subset_size=2, track_instance_changes=False),
            'host_subset_size',
            'track_instance_changes',
        )

    def test_shuffling_of_best_hosts_is_said_to_be_without_effect(self):
        result = self.check(shuffle_best_same_weighed_hosts=True)
        self.assertEqual(Code.SUCCESS, result.code)
        self.assertIn('no effect', result.details)

    def test_warning_where_a_filter_takes_group_policy_for_metadata(self):
        self.assert_warning(
            self.check(
                enabled_filters=('AggregateInstanceExtraSpecsFilter', *ENABLED)
            ),
            'group_policy=none',
        )

    def test_warning_where_nova_s_weighers_can_outweigh_the_plan(self):
        raised = {**DEFAULT_MULTIPLIERS, 'ram_weight_multiplier': -10.0}
        self.assert_warning(
            self.check(multipliers=raised),
            'ram_weight_multiplier = -10',
            'weight_multiplier to 40',
        )
        self.assertEqual(
            Code.SUCCESS,
            self.check(multipliers=raised, own_multiplier=40.0).code,
        )

    def test_no_warning_where_the_plan_is_meant_to_weigh_little(self):
        for own in (0.0, 2.0):
            self.assertEqual(Code.SUCCESS, self.check(own_multiplier=own).code)

    def test_no_warning_for_multipliers_of_weighers_that_are_not_loaded(self):
        result = self.check(
            weight_classes=(scheduler.WEIGHER_CLASS,),
            multipliers={'ram_weight_multiplier': 1000.0},
        )
        self.assertEqual(Code.SUCCESS, result.code)
