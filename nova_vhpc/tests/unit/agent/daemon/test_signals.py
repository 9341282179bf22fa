# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.signals`, with real signals."""

import os
import signal

from oslotest import base

from nova_vhpc.agent.daemon import signals


class TestSignals(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        before = signal.set_wakeup_fd(-1)
        self.addCleanup(signal.set_wakeup_fd, before)
        self.caught = signals.Signals()
        self.caught.catch()

    def test_sighup_requests_one_reload(self) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        self.assertTrue(self.caught.wait())
        self.assertFalse(self.caught.shutdown_requested)
        os.kill(os.getpid(), signal.SIGTERM)
        self.assertFalse(self.caught.wait())

    def test_sigterm_and_sigint_request_shutdown(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self.caught.shutdown_requested = False
            os.kill(os.getpid(), number)
            self.assertFalse(self.caught.wait())
            self.assertTrue(self.caught.shutdown_requested)
