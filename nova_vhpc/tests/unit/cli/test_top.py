# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The program nova-vhpc-top: arguments, output, signals, errors."""

import contextlib
import io
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
from typing import IO
from unittest import mock

from nova_vhpc.agent.rpc import control
from nova_vhpc.cli import top
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import columns

PROGRAM = 'import sys; from nova_vhpc.cli import top; sys.exit(top.main())'
WITHOUT = (
    'import sys; sys.modules["{}"] = None; sys.argv[0] = "nova-vhpc-top"; '
    'from nova_vhpc.cli import launch; sys.exit(launch.top())'
)
WITHOUT_TEXTUAL = WITHOUT.format('textual')


class TopCase(base.TestCase):
    """Has a file of a status document, and a folder."""

    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.write(
            documents.document(documents.vm('wn-1'), documents.vm('wn-2'))
        )

    def write(self, content: object) -> str:
        path = self.folder / 'status.json'
        path.write_text(json.dumps(content))
        return str(path)


class TopTest(TopCase):
    def main(self, *words: str) -> tuple[int, str, str]:
        """Return exit status, standard output and standard error."""
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                status = top.main([*words])
            except SystemExit as error:
                status = int(error.code or 0)
        return status, out.getvalue(), err.getvalue()

    def once(self, *words: str) -> str:
        status, out, err = self.main('--once', '--input', self.file, *words)
        self.assertEqual((0, ''), (status, err))
        return out

    def test_every_column_fits_into_a_pipe(self) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop('COLUMNS', None)
            (head,) = (
                line
                for line in self.once().splitlines()
                if 'received %' in line
            )
        for column in columns.COLUMNS:
            if column is not columns.HOST:
                self.assertIn(column.title, head)

    def test_width_is_that_of_the_variable_columns(self) -> None:
        for width in (80, 120, 200):
            with mock.patch.dict(os.environ, COLUMNS=str(width)):
                table = [x for x in self.once().splitlines() if 'wn-' in x]
            self.assertEqual(2, len(table))
            self.assertLessEqual(max(map(len, table)), width)

    def test_sort_and_filter_hold_for_once(self) -> None:
        self.file = self.write(
            documents.document(
                documents.vm('wn-1', received=0.9),
                documents.vm('wn-2', received=0.5),
                documents.vm('wn-3', phase='computing'),
            )
        )
        shown = self.once('--sort', 'received', '--filter', 'io')
        self.assertLess(shown.index('wn-2'), shown.index('wn-1'))
        self.assertNotIn('wn-3', shown)

    def test_json_is_the_document_of_the_agent(self) -> None:
        document = json.loads(pathlib.Path(self.file).read_text())
        self.assertEqual(document, json.loads(self.once('--json')))

    def test_markup_in_a_reason_is_shown_unchanged(self) -> None:
        for problem in ('[vhpc_agent]workers', 'no [/dev/kvm]'):
            self.file = self.write(
                documents.document(documents.vm('wn-1', problem=problem))
            )
            self.assertIn(problem, self.once())

    def test_name_outside_the_encoding_is_escaped(self) -> None:
        self.file = self.write(documents.document(documents.vm('grö')))
        out = io.TextIOWrapper(io.BytesIO(), 'ascii')
        with contextlib.redirect_stdout(out):
            self.assertEqual(0, top.main(['--once', '--input', self.file]))
        out.flush()
        self.assertIn(rb'gr\xf6', out.buffer.getvalue())

    def test_answer_of_another_version_is_reported(self) -> None:
        self.file = self.write({'agent': None})
        status, _, err = self.main('--once', '--input', self.file)
        self.assertEqual(1, status)
        self.assertIn(self.file, err)
        self.assertIn('another version', err)

    def test_agent_that_does_not_run_is_reported(self) -> None:
        status, _, err = self.main('--once', '--run-path', str(self.folder))
        self.assertEqual(1, status)
        self.assertIn(f'{self.folder}/agent.sock: ', err)
        self.assertIn('is nova-vhpc-agent running', err)

    def test_arguments_that_do_not_fit_are_refused(self) -> None:
        for words, reason in (
            (['--json'], '--json goes with --once'),
            (['--once', '--interval', '0'], '--interval: '),
            (['--screenshot', 'x.svg', '--size', '80'], "--size: '80'"),
            (['--screenshot', 'x.svg', '--size', '10x10'], '--size'),
            (['--once', '--host', 'c1', '--input', 'x'], '--input does not'),
            (['--once', '--cluster', ''], "--cluster: '' is no name"),
            (['--once', '--host', 'c1', '--host', ' '], "--host: ' ' is"),
            (['--once', '--timeout', '1'], 'go with --cluster or --host'),
            ([], 'is no terminal; --once prints'),
            (['--once', '--sort', 'size'], 'invalid choice'),
        ):
            with self.subTest(words):
                status, _, err = self.main(*words)
                self.assertEqual(2, status)
                self.assertIn(reason, err)

    def test_bus_without_address_is_reported(self) -> None:
        for words in (['--host', 'c1'], ['--cluster', documents.WEATHER]):
            status, out, err = self.main(
                '--once', '--config-file', os.devnull, *words
            )
            self.assertEqual((2, ''), (status, out))
            self.assertIn('transport_url is not set', err)
            self.assertIn('--config-file', err)

    def test_wrong_configuration_is_reported_in_one_line(self) -> None:
        for words, reason in (
            (['--config-file', '/nonexistent'], '/nonexistent'),
            (['--config-file', os.devnull, '--timeout', 'x'], '--timeout'),
        ):
            status, _, err = self.main('--once', '--host', 'c1', *words)
            self.assertEqual(2, status)
            (line,) = err.splitlines()
            self.assertIn(reason, line)

    def test_hosts_are_asked_over_the_bus(self) -> None:
        asked = []

        def call(client: object, host: str, method: str) -> dict:
            asked.append((host, method))
            if host == 'c2':
                raise control.ControlError('host c2: no agent listens')
            return documents.document(documents.vm('wn-1'), host=host)

        conf = self.folder / 'agent.conf'
        conf.write_text('[DEFAULT]\ntransport_url = fake:\n')
        words = ['--config-file', str(conf), '--host', 'c1', '--host', 'c2']
        with mock.patch.object(control.ControlClient, 'call', call):
            status, out, err = self.main('--once', *words)
            self.assertEqual((0, ''), (status, err))
            self.assertIn('c2 is missing: no agent listens', out)
            self.assertIn('wn-1', out)
            status, out, _ = self.main('--once', '--json', *words)
        self.assertEqual(['c1'], list(json.loads(out)['hosts']))
        self.assertEqual({('c1', 'status'), ('c2', 'status')}, set(asked))

    def test_screenshot_is_written_to_the_file(self) -> None:
        picture = self.folder / 'top.svg'
        words = ['--input', self.file, '--screenshot', str(picture)]
        self.assertEqual((0, '', ''), self.main(*words, '--size', '90x20'))
        self.assertIn('wn-1', picture.read_text())
        words[-1] = str(self.folder / 'none' / 'top.svg')
        status, _, err = self.main(*words)
        self.assertEqual(1, status)
        self.assertIn('cannot write', err)
        self.assertIn(words[-1], err)


