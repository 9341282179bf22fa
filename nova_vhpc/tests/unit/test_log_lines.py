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

"""What the log of one of our programs looks like, in a process of its own."""

import pathlib
import subprocess
import sys
from unittest import mock

import fixtures
from oslo_config import cfg
from oslo_log import log
from oslotest import base

from nova_vhpc import conf as conf_package

PROGRAM = """
import logging, sys
from oslo_config import cfg
from oslo_log import log
from nova_vhpc import conf as conf_package

conf = cfg.ConfigOpts()
log.register_options(conf)
conf(sys.argv[1:], project='nova-vhpc')
conf_package.set_up_log(conf, 'nova-vhpc-agent')

class Trouble(Exception):
    pass

ours = logging.getLogger('nova_vhpc.agent.x')
try:
    raise Trouble('the disk is full')
except Trouble as error:
    ours.warning('Not shown: %s', error)
    ours.error('Not written')
    logging.getLogger('amqp.x').warning('Not sent')
    logging.getLogger('nova_vhpcx').warning('Not ours')
    ours.exception('Nobody thought of that')
ours.warning('All is well')
"""


class TestLines(base.BaseTestCase):
    def log(self, text: str = '') -> list[str]:
        """Its lines, each without time and process."""
        temp_dir = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        temp_dir.joinpath('conf').write_text(
            f'[DEFAULT]\nlog_file = {temp_dir}/log\n{text}'
        )
        subprocess.run(
            [
                sys.executable,
                '-c',
                PROGRAM,
                '--config-file',
                f'{temp_dir}/conf',
            ],
            check=True,
        )
        return [
            line.split(' ', 3)[-1]
            for line in (temp_dir / 'log').read_text().splitlines()
            if 'Traceback' not in line and '  File' not in line
        ]

    def test_ours_say_themselves_what_is_wrong(self) -> None:
        lines = self.log()
        self.assertEqual(
            [
                'WARNING nova_vhpc.agent.x [-] Not shown: the disk is full',
                'ERROR nova_vhpc.agent.x [-] Not written',
                'WARNING amqp.x [-] Not sent: Trouble: the disk is full',
                'WARNING nova_vhpcx [-] Not ours: Trouble: the disk is full',
                'ERROR nova_vhpc.agent.x [-] Nobody thought of that: '
                'Trouble: the disk is full',
            ],
            lines[:5],
        )
        self.assertEqual(
            'WARNING nova_vhpc.agent.x [-] All is well', lines[-1]
        )

    def test_an_operators_format_says_where_exceptions_go(self) -> None:
        lines = self.log(
            'logging_default_format_string = '
            'T P L N %(message)s (%(error_summary)s)\n'
        )
        self.assertEqual('N Not written (Trouble: the disk is full)', lines[1])
        self.assertEqual('N All is well (-)', lines[-1])

    def test_an_operators_format_without(self) -> None:
        lines = self.log('logging_default_format_string = T P L %(message)s\n')
        self.assertEqual('Not shown: the disk is full', lines[0])

    def test_json_is_as_it_was(self) -> None:
        lines = self.log('use_json = true\n')
        self.assertIn('Not written', lines[1])

    def test_a_systems_log_that_cannot_be_used(self) -> None:
        """--restore does without, for whatever is told as an error of oslo."""
        for wrong in (RuntimeError('no bindings'), TypeError('no facility')):
            with mock.patch.object(log, 'setup', side_effect=wrong):
                error = self.assertRaises(
                    cfg.Error,
                    conf_package.set_up_log,
                    cfg.ConfigOpts(),
                    'nova-vhpc-agent',
                )
            self.assertIn(f'syslog_log_facility: {wrong}', str(error))
