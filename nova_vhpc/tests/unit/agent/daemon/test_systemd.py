# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.systemd`."""

import os
import socket

import fixtures
from oslotest import base

from nova_vhpc.agent.daemon import systemd


class TestNotifier(base.BaseTestCase):
    def listen(self) -> socket.socket:
        path = self.useFixture(fixtures.TempDir('/tmp')).join('n')
        server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(server.close)
        server.bind(path)
        server.settimeout(5)
        self.useFixture(fixtures.EnvironmentVariable('NOTIFY_SOCKET', path))
        return server

    def test_messages_are_sent_and_the_watchdog_seldom(self) -> None:
        server = self.listen()
        self.useFixture(
            fixtures.EnvironmentVariable('WATCHDOG_USEC', '30000000')
        )
        notifier = systemd.Notifier()
        self.assertEqual(10.0, notifier.interval_s)
        notifier.ready()
        # Several ticks within the interval send one message.
        for _ in range(5):
            notifier.feed()
        notifier.stopping()
        self.assertEqual(
            [b'READY=1', b'WATCHDOG=1', b'STOPPING=1'],
            [server.recv(50) for _ in range(3)],
        )

    def test_watchdog_of_another_process_is_not_fed(self) -> None:
        self.listen()
        self.useFixture(
            fixtures.EnvironmentVariable('WATCHDOG_USEC', '30000000')
        )
        self.useFixture(
            fixtures.EnvironmentVariable('WATCHDOG_PID', str(os.getpid() + 1))
        )
        self.assertEqual(0, systemd.Notifier().interval_s)

    def test_nothing_is_sent_without_systemd(self) -> None:
        self.useFixture(fixtures.EnvironmentVariable('NOTIFY_SOCKET'))
        notifier = systemd.Notifier()
        notifier.ready()
        notifier.feed()
