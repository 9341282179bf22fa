# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Lets the main thread wait for signals."""

import signal
import socket
from types import FrameType


class Signals:
    """Handles SIGTERM and SIGINT (shut down), and SIGHUP (reload options).

    :ivar shutdown_requested: whether SIGTERM or SIGINT was received.
    """

    def __init__(self) -> None:
        self.shutdown_requested = False
        self._reload = False
        # The kernel may deliver a signal to any thread; only the wake-up file
        # descriptor wakes the main thread for sure.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)

    def catch(self) -> None:
        """Install the handlers; call it in the main thread."""
        signal.set_wakeup_fd(
            self._wake_writer.fileno(), warn_on_full_buffer=False
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hup)
        # cli.launch blocks SIGHUP from the start of the process.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def wait(self) -> bool:
        """Wait until any signal that Python handles is received.

        :returns: whether the options must be reloaded.
        """
        self._wake_reader.recv(64)
        # Cleared only after it was read: another SIGHUP may come between.
        if self._reload:
            self._reload = False
            return True
        return False

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.shutdown_requested = True

    def _on_hup(self, number: int, frame: FrameType | None) -> None:
        self._reload = True
