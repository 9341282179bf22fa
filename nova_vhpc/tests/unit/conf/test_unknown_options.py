# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Misspelled options and groups in configuration files."""

import pathlib
import tempfile

import fixtures
from oslo_config import cfg

from nova_vhpc.conf import unknown_options
from nova_vhpc.tests import base


class UnknownOptionsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def find(self, text, argument='--config-file', name='vhpc.conf'):
        path = self.directory / name
        path.write_text(text)
        whole = path if argument == '--config-file' else self.directory
        conf = cfg.ConfigOpts()
        conf([argument, str(whole)], default_config_files=[])
        return unknown_options.find(conf)

    def test_known_options_are_not_reported(self):
        self.assertEqual(
            [],
            self.find(
                '[DEFAULT]\nwhatever = 1\n'
                '[vhpc_agent]\nperiod_ms = 100\n'
                '[VHPC_Agent]\nquarantine_seconds = 9\n'
                '[vhpc_control]\nslice_policy = gang\n'
                '[vhpc_scheduler]\nweight_multiplier = 2\n'
                '[vhpc_topology]\nbridges = a:shared\nbridges = b:shared\n'
                '[placement]\nusername = x\n'
            ),
        )

    def test_option_in_the_wrong_group_is_reported_with_the_right_one(self):
        (sentence,) = self.find('[vhpc_agent]\nslice_policy = atc\n')
        self.assertIn('vhpc.conf: [vhpc_agent]slice_policy is no', sentence)
        self.assertIn('it belongs to [vhpc_control]', sentence)

    def test_misspelled_option_is_reported_with_the_right_name(self):
        (sentence,) = self.find('[vhpc_agent]\ncpu_share_set = 0\n')
        self.assertIn('[vhpc_agent]cpu_share_set', sentence)
        self.assertIn('did you mean cpu_shared_set?', sentence)

    def test_option_unlike_any_other_is_reported_without_a_guess(self):
        (sentence,) = self.find('[vhpc_agent]\nxyzzy = 1\n')
        self.assertTrue(sentence.endswith('[vhpc_agent]xyzzy is no option'))

    def test_option_with_a_hyphen_is_reported(self):
        # oslo.config does not accept a hyphen in a file.
        (sentence,) = self.find('[vhpc_agent]\nquarantine-seconds = 9\n')
        self.assertIn('[vhpc_agent]quarantine-seconds', sentence)
        self.assertIn('did you mean quarantine_seconds?', sentence)

    def test_group_is_recognised_in_any_case(self):
        (sentence,) = self.find('[VHPC_AGENT]\nxyzzy = 1\n')
        self.assertIn('[vhpc_agent]xyzzy', sentence)

    def test_files_that_oslo_config_does_not_read_are_skipped(self):
        # An editor's lock, a hidden file, and one that breaks and vanishes.
        (self.directory / '.#a.conf').symlink_to('nowhere')
        (self.directory / '.b.conf').write_text('[vhpc_agent]\nxyzzy = 1\n')
        (self.directory / 'c.conf').write_text('[vhpc_agent]\nxyzzy = 1\n')
        conf = cfg.ConfigOpts()
        conf(['--config-dir', str(self.directory)], default_config_files=[])
        (self.directory / 'c.conf').write_text('[vhpc_agent\nbroken')
        self.assertEqual([], unknown_options.find(conf))
        (self.directory / 'c.conf').unlink()
        self.assertEqual([], unknown_options.find(conf))

    def test_every_directory_and_the_home_directory_are_read(self):
        for name in ('one', 'two'):
            (self.directory / name).mkdir()
            file = self.directory / name / 'a.conf'
            file.write_text(f'[vhpc_agent]\n{name} = 1\n')
        self.useFixture(
            fixtures.EnvironmentVariable('HOME', str(self.directory))
        )
        conf = cfg.ConfigOpts()
        arguments = ['--config-dir', '~/one', '--config-dir', '~/two']
        conf(arguments, default_config_files=[])
        self.assertEqual(2, len(unknown_options.find(conf)))
        conf(['--config-file=~/one/a.conf'], default_config_files=[])
        (sentence,) = unknown_options.find(conf)
        self.assertIn('one/a.conf: [vhpc_agent]one', sentence)

    def test_misspelled_group_is_reported_with_the_right_name(self):
        (sentence,) = self.find('[vhpc_contrl]\nslice_policy = atc\n')
        self.assertIn(
            'no group [vhpc_contrl]; did you mean [vhpc_control]?', sentence
        )

    def test_options_of_an_unknown_keystoneauth_plugin_are_not_reported(self):
        self.assertEqual(
            [],
            self.find(
                '[vhpc_nova]\nauth_type = v3applicationcredential\n'
                'application_credential_id = x\n'
            ),
        )

    def test_file_of_a_configuration_directory_is_read(self):
        (sentence,) = self.find(
            '[vhpc_agent]\nxyzzy = 1\n', '--config-dir', '10-ours.conf'
        )
        self.assertIn('10-ours.conf', sentence)

    def test_nothing_is_reported_without_a_file(self):
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[])
        self.assertEqual([], unknown_options.find(conf))
