# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.systemd`, with real signals."""

import os
import signal
import socket
import threading
import time
import types

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


class TestShutdown(base.BaseTestCase):
    def test_parts_are_stopped_at_the_same_time(self) -> None:
        both = threading.Barrier(2, timeout=60)
        part = types.SimpleNamespace(stop=both.wait)
        left = systemd.stop_all((part, part), time.monotonic() + 60)
        self.assertEqual([], left)
        self.assertFalse(both.broken)

    def test_part_that_hangs_is_returned_as_running(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)
        left = systemd.stop_all((types.SimpleNamespace(stop=go.wait),), 0.0)
        self.assertFalse(go.is_set())
        self.assertEqual(left, systemd.join_all(left, 0.0))
        go.set()
        self.assertEqual([], systemd.join_all(left, time.monotonic() + 60))


class TestSignals(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in (
            *systemd.STOP_SIGNALS,
            *systemd.IGNORED_SIGNALS,
            signal.SIGHUP,
        ):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        before = signal.set_wakeup_fd(-1)
        self.addCleanup(signal.set_wakeup_fd, before)
        self.caught = systemd.Signals()
        self.caught.catch()

    def test_sighup_requests_one_reload(self) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        self.assertTrue(self.caught.wait())
        self.assertIsNone(self.caught.stop_s)
        os.kill(os.getpid(), signal.SIGTERM)
        self.assertFalse(self.caught.wait())

    def test_sigterm_and_sigint_request_shutdown(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self.caught.stop_s = None
            os.kill(os.getpid(), number)
            self.assertFalse(self.caught.wait())
            self.assertIsNotNone(self.caught.stop_s)

    def test_other_signals_are_ignored(self) -> None:
        for number in systemd.IGNORED_SIGNALS:
            os.kill(os.getpid(), number)
        self.assertIsNone(self.caught.stop_s)