class ProcessTest(TopCase):
    """What only a process of its own shows."""

    def run_program(
        self, program: str, *words: str, stdout: IO[str] | int
    ) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, '-c', program, '--input', self.file, *words],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_full_output_is_reported_as_such(self) -> None:
        for words in ((), ('--json',)):
            with open('/dev/full', 'w') as full:
                done = self.run_program(PROGRAM, '--once', *words, stdout=full)
            self.assertIn('No space left', done.stderr)
            self.assertNotIn('running', done.stderr)

    def test_closed_pipe_ends_the_program(self) -> None:
        for words in ((), ('--json',)):
            reading, writing = os.pipe()
            os.close(reading)
            with open(writing, 'w') as pipe:
                done = self.run_program(PROGRAM, '--once', *words, stdout=pipe)
            self.assertEqual((1, ''), (done.returncode, done.stderr))

    def test_without_textual_once_works_and_the_screen_says_so(self) -> None:
        done = self.run_program(
            WITHOUT_TEXTUAL, '--once', stdout=subprocess.PIPE
        )
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertIn('wn-1', done.stdout)
        done = self.run_program(
            WITHOUT_TEXTUAL, '--screenshot', 'x.svg', stdout=subprocess.PIPE
        )
        self.assertEqual((2, ''), (done.returncode, done.stdout))
        (line,) = done.stderr.splitlines()
        self.assertIn('cannot load the Python library textual', line)
        self.assertIn('pip install textual', line)

    def test_json_works_without_the_library_that_draws(self) -> None:
        done = self.run_program(
            WITHOUT.format('rich'), '--once', '--json', stdout=subprocess.PIPE
        )
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertIn('vms', json.loads(done.stdout))
        done = self.run_program(
            WITHOUT.format('rich'), '--once', stdout=subprocess.PIPE
        )
        self.assertEqual((2, ''), (done.returncode, done.stdout))
        self.assertIn('cannot load the Python library rich', done.stderr)

    def test_screen_is_refused_without_a_terminal_to_draw_on(self) -> None:
        for missing in ('stdin', 'stdout', 'stderr'):
            reading, terminal = pty.openpty()
            self.addCleanup(os.close, reading)
            files = dict.fromkeys(('stdin', 'stdout', 'stderr'), terminal)
            files[missing] = subprocess.PIPE
            with subprocess.Popen(
                [sys.executable, '-c', PROGRAM, '--input', self.file],
                env={**os.environ, 'TERM': 'xterm'},
                **files,
            ) as running:
                os.close(terminal)
                self.assertEqual(2, running.wait())

    def test_signal_restores_the_terminal(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            status, shown = self.in_terminal(number)
            self.assertEqual(128 + number, status)
            self.assertIn(b'\x1b[?1049l', shown)
            self.assertNotIn(b'Traceback', shown)

    def test_signal_ends_the_program_without_its_terminal(self) -> None:
        reading, terminal = pty.openpty()
        with subprocess.Popen(
            [sys.executable, '-c', PROGRAM, '--input', self.file],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, 'TERM': 'xterm'},
        ) as running:
            os.close(terminal)
            shown = b''
            while b'wn-1' not in shown:
                shown += os.read(reading, 65536)
            os.close(reading)
            running.send_signal(signal.SIGHUP)
            self.assertEqual(128 + signal.SIGHUP, running.wait())

    def in_terminal(self, number: int) -> tuple[int, bytes]:
        """Return exit status and output of a screen that a signal ends."""
        reading, terminal = pty.openpty()
        with subprocess.Popen(
            [sys.executable, '-c', PROGRAM, '--input', self.file],
            stdin=terminal,
            stdout=terminal,
            stderr=subprocess.STDOUT,
            env={**os.environ, 'TERM': 'xterm'},
        ) as running:
            os.close(terminal)
            shown = b''
            while b'wn-1' not in shown:
                shown += os.read(reading, 65536)
            running.send_signal(number)
            # Linux says that a terminal has no writer left by an error.
            with contextlib.suppress(OSError):
                while more := os.read(reading, 65536):
                    shown += more
        os.close(reading)
        return running.returncode, shown
