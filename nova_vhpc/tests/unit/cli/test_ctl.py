# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-ctl`` and ``openstack vhpc host``: the same calls to agents."""

import contextlib
import io
import json
import os
import pathlib
import socket
import uuid
from typing import Any

import fixtures

from nova_vhpc.agent.rpc import control
from nova_vhpc.cli import ctl
from nova_vhpc.tests import base, osc_shell
from nova_vhpc.tests.unit.cli import bus

HEALTHY = {'healthy': True, 'parts': {}}
AGENT = {'paused': False, 'dry_run': False}


def told(*done: str, key: str = 'restored', **failed: str) -> dict[str, Any]:
    return {key: list(done), 'failed': failed, 'unknown': []}


class CallAllTest(base.TestCase):
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


class DoorTestCase(base.TestCase):
    """Real calls to agents over a bus, by either door."""

    def setUp(self) -> None:
        super().setUp()
        self.bus = self.useFixture(bus.Bus())
        # Queues of the bus outlive a test.
        self.suffix = uuid.uuid4().hex

    def host(self, name: str) -> str:
        return f'{name}-{self.suffix}'

    def agents(self, **answers: dict[str, Any]) -> list[bus.Agent]:
        """Let the agents of hosts answer, and remember the hosts."""
        self.hosts = [self.host(name) for name in answers]
        return [
            self.bus.agent(self.host(name), **answer)
            for name, answer in answers.items()
        ]

    def ctl(self, *words: str) -> tuple[int, str, str]:
        """Run ``nova-vhpc-ctl``; the suffix of hosts is not in its output."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = ctl.main([*self.bus.options, *words])
            except SystemExit as stop:
                status = stop.code
        return self.plain(status, out.getvalue(), err.getvalue())

    def plain(self, status: Any, *texts: str) -> Any:
        return (
            status,
            *(text.replace(f'-{self.suffix}', '') for text in texts),
        )

    def both(self, command: str, *words: str) -> tuple[int, list[Any], str]:
        """Run a command by both doors, which must answer the same.

        :returns: exit status, rows, and standard error.
        """
        named = [word for host in self.hosts for word in ('--host', host)]
        by_ctl = self.ctl(command, *named, *words, '-f', 'json')
        by_client = self.plain(
            *osc_shell.run(
                *(None, 'host', command, *self.hosts, *self.bus.options),
                *(*words, '-f', 'json'),
            )
        )
        self.assertEqual(by_ctl, by_client)
        status, out, err = by_ctl
        return status, [list(row.values()) for row in json.loads(out)], err


class ChangeTest(DoorTestCase):
    def test_outcome_of_each_server(self) -> None:
        one, two = told(), told('z')
        busy = 'host a: server x is not restored: busy'
        late = 'host a: server x is not resumed: busy'
        unknown = (
            'server z is not known to the agent of a, b; on which host does '
            'it run, and has its flavor vhpc: extra specs?'
        )
        for command, server, answers, rows in (
            ('restore', None, [told('x', 'y')], [(['x', 'y'], [])]),
            ('pause', None, [told('y', x='busy')], [(['y'], [busy])]),
            ('resume', 'x', [told('x', key='resumed')], [(['x'], [])]),
            ('resume', 'x', [told(key='resumed', x='busy')], [([], [late])]),
            ('restore', 'z', [one, two], [([], []), (['z'], [])]),
            ('restore', 'z', [one, one], [([], [unknown])] * 2),
        ):
            with self.subTest(command=command, answers=answers):
                self.suffix = uuid.uuid4().hex
                agents = self.agents(**dict(zip('ab', answers, strict=False)))
                words = ('--server', server) if server else ()
                status, found, _ = self.both(command, *words)
                self.assertEqual(rows, [(row[2], row[3]) for row in found])
                failed = [bool(problems) for _, problems in rows]
                self.assertEqual(failed, [not row[1] for row in found])
                self.assertEqual(int(any(failed)), status)
                for agent in agents:
                    self.assertEqual([(command, server)] * 2, agent.calls)

    def test_answer_of_another_version_is_told_beside_the_others(self) -> None:
        self.agents(a={'restored': 5}, b=told('x'))
        status, (one, two), _ = self.both('pause')
        self.assertEqual((1, False, True), (status, one[1], two[1]))
        self.assertIn('is not that of', one[3][0])

    def test_host_without_an_agent_is_not_done(self) -> None:
        self.agents(a=told())
        self.hosts.append(self.host('b'))
        status, (one, two), _ = self.both('pause', '--timeout', '2')
        self.assertEqual((1, True, False), (status, one[1], two[1]))
        self.assertIn('host b: ', two[3][0])

    def test_json_is_the_whole_answer_and_problems_are_said(self) -> None:
        self.agents(a=told('x', y='busy'))
        status, out, err = self.ctl('restore', '--host', *self.hosts, '--json')
        self.assertEqual(1, status)
        self.assertEqual({'a': told('x', y='busy')}, json.loads(out))
        self.assertIn('server y is not restored: busy', err)

    def test_server_may_be_named_with_or_without_an_option(self) -> None:
        (agent,) = self.agents(a=told('z'))
        for words in (('z',), ('--server', 'z')):
            status, _, err = self.ctl('restore', '--host', *self.hosts, *words)
            self.assertEqual((0, ''), (status, err))
        self.assertEqual([('restore', 'z')] * 2, agent.calls)

    def test_agents_need_no_login_but_a_bus(self) -> None:
        for argv in (('pause', 'a'), ('status', 'a')):
            status, _, err = osc_shell.run(
                *(None, 'host', *argv, '--config-file', os.devnull)
            )
            self.assertEqual(1, status)
            self.assertIn('transport_url is not set', err)

    def test_broker_that_is_down_is_named_at_once(self) -> None:
        with socket.create_server(('127.0.0.1', 0)) as free:
            port = free.getsockname()[1]
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).join('conf'))
        file.write_text(
            f'[DEFAULT]\ntransport_url = rabbit://u:secret@127.0.0.1:{port}/\n'
            '[vhpc_peers]\ncall_timeout = 600\n'
        )
        status, out, err = self.ctl(
            'status', '--host', 'a', '--config-file', str(file)
        )
        self.assertEqual((2, ''), (status, out))
        self.assertIn(f'127.0.0.1:{port} (Connection refused)', err)
        self.assertIn('transport_url', err)
        self.assertNotIn('secret', err)


class StatusTest(DoorTestCase):
    def status(self, answer: dict[str, Any]) -> str:
        """Return the status of a host, which both doors show alike."""
        self.suffix = uuid.uuid4().hex
        self.agents(a=answer)
        found = self.ctl('status', '--host', *self.hosts)
        client = osc_shell.run(
            *(None, 'host', 'status', *self.hosts, *self.bus.options)
        )
        self.assertEqual(found, self.plain(*client))
        self.assertEqual((0, ''), (found[0], found[2]))
        return found[1]

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
        out = self.status({'health': judged, 'vms': []})
        self.assertIn(', not healthy', out)
        self.assertIn(
            '  bus: degraded since 1970-01-01 00:00:00 UTC: no broker; start',
            out,
        )
        self.assertNotIn('libvirt:', out)
        self.assertIn('servers: 0', out)

    def test_servers_that_spin_are_named_with_what_to_do(self) -> None:
        waiting = {'finding': 'never sleeps', 'remedy': 'let it wait'}
        vms = [
            {'name': name, 'server_name': '', 'waiting': one}
            for name, one in (
                ('i-1', {**waiting, 'state': 'held-up'}),
                ('i-2', {**waiting, 'state': 'spins'}),
                ('i-3', None),
            )
        ]
        out = self.status({'health': HEALTHY, 'vms': vms})
        self.assertIn('  i-1 never sleeps: let it wait\n', out + '\n')
        self.assertNotIn('i-2', out)

    def test_agent_that_does_not_judge_itself_is_not_called_healthy(
        self,
    ) -> None:
        self.assertIn('health unknown', self.status({'vms': []}))
        self.assertNotIn('unknown', self.status({'health': HEALTHY}))

    def test_unreadable_answer_is_reported_beside_the_others(self) -> None:
        self.agents(a={'agent': 5}, b={'vms': []})
        hosts = [word for host in self.hosts for word in ('--host', host)]
        status, out, err = self.ctl('status', *hosts)
        self.assertEqual(1, status)
        self.assertIn('b: agent ?', out)
        self.assertIn('host a: its answer is not that of', err)


class ArgumentsTest(DoorTestCase):
    def test_options_may_precede_or_follow_the_command(self) -> None:
        self.agents(a={'version': 1})
        host = ('--host', *self.hosts)
        before = self.ctl('--json', '--timeout', '7', 'status', *host)
        after = self.ctl('status', *host, '--json', '--timeout', '7')
        self.assertEqual(before, after)
        self.assertEqual({'a': {'version': 1}}, json.loads(after[1]))

    def test_files_before_and_after_the_command_are_read(self) -> None:
        self.agents(a={'vms': []})
        wrong = pathlib.Path(self.useFixture(fixtures.TempDir()).join('conf'))
        wrong.write_text('[vhpc_peers]\ncall_timeout = wrong\n')
        more = ('--config-file', str(wrong))
        host = ('--host', *self.hosts)
        for words in ((*more, 'status'), ('status', *more)):
            # The bus is named by a file before the command.
            status, _, err = self.ctl(*words, *host)
            self.assertEqual(2, status)
            self.assertIn(str(wrong), err)
        self.assertEqual(0, self.ctl('status', *self.bus.options, *host)[0])

    def test_empty_name_is_refused(self) -> None:
        for words in (
            ['pause', '--host', ''],
            ['status', '--host', ' '],
            ['restore', '--host', 'a', '--server', ''],
            ['resume', ''],
        ):
            status, _, err = self.ctl(*words)
            self.assertEqual(2, status)
            self.assertIn('is no name', err)
