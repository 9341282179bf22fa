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


"""A word to oneself: the only proof that the message bus works.

It goes to the queue of this host's control calls, so it costs one small
message per lease, to nobody else.
"""

from collections.abc import Callable
from typing import Any

from nova_vhpc.agent.clusters.bus import BusError
from nova_vhpc.agent.rpc.transport import messaging

NAMESPACE = 'vhpc.echo'
VERSION = '1.0'


class EchoEndpoint:
    """Hears the echoes of this agent, and of none before or beside it.

    :param boot: tells this agent from others with its host name.
    :param on_echo: called with the time that was sent.
    """

    target = messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(self, boot: int, on_echo: Callable[[int], None]) -> None:
        self._boot = boot
        self._on_echo = on_echo

    def echo(self, context: Any, boot: Any, asked_us: Any) -> None:
        """What :meth:`Caller.call` said."""
        if boot == self._boot and isinstance(asked_us, int):
            self._on_echo(asked_us)


class Caller:
    """Sends the word.

    :param topic: where a server with an :class:`EchoEndpoint` listens.
    """

    def __init__(
        self, transport: Any, topic: str, host: str, boot: int
    ) -> None:
        self._boot = boot
        self._client = messaging.get_rpc_client(
            transport,
            messaging.Target(
                topic=topic, server=host, namespace=NAMESPACE, version=VERSION
            ),
            retry=0,
        )

    def call(self, now_us: int) -> None:
        """Send; it comes back to the endpoint, if the bus works.

        :raises BusError: when there is no broker to give it to.
        """
        try:
            self._client.cast({}, 'echo', boot=self._boot, asked_us=now_us)
        except Exception as error:
            # Besides oslo.messaging's own, drivers let slip what they like.
            raise BusError(' '.join(str(error).split())) from error
