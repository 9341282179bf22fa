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

"""Keeps a call to libvirt that hangs from holding up the others.

Of all threads that call over one connection, the first one sends and receives
for all until its own answer is there. libvirt's client may miss, just after an
answer to another thread, that this one has something more to send: the next
keep-alive wakes it, which is due in two seconds. Beside one call that hangs,
another thread came through 1 to 4 calls in two seconds (libvirt 9.0); nudged
by small calls of a third one it makes hundreds.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import libvirt

PAUSE_S = 0.02
"""Between two small calls."""


class ConnectionWakeup:
    """Makes small calls, as long as others take long.

    :param connection: gives libvirt's connection, or raises libvirtError.
    :param wanted: whether there are calls that take long.
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
        """Look whether it is wanted. Returns at once; cheap."""
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
                # Too few threads; the next time, maybe.
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
                # It is lost, and with it what hung.
                continue
