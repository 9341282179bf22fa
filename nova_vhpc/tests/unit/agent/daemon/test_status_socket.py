# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.daemon.status_socket`."""

import errno
import os
import pathlib
import socket
import stat
from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.daemon import status_socket


class StatusSocketTest(base.BaseTestCase):
    def test_document_is_served_until_stop(self) -> None:
        path = self.useFixture(fixtures.TempDir('/tmp')).join('s')
        server = status_socket.StatusServer(path, 0o640, lambda: {'a': [1]})
        server.start()
        self.assertEqual(0o640, stat.S_IMODE(os.stat(path).st_mode))
        self.assertEqual({'a': [1]}, status_socket.fetch(path))
        self.assertEqual({'a': [1]}, status_socket.fetch(path))
        server.stop()
        self.assertRaises(OSError, status_socket.fetch, path)
        self.assertFalse(os.path.exists(path))

    def test_server_survives_a_lack_of_descriptors(self) -> None:
        path = self.useFixture(fixtures.TempDir('/tmp')).join('s')
        server = status_socket.StatusServer(path, 0o600, lambda: {'a': 1})
        accept, lacks = socket.socket.accept, [errno.EMFILE, errno.ENFILE]

        def fails(one: socket.socket) -> object:
            if lacks:
                raise OSError(lacks.pop(), 'Too many open files')
            return accept(one)

        with (
            mock.patch.object(socket.socket, 'accept', fails),
            mock.patch.object(status_socket, 'PAUSE_S', 0.0),
            self.assertLogs(status_socket.LOG, 'INFO') as logs,
        ):
            server.start()
            self.addCleanup(server.stop)
            self.assertEqual({'a': 1}, status_socket.fetch(path, 60.0))
            self.assertEqual({'a': 1}, status_socket.fetch(path, 60.0))
        self.assertEqual(
            ['WARNING', 'INFO'], [one.levelname for one in logs.records]
        )

    def test_socket_left_by_a_crash_is_replaced(self) -> None:
        path = self.useFixture(fixtures.TempDir('/tmp')).join('s')
        pathlib.Path(path).write_text('')
        server = status_socket.StatusServer(path, 0o600, dict)
        server.start()
        self.addCleanup(server.stop)
        self.assertEqual({}, status_socket.fetch(path))
