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

from nova_vhpc.agent import connection
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
    def test_one_that_hangs_is_told_of_once(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        answer, up = threading.Event(), threading.Event()

        def connect(uri: str) -> Any:
            self.assertTrue(answer.wait(PATIENCE_S))
            return mock.Mock(domainEventCallbackID={})

        told = threading.Event()

        class Made(connection.Connection):
            def _note_silence(self) -> None:
                super()._note_silence()
                told.set()

        with (
            mock.patch.object(libvirt, 'open', connect),
            mock.patch.object(connection, 'start_event_loop'),
            mock.patch.object(connection, 'SILENCE_S', 0.01),
        ):
            made = Made('x', lambda conn: up.set())
            self.addCleanup(made._thread.join)
            self.addCleanup(made.stop)
            self.addCleanup(answer.set)
            made.start()
            self.assertTrue(told.wait(PATIENCE_S))
            self.assertEqual(1, log.output.count('does not answer'))
            answer.set()
            self.assertTrue(up.wait(PATIENCE_S))
        self.assertTrue(made.up)
        self.assertIn('x: connected', log.output)
