# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import argparse
import contextlib
import io
from unittest import mock

from nova_vhpc.agent import errors
from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.agent import driver
from nova_vhpc_lab.bench.common import plugins


class PluginsTest(base.TestCase):
    def selected(self, *words):
        parser = argparse.ArgumentParser()
        plugins.add_arguments(parser)
        return plugins.selected(parser.parse_args(words))

    def test_plugins_not_given_are_the_defaults(self):
        self.assertEqual(
            plugins.PluginNames('gang', 'balance', 'adaptive'), self.selected()
        )
        self.assertEqual(
            plugins.PluginNames('gang', 'io_pool', 'rle'),
            self.selected('--pinning-policy', 'io_pool', '--predictor', 'rle'),
        )

    def test_argv_selects_the_same_plugins(self):
        names = plugins.PluginNames('atc', 'none', 'markov')
        self.assertEqual(names, self.selected(*names.argv()))

    def test_unknown_plugin_is_refused(self):
        for words in (
            ('--slice-policy', 'nix'),
            ('--pinning-policy', 'nix'),
            ('--predictor', 'nix'),
        ):
            error = self.assertRaises(
                errors.ConfigError, self.selected(*words).check
            )
            self.assertIn('nix: unknown; allowed: ', str(error))

    def test_agent_bench_refuses_an_unknown_plugin_before_measuring(self):
        with (
            mock.patch.object(driver, 'measure') as measure,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            status = bench.main(['agent', '--predictor', 'nix'])
        self.assertEqual(2, status)
        measure.assert_not_called()
        self.assertTrue(
            err.getvalue().startswith('nova-vhpc-bench agent: '), err
        )
