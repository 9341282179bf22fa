# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.controller_factory`."""

from oslo_config import cfg

from nova_vhpc.agent import errors
from nova_vhpc.agent.daemon import controller_factory
from nova_vhpc.conf import control as control_conf
from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.control.pinning import balance
from nova_vhpc.tests import base
from nova_vhpc_lab.rivals import dss

CPUS = tuple(model.Cpu(n) for n in range(8))


class ControllerFactoryTest(base.TestCase):
    def conf(self, text=''):
        """Return options read from a file with this text."""
        path = self.create_tempfiles(
            [('agent', f'[vhpc_control]\n{text}\n')], '.conf'
        )[0]
        conf = cfg.ConfigOpts()
        control_conf.register_opts(conf)
        conf(['--config-file', path], default_config_dirs=[])
        return conf

    def refused(self, text):
        error = self.assertRaises(
            errors.ConfigError,
            controller_factory.make_controller,
            self.conf(text),
            CPUS,
        )
        self.assertNotIn('\n', str(error))
        return str(error)

    def test_defaults_are_those_of_the_control_core(self):
        self.assertEqual(
            control_config.ControlConfig(),
            controller_factory.make_config(self.conf(), CPUS),
        )

    def test_every_option_of_the_group_reaches_the_core(self):
        fields = control_config.ControlConfig.__dataclass_fields__.keys()
        self.assertEqual(
            set(),
            control_conf.NAMES
            - fields
            - {'slice_policy', 'pinning_policy', 'predictor'},
        )

    def test_configured_policies_are_used(self):
        made = controller_factory.make_controller(
            self.conf(
                'slice_policy = dss\npinning_policy = balance\npredictor = rle'
            ),
            CPUS,
        )
        self.assertIsInstance(made, controller.Controller)
        self.assertIsInstance(made._slice_policy, dss.DssPolicy)
        self.assertIsInstance(made._pinning_policy, balance.BalancePolicy)

    def test_unknown_plugin_error_names_the_allowed_ones(self):
        for option in ('slice_policy', 'pinning_policy', 'predictor'):
            message = self.refused(f'{option} = nosuch')
            self.assertIn(f'[vhpc_control]{option} = nosuch', message)
            self.assertIn('allowed: ', message)
        self.assertIn(
            'balance, io_pool, none', self.refused('pinning_policy = nosuch')
        )

    def test_slice_below_libvirts_minimum_is_refused(self):
        for option in ('fixed_slice_us', 'io_slice_us', 'micro_slice_us'):
            message = self.refused(f'{option} = 500')
            self.assertIn(option, message)
            self.assertIn("'500'", message)
            self.assertIn('from 1000 to 1000000', message)

    def test_value_that_is_not_a_number_is_refused(self):
        message = self.refused('alpha_us = much')
        self.assertIn('alpha_us', message)
        self.assertIn("'much' is not an integer", message)

    def test_overlapping_pools_are_refused(self):
        message = self.refused('io_pool_cpus = 4-7\ncomputing_pool_cpus = 0-5')
        self.assertIn('io_pool_cpus = 4-7', message)
        self.assertIn('CPUs 4-5', message)
        self.assertIn('computing_pool_cpus = 0-5', message)

    def test_pool_with_missing_cpus_is_refused(self):
        message = self.refused('io_pool_cpus = 6-9')
        self.assertIn('io_pool_cpus = 6-9', message)
        self.assertIn('CPUs 8-9', message)
        self.assertIn('within 0-7', message)

    def test_pool_that_is_not_a_cpu_set_is_refused(self):
        message = self.refused('computing_pool_cpus = a-b')
        self.assertIn('[vhpc_control]computing_pool_cpus', message)
        self.assertIn("'a-b' is not CPU numbers", message)

    def test_pool_of_all_cpus_is_refused(self):
        for option in ('io_pool_cpus', 'computing_pool_cpus'):
            message = self.refused(f'{option} = 0-7')
            self.assertIn(f'{option} = 0-7', message)
            self.assertIn('at least one CPU', message)

    def test_pools_are_parsed(self):
        config = controller_factory.make_config(
            self.conf('io_pool_cpus = 4-7,^5'), CPUS
        )
        self.assertEqual(frozenset((4, 6, 7)), config.io_pool_cpus)
        self.assertIsNone(config.computing_pool_cpus)

    def test_pools_may_have_offline_cpus(self):
        for text in ('io_pool_cpus = 6-9', 'computing_pool_cpus = 0-7'):
            self.refused(text)
            controller_factory.make_config(
                self.conf(text), CPUS, frozenset({8, 9})
            )

    def test_value_beyond_its_bounding_option_is_refused(self):
        self.assertIn('beta_us = 2000', self.refused('beta_us = 2000'))
        self.assertIn(
            'min_threshold_us = 40000',
            self.refused('min_threshold_us = 40000'),
        )
        self.assertIn('otsu_renewal = 500', self.refused('otsu_renewal = 500'))
        message = self.refused('gang_window_us = 200001')
        self.assertIn('gang_max_window_us = 200000', message)
        self.assertIn('at least gang_window_us = 200001', message)

    def test_unknown_leave_rule_is_refused(self):
        message = self.refused('leave_rule = never')
        self.assertIn('leave_rule', message)
        self.assertIn('never', message)
        self.assertIn('learned', message)

    def test_number_below_its_range_is_refused(self):
        message = self.refused('guard_margin = -1')
        self.assertIn('guard_margin', message)
        self.assertIn('-1', message)

    def test_io_is_followed_if_a_policy_uses_it(self):
        self.assertFalse(controller_factory.follows_io(self.conf()))
        self.assertTrue(
            controller_factory.follows_io(
                self.conf('pinning_policy = io_pool')
            )
        )
        self.assertTrue(
            controller_factory.follows_io(self.conf('slice_policy = dss'))
        )
