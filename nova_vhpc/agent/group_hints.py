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


"""Nova's versioned notifications, as a hint to ask Nova again."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.messaging import (
    get_notification_transport,
    messaging,
)

LOG = logging.getLogger(__name__)

TOPIC = 'versioned_notifications'
EVENTS = (
    r'server_group\.(create|delete|add_member)'
    r'|instance\.(create|delete|update|live_migration_post_dest'
    r'|resize_finish|rebuild|evacuate|unshelve)(\..*)?'
)


class GroupHints:
    """A notification listener in a pool of its own.

    Other consumers of the topic keep getting every message: a pool has
    its own queue.

    :param on_hint: called in the listener's thread; must be quick.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, host: str, on_hint: Callable[[], None]
    ) -> None:
        self._conf = conf
        self._host = host
        self.filter_rule = messaging.NotificationFilter(
            event_type=f'^({EVENTS})$'
        )
        self._on_hint = on_hint
        self._listener: Any = None
        self.listening = threading.Event()
        """Set when the broker has our queue."""

    def start(self) -> None:
        """Start listening; waits for the broker in the background."""
        # Declaring the queue blocks until the broker is there.
        threading.Thread(
            target=self._listen, name='vhpc-group-hints', daemon=True
        ).start()

    def stop(self) -> None:
        """Stop listening, without waiting for the broker."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def info(
        self,
        context: Any,
        publisher_id: str,
        event_type: str,
        payload: Any,
        metadata: Any,
    ) -> None:
        """One notification of a kind that may change groups."""
        self._on_hint()

    def _listen(self) -> None:
        try:
            transport = get_notification_transport(self._conf)
            listener = messaging.get_notification_listener(
                transport,
                [
                    messaging.Target(
                        topic=TOPIC,
                        exchange=self._conf.vhpc_nova.notification_exchange,
                    )
                ],
                [self],
                pool=f'nova-vhpc-agent.{self._host}',
                allow_requeue=False,
            )
            listener.start()
            self._listener = listener
            self.listening.set()
        except Exception as error:
            # Only hints are lost; the polling goes on.
            LOG.warning('No notifications from Nova: %s', error)
