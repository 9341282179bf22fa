# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Log lines of a program, which runs in a process of its own."""

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

RELOAD = """
import logging, os, sys
from nova_vhpc import conf as conf_package
from nova_vhpc.agent.daemon import options

conf = options.make_conf(sys.argv[1:])
conf_package.set_up_log(conf, 'nova-vhpc-agent')
os.utime(conf.log_config_append, (1, 1))
conf.mutate_config_files()
try:
    raise OSError('the disk is full')
except OSError as error:
    logging.getLogger('nova_vhpc.agent.x').warning('Not shown: %s', error)
"""

BROKEN = """
import logging, os, pathlib, sys
from nova_vhpc import conf as conf_package
from nova_vhpc.agent.daemon import options

conf = options.make_conf(sys.argv[1:])
conf_package.set_up_log(conf, 'nova-vhpc-agent')
described = pathlib.Path(conf.log_config_append)
text = described.read_text()
described.write_text(text.replace('class = FileHandler', 'class = no.such'))
os.utime(described, (1, 1))
assert conf.mutate_config_files() == {}
logging.getLogger('nova_vhpc.agent.x').warning('Still here')
described.write_text(text)
os.utime(described, (2, 2))
conf.mutate_config_files()
logging.getLogger('nova_vhpc.agent.x').warning('And back')
"""

DESCRIPTION = """
[loggers]
keys = root, ours
[handlers]
keys = file
[formatters]
keys = oslo
[logger_root]
handlers = {root}
[logger_ours]
qualname = nova_vhpc
propagate = 0
handlers = {ours}
[handler_file]
class = {handler}
args = ({directory!r} + '/log',)
formatter = oslo
[formatter_oslo]
class = oslo_log.formatters.ContextFormatter
"""
"""The file that ``log_config_append`` names."""


