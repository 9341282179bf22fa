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

RANGE = 'from 1000 to 1000000'
REFUSED = (
    # text, words of the message
    ('slice_policy = x', '[vhpc_control]slice_policy = x', 'allowed: '),
    ('pinning_policy = x', 'pinning_policy = x', 'balance, io_pool, none'),
    ('predictor = x', '[vhpc_control]predictor = x', 'allowed: '),
    ('leave_rule = never', 'leave_rule', 'never', 'learned'),
    # Below libvirt's least.
    ('fixed_slice_us = 500', 'fixed_slice_us', "'500'", RANGE),
    ('io_slice_us = 500', 'io_slice_us', "'500'", RANGE),
    ('micro_slice_us = 500', 'micro_slice_us', "'500'", RANGE),
    ('alpha_us = much', 'alpha_us', "'much' is not an integer"),
    ('guard_margin = -1', 'guard_margin', '-1'),
    (
        'io_pool_cpus = 4-7\ncomputing_pool_cpus = 0-5',
        *('io_pool_cpus = 4-7', 'CPUs 4-5', 'computing_pool_cpus = 0-5'),
    ),
    ('io_pool_cpus = 6-9', 'io_pool_cpus = 6-9', 'CPUs 8-9', 'within 0-7'),
    ('computing_pool_cpus = a-b', 'computing_pool_cpus', 'is not CPU numbers'),
    ('io_pool_cpus = 0-7', 'io_pool_cpus = 0-7', 'at least one CPU'),
    ('computing_pool_cpus = 0-7', 'at least one CPU'),
    # Bounded by another option.
    ('beta_us = 1000', 'beta_us = 1000', 'less than alpha_us = 1000'),
    ('min_threshold_us = 40000', 'less than default_slice_us = 30000'),
    ('otsu_renewal = 201', 'at most otsu_history = 200'),
    (
        'gang_window_us = 200001',
        'gang_max_window_us = 200000',
        'at least gang_window_us = 200001',
    ),
    ('gang_min_window_us = 200001', 'at most gang_max_window_us = 200000'),
)


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

    def test_wrong_value_is_refused_with_what_is_allowed(self):
        for text, *words in REFUSED:
            with self.subTest(text):
                message = self.refused(text)
                for word in words:
                    self.assertIn(word, message)

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
