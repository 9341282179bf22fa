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


"""A server on the message bus that is started again until that succeeds.

oslo.messaging waits for a broker that is away, but gives up at once if the
broker refuses the login or the virtual host. Both may be created after the
agent was started, or change while the broker is restarted.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from nova_vhpc.agent import errors, periodic

LOG = logging.getLogger(__name__)

MAX_BACKOFF_S = 5.0
"""Longest time between two attempts to start the server, in seconds."""


class BackgroundServer:
    """Starts one server of oslo.messaging in the background.

    :param name: name of the thread that waits for the broker.
    :param make: returns a server of oslo.messaging that is not started yet;
        a server that failed to start is not used again.
    :param problem: what does not work until the server listens, for the log.
    :ivar listening: set when the broker has declared the server's queue.
    """

    def __init__(
        self, name: str, make: Callable[[], Any], problem: str
    ) -> None:
        self.listening = threading.Event()
        self._make = make
        self._problem = problem
        self._problem_logged = False
        self._lock = threading.Lock()
        self._server: Any = None
        self._thread = periodic.PeriodicThread(
            name, self._start_server, lambda: MAX_BACKOFF_S, MAX_BACKOFF_S
        )

    def start(self) -> None:
        """Begin to start the server. Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, without waiting for the broker."""
        with self._lock:
            self._thread.stop(0.0)
            server, self._server = self._server, None
        if server is not None:
            threading.Thread(target=_end, args=(server,), daemon=True).start()

    def _start_server(self) -> None:
        """Start the server once.

        :raises RetryLater: the broker refused it.
        """
        try:
            server = self._make()
            server.start()
        except Exception as error:
            # Drivers raise more than oslo.messaging's own exceptions.
            if not self._problem_logged:
                self._problem_logged = True
                LOG.warning(
                    '%s; will retry: %s', self._problem, errors.one_line(error)
                )
            raise periodic.RetryLater from error
        with self._lock:
            stopping = self._thread.stopping
            if not stopping:
                self._server = server
                self._thread.stop(0.0)
        if stopping:
            _end(server)
            return
        self.listening.set()
        if self._problem_logged:
            LOG.info('No longer: %s', self._problem)


def _end(server: Any) -> None:
    try:
        server.stop()
        server.wait()
    except Exception as error:
        LOG.debug('Ending a server on the message bus: %s', error)
