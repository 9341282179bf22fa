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
