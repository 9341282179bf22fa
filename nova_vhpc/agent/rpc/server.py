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

"""A server on the message bus, started again until the broker lets it.

oslo.messaging waits for a broker that is away, but gives up at once where one
refuses the login or the virtual host. Both may be made after the agent is
started, or change while the broker is restarted.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from nova_vhpc.agent import errors

LOG = logging.getLogger(__name__)

RETRY_S = 5.0
"""Between two tries."""


class Listening:
    """Has one server listen, in the background.

    :param name: of the thread that waits for the broker.
    :param make: makes a server of oslo.messaging that was not started. One
        that could not be is of no more use.
    :param trouble: what does not work until then, for the log.
    :ivar started: set when the broker has our queue.
    """

    def __init__(
        self, name: str, make: Callable[[], Any], trouble: str
    ) -> None:
        self.started = threading.Event()
        self._name = name
        self._make = make
        self._trouble = trouble
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server: Any = None

    def start(self) -> None:
        """Begin to try. Returns at once."""
        threading.Thread(
            target=self._run, name=self._name, daemon=True
        ).start()

    def stop(self) -> None:
        """Listen no more; does not wait for the broker."""
        with self._lock:
            self._stopping.set()
            server, self._server = self._server, None
        if server is not None:
            threading.Thread(target=_end, args=(server,), daemon=True).start()

    def _run(self) -> None:
        told = False
        while not self._stopping.is_set():
            problem = self._try()
            if problem is None:
                if told:
                    LOG.info('No longer: %s', self._trouble)
                return
            if not told:
                told = True
                LOG.warning('%s; trying again: %s', self._trouble, problem)
            self._stopping.wait(RETRY_S)

    def _try(self) -> str | None:
        """Why it does not listen; None if it does."""
        try:
            server = self._make()
            server.start()
        except Exception as error:
            # Besides oslo.messaging's own, drivers let slip what they like.
            return errors.one_line(error)
        with self._lock:
            late = self._stopping.is_set()
            if not late:
                self._server = server
        if late:
            _end(server)
        else:
            self.started.set()
        return None


def _end(server: Any) -> None:
    try:
        server.stop()
        server.wait()
    except Exception as error:
        LOG.debug('Ending a server on the message bus: %s', error)