class TestLines(base.BaseTestCase):
    def describe(
        self,
        root: str = 'file',
        ours: str = '',
        handler: str = 'FileHandler',
    ) -> str:
        """Write DESCRIPTION and a configuration; return their directory."""
        directory = self.useFixture(fixtures.TempDir()).path
        pathlib.Path(directory, 'describing').write_text(
            DESCRIPTION.format(
                directory=directory, root=root, ours=ours, handler=handler
            )
        )
        pathlib.Path(directory, 'conf').write_text(
            f'[DEFAULT]\nlog_config_append = {directory}/describing\n'
            f'[vhpc_agent]\nrun_path = {directory}\n'
            f'state_path = {directory}\nlibvirt_uri = test+none:///\n'
        )
        return directory

    def start(
        self, program: str, directory: str, *arguments: str
    ) -> tuple[int, str]:
        """Run a console script; return its exit code and stderr."""
        ended = subprocess.run(
            [
                sys.executable,
                '-m',
                f'nova_vhpc.cli.{program}',
                '--config-file',
                f'{directory}/conf',
                *arguments,
            ],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        return ended.returncode, ended.stderr

    def run_text(self, directory: str, program: str = PROGRAM) -> str:
        """Run a program text; return its stderr."""
        return subprocess.run(
            [
                sys.executable,
                '-c',
                program,
                '--config-file',
                f'{directory}/conf',
            ],
            check=True,
            stderr=subprocess.PIPE,
            text=True,
        ).stderr

    def log(self, text: str = '') -> list[str]:
        """Return the lines of PROGRAM's log without time and process."""
        directory = self.useFixture(fixtures.TempDir()).path
        pathlib.Path(directory, 'conf').write_text(
            f'[DEFAULT]\nlog_file = {directory}/log\n{text}'
        )
        return self.lines(directory)

    def lines(self, directory: str, program: str = PROGRAM) -> list[str]:
        self.run_text(directory, program)
        return [
            line.split(' ', 3)[-1]
            for line in pathlib.Path(directory, 'log').read_text().splitlines()
            if 'Traceback' not in line and '  File' not in line
        ]

    def test_exception_is_appended_for_other_loggers_only(
        self,
    ) -> None:
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

    def test_format_with_error_summary_has_the_exception_there(self) -> None:
        lines = self.log(
            'logging_default_format_string = '
            'T P L N %(message)s (%(error_summary)s)\n'
        )
        self.assertEqual('N Not written (Trouble: the disk is full)', lines[1])
        self.assertEqual('N All is well (-)', lines[-1])

    def test_format_without_error_summary_has_no_exception(self) -> None:
        lines = self.log('logging_default_format_string = T P L %(message)s\n')
        self.assertEqual('Not shown: the disk is full', lines[0])

    def test_line_that_cannot_be_written_goes_to_stderr(self) -> None:
        """Linux refuses writes to /dev/full like those to a full disk."""
        directory = self.useFixture(fixtures.TempDir()).path
        pathlib.Path(directory, 'conf').write_text(
            '[DEFAULT]\nlog_file = /dev/full\n'
        )
        why = ': not in the log (No space left on device): '
        lines = [
            line.partition(why)[2]
            for line in self.run_text(directory).splitlines()
            if why in line
        ]
        self.assertEqual(
            [
                'WARNING nova_vhpc.agent.x Not shown: the disk is full',
                'ERROR nova_vhpc.agent.x Not written',
                'WARNING amqp.x Not sent',
                'WARNING nova_vhpcx Not ours',
                'ERROR nova_vhpc.agent.x Nobody thought of that',
                'WARNING nova_vhpc.agent.x All is well',
            ],
            lines,
        )

    def test_json_lines_have_the_message(self) -> None:
        lines = self.log('use_json = true\n')
        self.assertIn('Not written', lines[1])

    def test_configured_log_has_the_exception_once(self) -> None:
        for root, ours in (('file', 'file'), ('', 'file')):
            self.assertIn(
                'WARNING nova_vhpc.agent.x [-] Not shown: the disk is full',
                self.lines(self.describe(root, ours)),
            )

    def test_configured_log_keeps_its_format_when_read_again(self) -> None:
        self.assertEqual(
            ['WARNING nova_vhpc.agent.x [-] Not shown: the disk is full'],
            self.lines(self.describe('', 'file'), RELOAD)[-1:],
        )

    def test_log_stays_if_its_configuration_becomes_invalid(
        self,
    ) -> None:
        """Otherwise the agent would have no log until it is corrected."""
        for root, ours in (('file', 'file'), ('', 'file')):
            directory = self.describe(root, ours)
            broken, *others = (
                line
                for line in self.lines(directory, BROKEN)
                if ' nova_vhpc.' in line
            )
            self.assertIn(
                'Keeping the present log configuration: '
                '[DEFAULT]log_config_append: '
                f'{directory}/describing describes no log',
                broken,
            )
            self.assertEqual(
                [
                    f'WARNING nova_vhpc.agent.x [-] {text}'
                    for text in ('Still here', 'And back')
                ],
                others,
            )

    def test_invalid_log_configuration_is_reported_in_one_line(self) -> None:
        """Python evaluates the file, so that it may raise any exception."""
        for program, described, word in (
            ('agent', {'handler': 'no.such.Handler'}, 'ModuleNotFoundError'),
            ('agent', {'root': 'nobody'}, 'nobody'),
            ('vendordata', {'handler': '1 +'}, 'SyntaxError'),
        ):
            directory = self.describe(**described)
            code, complaint = self.start(program, directory)
            self.assertEqual(2, code, complaint)
            (line,) = complaint.splitlines()
            self.assertTrue(
                line.startswith(
                    f'nova-vhpc-{program}: [DEFAULT]log_config_append: '
                    f'{directory}/describing '
                ),
                line,
            )
            self.assertIn(word, line)

    def test_restore_runs_with_an_invalid_log_configuration(self) -> None:
        code, complaint = self.start(
            'agent', self.describe(handler='no.such.Handler'), '--restore'
        )
        self.assertEqual(1, code, complaint)
        self.assertIn('0 servers are in the journal', complaint)

    def test_unusable_syslog_is_an_error_of_oslo_config(self) -> None:
        """--restore runs without a log after an error of oslo.config."""
        conf = cfg.ConfigOpts()
        log.register_options(conf)
        conf([])
        for wrong in (RuntimeError('no bindings'), TypeError('no facility')):
            with mock.patch.object(log, 'setup', side_effect=wrong):
                error = self.assertRaises(
                    cfg.Error,
                    conf_package.set_up_log,
                    conf,
                    'nova-vhpc-agent',
                )
            self.assertIn(f'syslog_log_facility: {wrong}', str(error))
