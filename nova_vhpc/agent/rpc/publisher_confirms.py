# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Publisher confirms on a channel that is opened again.

If an exchange is gone, as that of a cluster to which no other host listens,
RabbitMQ closes the channel on which one publishes to it. amqp opens it again,
but before 5.4 takes it for one that still confirms. The next publish that
succeeds then waits for a confirmation that never comes, and holds the
connection until RabbitMQ closes it, after three minutes without a heartbeat.
OpenStack 2026.1 has amqp 5.3.1.
"""

import functools
import importlib
from typing import Any

# It has no type hints.
amqp: Any = importlib.import_module('amqp')


def mend(channel: Any = amqp.Channel) -> None:
    """Have channels that are opened again ask for confirms again.

    :param channel: class of the channels; changed once.
    """
    revive = channel._do_revive
    if hasattr(revive, '__wrapped__'):
        return

    @functools.wraps(revive)
    def do_revive(self: Any) -> None:
        # As amqp does from 5.4 on.
        self._confirm_selected = False
        revive(self)

    channel._do_revive = do_revive
