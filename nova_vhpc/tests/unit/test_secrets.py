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

"""No secret reaches a log."""

import logging
import pathlib

import fixtures
from oslo_config import cfg

from nova_vhpc.conf import opts
from nova_vhpc.tests import base

SECRET = 'k9-do-not-tell'


def _is_secret(name):
    return any(
        word in name
        for word in ('password', 'secret', 'transport_url', 'token')
    ) and not name.endswith(('_id', '_file', '_type'))


class SecretsTest(base.TestCase):
    def test_every_option_that_holds_one_is_marked(self):
        for group, options in opts.list_opts():
            for option in options:
                if _is_secret(option.dest):
                    self.assertTrue(option.secret, (group, option.name))

    def test_logged_options_hide_them(self):
        conf = cfg.ConfigOpts()
        lines = []
        names = []
        for group, options in opts.list_opts():
            name = group if isinstance(group, str) else group.name
            conf.register_opts(options, group=name)
            lines.append(f'[{name}]')
            for option in options:
                if option.required:
                    lines.append(f'{option.dest} = x')
                if _is_secret(option.dest):
                    lines.append(f'{option.dest} = {SECRET}')
                    names.append((name, option.dest))
        self.assertIn(('placement', 'password'), names)
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text('\n'.join(lines))
        conf(['--config-file', str(file)])
        log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        conf.log_opt_values(logging.getLogger('secrets'), logging.DEBUG)
        self.assertIn('placement.password', log.output)
        self.assertNotIn(SECRET, log.output)
