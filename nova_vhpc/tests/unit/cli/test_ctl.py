# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-ctl`` says what became of each server."""

import contextlib
import io
import os
import pathlib
from typing import Any
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.rpc import control
from nova_vhpc.cli import ctl


def told(*restored: str, **failed: str) -> dict[str, Any]:
    return {'restored': list(restored), 'failed': failed, 'unknown': []}


class CallAllTest(base.BaseTestCase):
    def test_answers_and_failures_are_in_the_order_of_the_hosts(self) -> None:
        hosts = [f'c{number}' for number in range(100)]

        def call(host: str) -> str | None:
            if host.endswith('7'):
                raise control.ControlError(f'host {host}: is away')
            return None if host == 'c0' else host.upper()

        answers, failures = control.call_all(hosts, call)
        away = [host for host in hosts if host.endswith('7')]
        self.assertEqual([h for h in hosts if h not in away], list(answers))
        self.assertEqual((None, 'C99'), (answers['c0'], answers['c99']))
        self.assertEqual({h: f'host {h}: is away' for h in away}, failures)

    def test_other_errors_are_raised(self) -> None:
        self.assertRaises(KeyError, control.call_all, ['c1'], {}.__getitem__)


class CtlTest(base.BaseTestCase):
    def run_with(
        self, answers: dict[str, Any], *words: str
    ) -> tuple[int, str, str]:
        """Run a command; hosts answer as given, by name."""
        out, err = io.StringIO(), io.StringIO()
        client = mock.create_autospec(control.ControlClient)
        client.return_value.call.side_effect = lambda host, *a, **k: answers[
            host
        ]
        hosts = [word for host in answers for word in ('--host', host)]
        with (
            mock.patch.object(control, 'ControlClient', client),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = ctl.main(['--config-file', os.devnull, *words, *hosts])
        return code, out.getvalue(), err.getvalue()

    def test_parts_that_are_not_healthy_are_shown(self) -> None:
        part = {'state': 'ok', 'healthy': True, 'what': '', 'action': ''}
        off = {
            'state': 'degraded',
            'healthy': False,
            'what': 'no broker',
            'action': 'start it',
            'since': 0.0,
        }
        judged = {'healthy': False, 'parts': {'libvirt': part, 'bus': off}}
        _, out, _ = self.run_with({'a': {'health': judged}}, 'status')
        self.assertIn(', not healthy', out)
        self.assertIn(
            '  bus: degraded since 1970-01-01 00:00:00 UTC: no broker; start',
            out,
        )
        self.assertNotIn('libvirt:', out)

    def test_all_servers_restored_exits_with_0(self) -> None:
        for command in ('restore', 'pause'):
            code, out, err = self.run_with({'a': told('x', 'y')}, command)
            self.assertEqual((0, ''), (code, err))
            self.assertIn('a: restored 2 servers x y', out)

    def test_server_not_restored_exits_with_1(self) -> None:
        for command in ('restore', 'pause'):
            code, out, err = self.run_with({'a': told('x', y='busy')}, command)
            self.assertEqual(1, code)
            self.assertIn('restored 1 servers x', out)
            self.assertIn('host a: server y is not restored: busy', err)

    def test_server_unknown_to_all_hosts_exits_with_1(self) -> None:
        nobody = told() | {'unknown': ['z']}
        code, _, err = self.run_with(
            {'a': nobody, 'b': nobody}, 'restore', '--server', 'z'
        )
        self.assertEqual(1, code)
        self.assertIn('server z is not known to the agent of a, b', err)

    def test_server_known_to_one_host_exits_with_0(self) -> None:
        code, _, err = self.run_with(
            {'a': told() | {'unknown': ['z']}, 'b': told('z')},
            'restore',
            '--server',
            'z',
        )
        self.assertEqual((0, ''), (code, err))

    def test_options_may_precede_or_follow_the_command(self) -> None:
        answers = {'a': {'answer': {'version': 1}}}
        before = self.run_with(answers, '--json', '--timeout', '7', 'status')
        after = self.run_with(answers, 'status', '--json', '--timeout', '7')
        self.assertEqual(before, after)
        self.assertIn('"version": 1', after[1])
        parse = ctl.make_parser().parse_args
        self.assertEqual(
            parse(['--timeout', '7', '--json', 'pause']),
            parse(['pause', '--timeout', '7', '--json']),
        )
        self.assertFalse(parse(['pause']).json)

    def test_files_before_and_after_the_command_are_read(self) -> None:
        files = []
        for text in ('call_timeout = 7', ''):
            file = self.useFixture(fixtures.TempDir()).join('conf')
            pathlib.Path(file).write_text(f'[vhpc_peers]\n{text}\n')
            files += ['--config-file', file]
        parse = ctl.make_parser().parse_args
        for before in range(0, 5, 2):
            words = [*files[:before], 'status', *files[before:]]
            conf = ctl.make_conf(parse(words))
            self.assertEqual(files[1::2], conf.config_file)
            self.assertEqual(7, conf.vhpc_peers.call_timeout)

    def test_one_server_is_resumed_or_the_reason_is_printed(self) -> None:
        code, out, err = self.run_with(
            {'a': {'resumed': ['x'], 'failed': {}, 'unknown': []}},
            'resume',
            'x',
        )
        self.assertEqual((0, 'a: resumed x\n', ''), (code, out, err))
        code, out, err = self.run_with(
            {'a': {'resumed': [], 'failed': {'x': 'busy'}, 'unknown': []}},
            'resume',
            'x',
        )
        self.assertEqual((1, ''), (code, out))
        self.assertIn('host a: server x is not resumed: busy', err)
        code, out, err = self.run_with(
            {'a': {'resumed': [], 'failed': {}, 'unknown': ['x']}},
            'resume',
            'x',
        )
        self.assertEqual((1, ''), (code, out))
        self.assertIn('server x is not known to the agent of a', err)

    def test_server_may_be_named_with_or_without_an_option(self) -> None:
        for words in (('z',), ('--server', 'z')):
            code, _, err = self.run_with({'a': told('z')}, 'restore', *words)
            self.assertEqual((0, ''), (code, err))

    def test_resume_and_status_are_printed(self) -> None:
        code, out, _ = self.run_with({'a': {}}, 'resume')
        self.assertEqual((0, 'a: resume: done\n'), (code, out))
        code, out, _ = self.run_with({'a': {'vms': []}}, 'status')
        self.assertEqual(0, code)
        self.assertIn('servers: 0', out)

    def test_empty_name_is_refused(self) -> None:
        for words in (
            ['pause', '--host', ''],
            ['status', '--host', ' '],
            ['restore', '--host', 'a', '--server', ''],
            ['resume', ''],
        ):
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                ending = self.assertRaises(
                    SystemExit, ctl.make_parser().parse_args, words
                )
            self.assertEqual(2, ending.code)
            self.assertIn('is no name', err.getvalue())

    def test_unreadable_answer_is_reported_beside_the_others(self) -> None:
        code, out, err = self.run_with(
            {'a': {'agent': 5}, 'b': {'vms': []}}, 'status'
        )
        self.assertEqual(1, code)
        self.assertIn('b: agent ?', out)
        self.assertIn('host a: its answer is not that of', err)
