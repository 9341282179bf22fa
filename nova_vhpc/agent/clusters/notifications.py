# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Nova's versioned notifications: a reason to query Nova again at once.

A notification that is lost only delays the next query, so nothing is read from
its payload.
"""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent.rpc import server
from nova_vhpc.agent.rpc.native_threads import messaging
from nova_vhpc.agent.rpc.transport import get_notification_transport

TOPIC = 'versioned_notifications'
EVENTS = (
    r'server_group\.(create|delete|add_member)'
    r'|instance\.(create|delete|update|live_migration_post_dest'
    r'|resize_finish|rebuild|evacuate|unshelve)(\..*)?'
)


class GroupNotifications:
    """Listens to notifications of events that may change groups.

    The listener has a pool, that is a queue, of its own, so that other
    consumers of the topic still get every message.

    :param conf: with the group ``vhpc_nova``.
    :param host: name of this host, part of the pool's name.
    :param on_notification: called for each of these events in a thread of
        oslo.messaging; must return quickly.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        on_notification: Callable[[], None],
    ) -> None:
        self._conf = conf
        self._host = host
        self.filter_rule = messaging.NotificationFilter(
            event_type=f'^({EVENTS})$'
        )
        self._on_notification = on_notification
        self._transport: Any = None
        self._server = server.BackgroundServer(
            'vhpc-notifications', self._make, 'No notifications from Nova'
        )
        self.listening = self._server.listening
        """Set when the broker has declared the listener's queue."""

    @property
    def detail(self) -> str:
        """Why no notification is received, as far as is known."""
        return self._server.detail

    def start(self) -> None:
        """Start listening, in the background.

        Declaring the queue waits until the broker answers.
        """
        self._server.start()

    def stop(self) -> None:
        """Stop listening, without waiting for the broker."""
        self._server.stop()

    def info(
        self,
        context: Any,
        publisher_id: str,
        event_type: str,
        payload: Any,
        metadata: Any,
    ) -> None:
        """Take one notification, as oslo.messaging calls it."""
        self._on_notification()

    def _make(self) -> Any:
        # If this fails, Nova is still polled.
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
