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

"""Signals, for a main thread that waits for them."""

import signal
import socket
from types import FrameType


class Signals:
    """SIGTERM and SIGINT end the daemon; SIGHUP has its options read again.

    :ivar ending: the end was asked for.
    """

    def __init__(self) -> None:
        self.ending = False
        self._reload = False
        # A signal may be taken by any thread, and only this wakes ours.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)

    def catch(self) -> None:
        """Catch them from now on. Call it in the main thread."""
        signal.set_wakeup_fd(
            self._wake_writer.fileno(), warn_on_full_buffer=False
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hup)
        # Held back since the process began, if a script of ours began it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def wait(self) -> bool:
        """Wait until there is one; any other that Python handles ends it, too.

        :returns: whether the options are to be read again.
        """
        self._wake_reader.recv(64)
        # Set back only after it was seen: the next one may come in between.
        if self._reload:
            self._reload = False
            return True
        return False

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.ending = True

    def _on_hup(self, number: int, frame: FrameType | None) -> None:
        self._reload = True
