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

"""The connection is made anew, however long libvirtd is away."""

import threading
from typing import Any
from unittest import mock

import fixtures
import libvirt
import tenacity
from oslotest import base

from nova_vhpc.agent.libvirt import connection
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
            # As after a while without libvirtd.
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

    def test_the_end_waits_for_no_pause(self) -> None:
        self.assertFalse(self.made.up)
        self.made.hurry()
        self.assertTrue(self.up.wait(PATIENCE_S))

    def test_nor_for_the_next_one(self) -> None:
        self.refusals = 3
        self.made.hurry()
        self.assertTrue(self.up.wait(PATIENCE_S))

    def test_it_ends_in_a_pause(self) -> None:
        self.made.stop()
        self.made._thread.join(PATIENCE_S)
        self.assertFalse(self.made._thread.is_alive())
        self.assertFalse(self.made.up)


class TestSilence(base.BaseTestCase):
    """A libvirtd that hangs while one connects."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.up, self.told = threading.Event(), threading.Event()
        self.tell_after_s = 0.0
        test = self

        class Made(connection.Connection):
            def _note_silence(self) -> None:
                if test.tell_after_s:
                    test.answer.set()
                    test.up.wait(test.tell_after_s)
                super()._note_silence()
                test.told.set()

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

    def test_it_is_told_of_once_each_time(self) -> None:
        self.start()
        for time in (1, 2):
            self.assertTrue(self.told.wait(PATIENCE_S))
            # As a further try does, if this one fails in the end.
            self.made._note_silence()
            self.assertEqual(time, self.log.output.count('does not answer'))
            self.answer.set()
            self.assertTrue(self.up.wait(PATIENCE_S))
            self.assertTrue(self.made.up)
            self.assertEqual(time, self.log.output.count('x: connected'))
            for event in (self.answer, self.told, self.up):
                event.clear()
            # As keep-alive does, if it hangs later on.
            self.made._lost.set()

    def test_nobody_waits_once_it_has_answered(self) -> None:
        self.answer.set()
        with mock.patch.object(connection, 'SILENCE_S', 2 * PATIENCE_S):
            self.start()
            self.assertTrue(self.up.wait(PATIENCE_S / 4))

    def test_it_is_no_news_at_the_end(self) -> None:
        self.made.stop()
        self.made._note_silence()
        self.assertEqual('', self.log.output)

    def test_who_answers_just_then_counts_as_connected(self) -> None:
        self.tell_after_s = 0.2
        self.start()
        self.assertTrue(self.up.wait(PATIENCE_S))
        self.assertTrue(self.told.wait(PATIENCE_S))
        lines = self.log.output.splitlines()
        self.assertIn('does not answer', lines[0])
        self.assertEqual('libvirt at x: connected', lines[1])
