# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Small calls are made only while other calls take long."""

import threading
import time
from unittest import mock

from oslotest import base

from nova_vhpc.agent.libvirt import wakeup
from nova_vhpc.tests.unit.agent import fake_libvirt

PATIENCE_S = 60.0


class TestConnectionWakeup(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.calls = 0
        self.wanted = True
        self.away = False
        self.enough = threading.Event()
        conn = mock.Mock(getLibVersion=self.call)
        self.made = wakeup.ConnectionWakeup(lambda: conn, lambda: self.wanted)
        self.addCleanup(setattr, self, 'wanted', False)

    def call(self) -> None:
        self.calls += 1
        if self.away:
            raise fake_libvirt.refused('away')
        if self.calls >= 3:
            self.enough.set()

    def test_calls_are_made_while_wanted(self) -> None:
        for _ in range(2):
            self.made.wake()
            self.assertTrue(self.enough.wait(PATIENCE_S))
            self.wanted = False
            time.sleep(3 * wakeup.PAUSE_S)
            before = self.calls
            self.made.wake()
            time.sleep(3 * wakeup.PAUSE_S)
            self.assertEqual(before, self.calls)
            self.calls, self.wanted = 0, True
            self.enough.clear()

    def test_calls_are_made_again_after_a_lost_connection(self) -> None:
        self.away = True
        self.made.wake()
        time.sleep(3 * wakeup.PAUSE_S)
        self.assertEqual(1, self.calls)
        self.away = False
        self.made.wake()
        self.assertTrue(self.enough.wait(PATIENCE_S))
