# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The connection is opened again, however long libvirtd is away."""

import threading
import time
from typing import Any
from unittest import mock

import fixtures
import libvirt
import tenacity
from oslotest import base

from nova_vhpc.agent.libvirt import connection
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent import fake_libvirt

PATIENCE_S = 60.0


class TestConnection(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.tried, self.up = threading.Event(), threading.Event()
        self.refusals = 1
        patches = (
            mock.patch.object(libvirt, 'open', self.open),
            mock.patch.object(connection, 'start_event_loop'),
            # The pauses are that long after a while without libvirtd.
            mock.patch.object(
                connection.tenacity,
                'wait_random_exponential',
                return_value=tenacity.wait_fixed(3600),
            ),
        )
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)
        self.made = connection.Connection('x', lambda conn: self.up.set())
        self.addCleanup(self.made._thread.join)
        self.addCleanup(self.made.stop)
        self.made.start()
        self.assertTrue(self.tried.wait(PATIENCE_S))

    def open(self, uri: str) -> Any:
        self.refusals -= 1
        self.tried.set()
        if self.refusals >= 0:
            raise fake_libvirt.error(libvirt.VIR_ERR_NO_CONNECT, 'away')
        return mock.Mock(domainEventCallbackID={})

    def test_hurry_ends_the_pause(self) -> None:
        self.assertFalse(self.made.up)
        self.made.hurry()
        self.assertTrue(self.up.wait(PATIENCE_S))

    def test_hurry_shortens_later_pauses(self) -> None:
        self.refusals = 3
        self.made.hurry()
        self.assertTrue(self.up.wait(PATIENCE_S))

    def test_stop_ends_the_pause(self) -> None:
        self.made.stop()
        self.made._thread.join(PATIENCE_S)
        self.assertFalse(self.made._thread.is_alive())
        self.assertFalse(self.made.up)


class TestSilence(base.BaseTestCase):
    """libvirtd hangs while the agent connects."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.up, self.silence_noted = threading.Event(), threading.Event()
        self.note_after_s = 0.0
        test = self

        class Made(connection.Connection):
            def _note_silence(self) -> None:
                if test.note_after_s:
                    test.answer.set()
                    test.up.wait(test.note_after_s)
                super()._note_silence()
                test.silence_noted.set()

        self.answer = threading.Event()
        for patch in (
            mock.patch.object(libvirt, 'open', self.connect),
            mock.patch.object(connection, 'start_event_loop'),
            mock.patch.object(connection, 'SILENCE_S', 0.01),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.made = Made('x', lambda conn: self.up.set())

    def start(self) -> None:
        self.made.start()
        self.addCleanup(self.made._thread.join)
        self.addCleanup(self.made.stop)
        self.addCleanup(self.answer.set)

    def connect(self, uri: str) -> Any:
        self.assertTrue(self.answer.wait(PATIENCE_S))
        return mock.Mock(domainEventCallbackID={})

    def test_hang_is_logged_once_until_connected(self) -> None:
        self.start()
        for attempt in (1, 2):
            self.assertTrue(self.silence_noted.wait(PATIENCE_S))
            # A further attempt notes it again, if this one fails.
            self.made._note_silence()
            self.assertEqual(attempt, self.log.output.count('does not answer'))
            self.answer.set()
            self.assertTrue(self.up.wait(PATIENCE_S))
            self.assertTrue(self.made.up)
            self.assertEqual(attempt, self.log.output.count('x: connected'))
            for event in (self.answer, self.silence_noted, self.up):
                event.clear()
            # Keep-alive does the same if libvirtd hangs later on.
            self.made._lost.set()

    def test_answer_ends_the_silence_timer(self) -> None:
        self.answer.set()
        with mock.patch.object(connection, 'SILENCE_S', 2 * PATIENCE_S):
            self.start()
            self.assertTrue(self.up.wait(PATIENCE_S / 4))

    def test_silence_after_stop_is_not_logged(self) -> None:
        self.made.stop()
        self.made._note_silence()
        self.assertEqual('', self.log.output)

    def test_answer_during_the_warning_counts_as_connected(self) -> None:
        self.note_after_s = 0.2
        self.start()
        self.assertTrue(self.up.wait(PATIENCE_S))
        self.assertTrue(self.silence_noted.wait(PATIENCE_S))
        lines = self.log.output.splitlines()
        self.assertIn('does not answer', lines[0])
        self.assertEqual('libvirt at x: connected', lines[1])


class TestConnectionWakeup(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.calls = 0
        self.wanted = True
        self.away = False
        self.enough = threading.Event()
        conn = mock.Mock(getLibVersion=self.call)
        self.made = connection.ConnectionWakeup(
            lambda: conn, lambda: self.wanted
        )
        self.addCleanup(setattr, self, 'wanted', False)

    def call(self) -> None:
        self.calls += 1
        if self.away:
            raise fake_libvirt.refused('away')
        if self.calls >= 3:
            self.enough.set()

    def wake(self) -> None:
        """Wake the thread, and wait until it has noticed."""
        self.made.wake()
        waiting.wait_for(lambda: not self.made._wake.is_set())

    def test_calls_are_made_while_wanted(self) -> None:
        for _ in range(2):
            self.made.wake()
            self.assertTrue(self.enough.wait(PATIENCE_S))
            self.wanted = False
            self.wake()
            before = self.calls
            self.wake()
            self.wake()
            self.assertEqual(before, self.calls)
            self.calls, self.wanted = 0, True
            self.enough.clear()

    def test_calls_are_made_again_after_a_lost_connection(self) -> None:
        self.away = True
        self.made.wake()
        waiting.wait_for(lambda: self.calls)
        time.sleep(3 * connection.WAKEUP_PAUSE_S)
        self.assertEqual(1, self.calls)
        self.away = False
        self.made.wake()
        self.assertTrue(self.enough.wait(PATIENCE_S))
