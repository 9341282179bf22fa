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

"""What nova-vhpc-top shows."""

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from typing import IO
from unittest import mock

from oslotest import base
from rich import console

from nova_vhpc.agent.daemon import health_watch
from nova_vhpc.cmd import top
from nova_vhpc.tests.unit.agent.daemon import status_document

AGENT = {
    'host': 'compute-1',
    'cpus': '0-3',
    'tick_us': 1500.0,
    'period_us': 100_000,
    'overruns': 3,
    'dry_run': False,
    'paused': False,
    'libvirt_up': True,
    'refused': {},
    'remarks': [],
}


class TopTest(base.BaseTestCase):
    def show(
        self,
        peers: dict[str, object] | None = None,
        problem: str = '',
        publishing: dict[str, object] | None = None,
        **agent: object,
    ) -> str:
        document = status_document.document()
        document['publishing'] = publishing
        document['peers'] = peers
        document['vms'][0]['problem'] = problem
        document['agent'] |= {**AGENT, **agent}
        out = io.StringIO()
        console.Console(file=out, width=180).print(top.render(document))
        return out.getvalue()

    def test_table_has_all_columns(self) -> None:
        text = self.show()
        for word in ('compute-1', 'vm', 'io', 'because', '1.5 of 100 ms'):
            self.assertIn(word, text)
        self.assertNotIn('DRY RUN', text)

    def test_refused_servers_are_shown_with_the_reason(self) -> None:
        self.assertNotIn('left alone', self.show())
        shown = self.show(
            refused={'uuid-1': 'no journal: [disk] full'},
            remarks=['uuid-2: it has vanished'],
        )
        self.assertIn('uuid-1: left alone: no journal: [disk] full', shown)
        self.assertIn('uuid-2: it has vanished', shown)

    def test_bus_state_is_shown(self) -> None:
        for peers, shown in (
            (None, 'message bus off'),
            ({'state': 'off', 'detail': ''}, 'message bus off'),
            ({'state': 'starting', 'detail': ''}, 'message bus starting'),
            (
                {'state': 'up', 'detail': '', 'echo_us': 2512},
                'message bus up, echo in 2.5 ms',
            ),
            (
                {'state': 'down', 'detail': '[Errno 111]', 'echo_us': 2512},
                'message bus down: [Errno 111]',
            ),
        ):
            self.assertIn(f'no gang windows; {shown} ', self.show(peers))

    def test_health_is_shown_with_what_is_off(self) -> None:
        document = status_document.document()
        document['agent'] |= AGENT
        document['health'] = health_watch.HealthWatch().judge(document)
        out = io.StringIO()
        console.Console(file=out, width=250).print(top.render(document))
        self.assertIn('NOT HEALTHY', out.getvalue())
        self.assertIn('probes: degraded since', out.getvalue())
        self.assertNotIn('NOT HEALTHY', self.show())

    def test_uplink_state_and_problems_are_shown(self) -> None:
        for publishing, state, below in (
            (None, 'off', ()),
            ({'state': 'published', 'detail': ''}, 'published', ()),
            (
                {
                    'state': 'placement-away',
                    'detail': 'HTTP 503 [proxy]',
                    'problems': ['bridge br-a has two uplinks'],
                },
                'placement-away',
                (
                    'uplinks: placement-away: HTTP 503 [proxy] ',
                    'uplinks: bridge br-a has two uplinks ',
                ),
            ),
        ):
            shown = self.show(publishing=publishing)
            self.assertIn(f' uplinks {state}; no gang windows', shown)
            for line in below:
                self.assertIn(line, shown)
            self.assertEqual(len(below), shown.count('uplinks: '))

    def test_markup_in_a_reason_is_shown_unchanged(self) -> None:
        for problem in ('[vhpc_agent]workers', 'no [/dev/kvm]'):
            self.assertIn(problem, self.show(problem=problem))

    def test_column_names_are_complete_in_a_pipe(self) -> None:
        document = status_document.document()
        document['agent'] |= AGENT
        out = io.StringIO()
        with (
            mock.patch.object(
                top.status_socket, 'fetch', return_value=document
            ),
            contextlib.redirect_stdout(out),
        ):
            self.assertEqual(0, top.main(['--once']))
        for name, _ in top.COLUMNS:
            self.assertIn(name, out.getvalue())

    def test_name_outside_the_encoding_is_escaped(self) -> None:
        document = status_document.document()
        document['agent'] |= AGENT
        document['vms'][0]['name'] = 'grö'
        out = io.TextIOWrapper(io.BytesIO(), 'ascii')
        with (
            mock.patch.object(
                top.status_socket, 'fetch', return_value=document
            ),
            contextlib.redirect_stdout(out),
        ):
            self.assertEqual(0, top.main(['--once']))
        out.flush()
        self.assertIn(rb'gr\xf6', out.buffer.getvalue())

    def print_to(self, file: IO[str], *words: str) -> tuple[int, str]:
        """Return exit code and stderr of ``--once`` with this output."""
        document = status_document.document()
        document['agent'] |= AGENT
        program = (
            'import sys; from nova_vhpc.cmd import top; '
            f'top.status_socket.fetch = lambda path: {document!r}; '
            f'sys.exit(top.main(["--once", *{words!r}]))'
        )
        done = subprocess.run(
            [sys.executable, '-c', program],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
        )
        return done.returncode, done.stderr

    def test_full_output_is_reported_as_such(self) -> None:
        for words in ((), ('--json',)):
            with open('/dev/full', 'w') as full:
                _, complaint = self.print_to(full, *words)
            self.assertIn('No space left', complaint)
            self.assertNotIn('running', complaint)

    def test_closed_pipe_ends_the_program(self) -> None:
        for words in ((), ('--json',)):
            reading, writing = os.pipe()
            os.close(reading)
            with open(writing, 'w') as pipe:
                self.assertEqual((1, ''), self.print_to(pipe, *words))

    def test_signal_restores_the_terminal(self) -> None:
        document = status_document.document()
        document['agent'] |= AGENT
        program = (
            'import sys; from nova_vhpc.cmd import top; '
            f'top.status_socket.fetch = lambda path: {document!r}; '
            'sys.exit(top.main([]))'
        )
        for number in (signal.SIGTERM, signal.SIGHUP):
            reading, terminal = pty.openpty()
            with subprocess.Popen(
                [sys.executable, '-c', program],
                stdin=terminal,
                stdout=terminal,
                stderr=subprocess.STDOUT,
                env={**os.environ, 'TERM': 'xterm'},
            ) as running:
                os.close(terminal)
                shown = b''
                while b'compute-1' not in shown:
                    shown += os.read(reading, 65536)
                running.send_signal(number)
                # Linux says that a terminal has no writer left by an error.
                with contextlib.suppress(OSError):
                    while more := os.read(reading, 65536):
                        shown += more
            os.close(reading)
            self.assertEqual(128 + number, running.returncode)
            self.assertIn(b'\x1b[?1049l', shown)
            self.assertNotIn(b'Traceback', shown)

    def test_answer_of_another_version_is_reported(self) -> None:
        endless = status_document.document()
        endless |= {'publishing': None, 'agent': {**AGENT, 'period_us': 0}}
        endless['vms'][0]['run_us'] = 5.0
        for answer in ({}, [], {'agent': None, 'vms': []}, endless):
            err = io.StringIO()
            with (
                mock.patch.object(
                    top.status_socket, 'fetch', lambda _, a=answer: a
                ),
                contextlib.redirect_stderr(err),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                self.assertEqual(1, top.main(['--once']))
            self.assertIn('another version', err.getvalue())

    def test_agent_states_are_shown(self) -> None:
        text = self.show(
            dry_run=True, paused=True, libvirt_up=False, tick_us=None
        )
        for word in ('DRY RUN', 'PAUSED', 'NO LIBVIRT'):
            self.assertIn(word, text)
