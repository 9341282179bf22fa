# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Slips of the pen in a configuration file."""

import pathlib
import tempfile

from oslo_config import cfg

from nova_vhpc.conf import unread
from nova_vhpc.tests import base


class UnreadTest(base.TestCase):
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
        return unread.find(conf)

    def test_what_is_read_is_not_told_of(self):
        self.assertEqual(
            [],
            self.find(
                '[DEFAULT]\nwhatever = 1\n'
                '[vhpc_agent]\nperiod_ms = 100\nquarantine-seconds = 9\n'
                '[vhpc_control]\nslice_policy = gang\n'
                '[vhpc_scheduler]\nweight_multiplier = 2\n'
                '[vhpc_topology]\nbridges = a:shared\nbridges = b:shared\n'
                '[placement]\nusername = x\n'
            ),
        )

    def test_an_option_in_the_wrong_group(self):
        (sentence,) = self.find('[vhpc_agent]\nslice_policy = atc\n')
        self.assertIn('vhpc.conf: [vhpc_agent]slice_policy is no', sentence)
        self.assertIn('it belongs to [vhpc_control]', sentence)

    def test_a_misspelt_option(self):
        (sentence,) = self.find('[vhpc_agent]\ncpu_share_set = 0\n')
        self.assertIn('[vhpc_agent]cpu_share_set', sentence)
        self.assertIn('is it cpu_shared_set?', sentence)

    def test_an_option_like_no_other(self):
        (sentence,) = self.find('[vhpc_agent]\nxyzzy = 1\n')
        self.assertTrue(sentence.endswith('[vhpc_agent]xyzzy is no option'))

    def test_a_misspelt_group(self):
        (sentence,) = self.find('[vhpc_contrl]\nslice_policy = atc\n')
        self.assertIn(
            'no group [vhpc_contrl]; is it [vhpc_control]?', sentence
        )

    def test_options_of_an_unknown_keystoneauth_plugin(self):
        self.assertEqual(
            [],
            self.find(
                '[vhpc_nova]\nauth_type = v3applicationcredential\n'
                'application_credential_id = x\n'
            ),
        )

    def test_files_of_a_directory(self):
        (sentence,) = self.find(
            '[vhpc_agent]\nxyzzy = 1\n', '--config-dir', '10-ours.conf'
        )
        self.assertIn('10-ours.conf', sentence)

    def test_no_file(self):
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[])
        self.assertEqual([], unread.find(conf))
