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


"""Whether the message bus works, from what is seen of it.

No socket and no thread: told what happens, with the time. A bus works when
what this host sends comes back to it: a broker that is gone refuses, one
that is frozen, flooded or blocked by an alarm keeps the sender waiting,
and one that lost our queue takes everything and delivers nothing. Times
are microseconds of the monotonic clock.
"""

import logging
import threading

LOG = logging.getLogger(__name__)

_MAX_BACK_OFF_S = 5.0
_ASK_AGAIN_US = 1_000_000


class Health:
    """State of the bus; one line in the log per change.

    :param patience_us: how long a message may take to be accepted.
    :param echo_us: how often to look when nothing is heard, and how long
        what was sent may take to come back.
    """

    def __init__(self, patience_us: int, echo_us: int) -> None:
        self._patience_us = patience_us
        self._echo_us = echo_us
        self._lock = threading.Lock()
        self._sending_us: int | None = None
        self._asked_us: int | None = None
        self._waiting_us: int | None = None
        self._trouble_us = 0
        self._heard_us = 0
        self._failures = 0
        self.state = 'off'
        self.detail = ''
        self.echo_us: int | None = None

    def start(self) -> None:
        """Begin, as if nothing had ever been seen."""
        with self._lock:
            self._sending_us = self._asked_us = self._waiting_us = None
            self._enter('starting', '')

    def stop(self) -> None:
        """End: nobody talks any more."""
        with self._lock:
            self._enter('off', '')

    @property
    def back_off_s(self) -> float:
        """How long to leave a bus alone that refuses messages."""
        if not self._failures:
            return 0.0
        return min(_MAX_BACK_OFF_S, 0.25 * 2.0 ** min(self._failures, 6))

    def due(self, now_us: int) -> bool:
        """Whether it is time to send oneself something."""
        with self._lock:
            since_us = max(self._heard_us, self._asked_us or 0)
            pause_us = self._echo_us
            if self.state != 'up':
                pause_us = min(pause_us, _ASK_AGAIN_US)
            return not since_us or now_us - since_us >= pause_us

    def sending(self, now_us: int) -> None:
        """A message is about to be given to the broker."""
        self._sending_us = now_us

    def sent(self, asked_us: int | None = None) -> None:
        """The broker has taken the message.

        :param asked_us: it comes back to us, and was made then.
        """
        with self._lock:
            self._sending_us = None
            self._failures = 0
            if asked_us is not None:
                self._asked_us = asked_us
                # It may have come back before we got here.
                if self._waiting_us is None and asked_us > self._heard_us:
                    self._waiting_us = asked_us

    def failed(self, now_us: int, detail: str) -> None:
        """The broker did not take the message."""
        with self._lock:
            self._sending_us = None
            self._failures += 1
            self._trouble(now_us, detail)

    def heard(self, asked_us: int, now_us: int) -> None:
        """What we sent ourselves has come back.

        :param asked_us: when it was made.
        """
        with self._lock:
            if asked_us <= self._trouble_us or self.state == 'off':
                # On its way since before: it proves nothing about now.
                return
            self.echo_us = now_us - asked_us
            self._heard_us = max(self._heard_us, asked_us)
            self._waiting_us = None
            if self._enter('up', ''):
                LOG.info('The message bus carries phases to other hosts')

    def watch(self, now_us: int) -> None:
        """Time has passed: is anything overdue?"""
        with self._lock:
            sending_us, waiting_us = self._sending_us, self._waiting_us
            if (
                sending_us is not None
                and now_us - sending_us > self._patience_us
            ):
                self._trouble(
                    now_us,
                    'the broker takes no messages; is it frozen, '
                    'overloaded, or blocked by an alarm for memory or disk?',
                )
            elif (
                waiting_us is not None and now_us - waiting_us > self._echo_us
            ):
                self._waiting_us = None
                self._trouble(
                    now_us,
                    'what is sent does not come back; is the broker '
                    'overloaded, or another agent using this host name?',
                )

    def _trouble(self, now_us: int, detail: str) -> None:
        if self.state == 'off':
            # What was on its way at the end is no news.
            return
        self._trouble_us = now_us
        if self._enter('down', detail):
            LOG.warning(
                'The message bus is away; each host decides by itself '
                'until it is back: %s',
                detail,
            )

    def _enter(self, state: str, detail: str) -> bool:
        changed = state != self.state
        self.state, self.detail = state, detail
        return changed
