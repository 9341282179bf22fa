# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Keep a libvirt call that hangs from delaying calls of other threads.

Of all threads that call over one connection, the first one sends and receives
for all threads until its own answer arrives. Just after it has received the
answer to another thread's call, it may miss that thread's next call, which is
then sent with the next keep-alive message, due within two seconds. Beside one
call that hangs, another thread completed 1 to 4 calls in two seconds (libvirt
9.0). With small calls of a third thread, as made here, it completes hundreds.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import libvirt

PAUSE_S = 0.02
"""Pause between two small calls, in seconds."""


class ConnectionWakeup:
    """Makes small libvirt calls while other calls take long.

    :param connection: returns libvirt's connection, or raises libvirtError.
    :param wanted: returns whether a call takes long.
    """

    def __init__(
        self, connection: Callable[[], Any], wanted: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Start small calls in a thread if they are wanted; return at once."""
        self._wake.set()
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(
                target=self._run, name='libvirt-wakeup', daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:
                # No thread available; the next wake() tries again.
                self._thread = None

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            try:
                while self._wanted():
                    self._connection().getLibVersion()
                    time.sleep(PAUSE_S)
            except libvirt.libvirtError:
                # The connection is lost, so the call that hung has failed.
                continue
