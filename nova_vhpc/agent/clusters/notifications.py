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

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.rpc import server
from nova_vhpc.agent.rpc.transport import get_notification_transport, messaging

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
        self._transport: Any = None
        self._listening = server.Listening(
            'vhpc-group-hints', self._make, 'No notifications from Nova'
        )
        self.listening = self._listening.started
        """Set when the broker has our queue."""

    def start(self) -> None:
        """Start listening; waits for the broker in the background."""
        # Declaring the queue blocks until the broker is there.
        self._listening.start()

    def stop(self) -> None:
        """Stop listening, without waiting for the broker."""
        self._listening.stop()

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

    def _make(self) -> Any:
        # Only hints are lost without it; the polling goes on.
        if self._transport is None:
            self._transport = get_notification_transport(self._conf)
        return messaging.get_notification_listener(
            self._transport,
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
