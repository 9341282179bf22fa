# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import fixtures
from oslo_config import cfg

from nova_vhpc import conf as conf_base
from nova_vhpc.conf import scheduler, topology, types
from nova_vhpc.tests import base


class SchedulerCheckTest(base.TestCase):
    def test_options_that_contradict_each_other_are_refused(self):
        for options, text in (
            ({'switch_key': ' '}, 'switch_key is empty'),
            ({'rack_key': 'vhpc:switch'}, 'rack_key is vhpc:switch, as is'),
            ({'snapshot_ttl': 900}, 'less than snapshot_ttl \\(900 s\\)'),
        ):
            with self.subTest(text):
                conf = cfg.ConfigOpts()
                scheduler.register_opts(conf)
                scheduler.check(conf)
                for name, value in options.items():
                    conf.set_override(name, value, 'vhpc_scheduler')
                self.assertRaisesRegex(cfg.Error, text, scheduler.check, conf)


class OvercommitLimitsTest(base.TestCase):
    def read(self, text):
        conf = cfg.ConfigOpts()
        scheduler.register_opts(conf)
        path = Path(self.useFixture(fixtures.TempDir()).path, 'nova.conf')
        path.write_text(f'[vhpc_scheduler]\nmax_overcommit = {text}\n')
        conf([], default_config_files=[str(path)])
        scheduler.check(conf)
        return conf.vhpc_scheduler.max_overcommit

    def test_limits_by_paradigm_are_parsed(self):
        for text, expected in (
            ('openmp:1.0,hybrid:1.5', {'openmp': 1.0, 'hybrid': 1.5}),
            ('mpi:2', {'mpi': 2.0}),
            ('none:0', {}),
            ('', {}),
        ):
            self.assertEqual(expected, self.read(text))

    def test_invalid_limit_is_refused(self):
        for text, words in (
            ('openmp:1,5', 'NAME:VALUE pairs'),
            ('openmpi:1.0', "'openmpi' is no vhpc:paradigm: mpi, openmp"),
            ('openmp:-1', "'openmp:-1' is not a decimal number > 0"),
            ('openmp:0', "'openmp:0' is not a decimal number > 0"),
            ('openmp:nan', "'openmp:nan' is not a decimal number > 0"),
            ('openmp:inf', "'openmp:inf' is not a decimal number > 0"),
            ('none:1', "'none' is no vhpc:paradigm"),
        ):
            error = self.assertRaises(
                cfg.ConfigFileValueError, self.read, text
            )
            self.assertIn('max_overcommit', str(error))
            self.assertIn(words, str(error))


class NumbersTest(base.TestCase):
    def test_error_names_value_and_bounds(self):
        for kind, value, words in (
            (types.Integer(1), '0', "'0' is not an integer >= 1"),
            (types.Integer(), '', "'' is not an integer"),
            (types.Integer(1), '9' * 400, ' is not an integer >= 1'),
            (
                types.Integer(0, 7),
                '1.5',
                "'1.5' is not an integer from 0",
            ),
            (types.Finite(min=0), 'inf', "'inf' is not a number >= 0"),
            (types.Finite(), '', "'' is not a number"),
            (
                types.Finite(0.5, 1e9),
                'x',
                "'x' is not a number from 0.5 to 1000000000",
            ),
        ):
            error = self.assertRaises(ValueError, kind, value)
            self.assertIn(words, str(error))

    def test_inventory_that_placement_would_refuse_is_refused(self):
        # Placement stores 31 bits; the limit is that of bridge rules.
        for name in ('shared_slots', 'default_mbps'):
            conf = cfg.ConfigOpts()
            topology.register_opts(conf)
            path = Path(self.useFixture(fixtures.TempDir()).path, 'a.conf')
            path.write_text(f'[vhpc_topology]\n{name} = 3000000000\n')
            conf([], default_config_files=[str(path)])
            error = self.assertRaises(
                cfg.Error, conf_base.check, conf, topology.list_opts()
            )
            self.assertIn(f'[vhpc_topology]{name}', str(error))
            self.assertIn('from 1 to 10000000', str(error))

    def test_valid_numbers_are_parsed(self):
        self.assertEqual(7, types.Integer(0, 7)(' 7'))
        self.assertEqual(-1.5, types.Finite()('-1.5'))
