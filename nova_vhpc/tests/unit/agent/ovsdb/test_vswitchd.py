# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.ovsdb.vswitchd`."""

import contextlib
import json
import os
import pathlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import fixtures
from oslotest import base

from nova_vhpc.agent import errors
from nova_vhpc.agent.ovsdb import vswitchd


class Server:
    """A control socket whose answers a test chooses.

    :param answer: gets a request, and returns the bytes to send; None to send
        nothing.
    """

    def __init__(
        self, path: pathlib.Path, answer: Callable[[Any], bytes | None]
    ) -> None:
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._socket.accept()[0]
                # Closed connections would be another answer.
                self._kept.append(client)
                text = b''
                with contextlib.suppress(ValueError):
                    while chunk := client.recv(1 << 16):
                        text += chunk
                        request = json.loads(text)
                        answer = self._answer(request)
                        if answer is None:
                            break
                        client.sendall(answer)
                        if not answer:
                            client.close()
                            break

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for client in self._kept:
            client.close()


def reply(request: Any, result: Any = None, error: Any = None) -> bytes:
    return json.dumps(
        {'id': request['id'], 'result': result, 'error': error}
    ).encode()


class VswitchdTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.daemon = vswitchd.Vswitchd(self.path, timeout_s=60.0)
        self.ctl = self.path / 'ovs-vswitchd.ctl'

    def serve(
        self,
        answer: Callable[[Any], bytes | None],
        path: pathlib.Path | None = None,
    ) -> Server:
        server = Server(path or self.ctl, answer)
        self.addCleanup(server.close)
        return server

    def refused(self) -> vswitchd.VswitchdError:
        error = self.assertRaises(
            vswitchd.VswitchdError, self.daemon.call, 'bond/list'
        )
        self.assertNotIsInstance(error, vswitchd.Refused)
        return error

    def test_command_and_arguments_are_sent(self) -> None:
        requests = []

        def answer(request: Any) -> bytes:
            requests.append((request['method'], request['params']))
            return reply(request, 'migrated\n')

        self.serve(answer)
        self.assertEqual(
            'migrated\n',
            self.daemon.call('bond/migrate', 'bond0', '3', 'eth1'),
        )
        self.assertEqual([('bond/migrate', ['bond0', '3', 'eth1'])], requests)

    def test_long_answer_is_read_whole(self) -> None:
        text = 'x' * 300_000
        self.serve(lambda request: reply(request, text))
        self.assertEqual(text, self.daemon.call('fdb/show', 'br-ex'))

    def test_command_that_fails_is_refused(self) -> None:
        self.serve(lambda request: reply(request, error='no such bond\n'))
        error = self.assertRaises(
            vswitchd.Refused, self.daemon.call, 'bond/show', 'bond9'
        )
        self.assertEqual('no such bond', str(error))

    def test_daemon_that_does_not_run_is_named(self) -> None:
        self.assertIn('not running', str(self.refused()))
        # A socket without a daemon, as after kill -9.
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(self.ctl))
        self.assertIn('not running', str(self.refused()))

    def test_daemon_that_hangs_is_waited_for_a_while(self) -> None:
        self.daemon = vswitchd.Vswitchd(self.path, timeout_s=0.2)
        self.serve(lambda request: None)
        self.assertIn('timed out', str(self.refused()))

    def test_answer_to_another_request_is_no_answer(self) -> None:
        self.daemon = vswitchd.Vswitchd(self.path, timeout_s=0.2)
        self.serve(lambda request: reply({'id': 'x'}, 'hello'))
        self.assertIn('timed out', str(self.refused()))

    def test_closed_connection_is_no_answer(self) -> None:
        self.serve(lambda request: b'')
        self.assertIn('connection closed', str(self.refused()))

    def test_answer_that_is_no_json_is_no_answer(self) -> None:
        self.serve(lambda request: b'}}}')
        self.refused()

    def test_socket_has_the_process_id_in_its_name(self) -> None:
        (self.path / 'ovs-vswitchd.pid').write_text('4711\n')
        self.serve(lambda request: reply(request, 'without'))
        self.assertEqual('without', self.daemon.call('version'))
        self.serve(
            lambda request: reply(request, 'with'),
            self.path / 'ovs-vswitchd.4711.ctl',
        )
        self.assertEqual('with', self.daemon.call('version'))

    def test_new_socket_of_the_same_name_is_another_run(self) -> None:
        self.assertIsNone(self.daemon.identity())
        self.serve(lambda request: None)
        first = self.daemon.identity()
        self.assertIsNotNone(first)
        self.assertEqual(first, self.daemon.identity())
        os.unlink(self.ctl)
        self.serve(lambda request: None)
        self.assertNotEqual(first, self.daemon.identity())


class RunDirTest(base.BaseTestCase):
    def test_option_comes_first_then_the_socket_of_the_database(self) -> None:
        for option, remote, expected in (
            ('/host/run', 'unix:/run/ovs/db.sock', '/host/run'),
            ('', 'unix:/run/ovs/db.sock', '/run/ovs'),
            ('', 'tcp:127.0.0.1:6640', '/run/openvswitch'),
        ):
            self.assertEqual(
                pathlib.Path(expected), vswitchd.run_dir(option, remote)
            )

    def test_relative_directory_is_refused(self) -> None:
        error = self.assertRaises(
            errors.ConfigError, vswitchd.run_dir, 'run', ''
        )
        self.assertIn("[vhpc_agent] ovs_run_dir: 'run'", str(error))
