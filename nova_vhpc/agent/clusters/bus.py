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


"""Carries the peers' messages over oslo.messaging.

A fanout topic per virtual cluster, to which only hosts with members
listen. Declaring a queue waits for the broker, so that is done by a
thread of its own; nothing here is ever called by the tick.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Collection
from typing import Any

from nova_vhpc.agent import errors
from nova_vhpc.agent.clusters import protocol
from nova_vhpc.agent.rpc.transport import messaging
from nova_vhpc.control.model import ClusterPlan, Phase

LOG = logging.getLogger(__name__)

NAMESPACE = 'vhpc.peers'
VERSION = '1.1'
"""1.0: phase. 1.1: phase with min_slice_us."""

_TOPIC = 'vhpc.peers.'
_LONGEST = 100


class BusError(Exception):
    """A message could not be given to the broker."""


def topic(cluster: str) -> str:
    """Fanout topic of a virtual cluster; AMQP names have a limit, in bytes."""
    # A groups file may name it with whatever JSON can escape.
    raw = cluster.encode(errors='surrogatepass')
    if len(raw) > _LONGEST:
        cluster = hashlib.sha256(raw).hexdigest()
    return _TOPIC + cluster


class _Endpoint:
    """Receives what other hosts say."""

    target = messaging.Target(namespace=NAMESPACE, version=VERSION)

    def __init__(self, on_message: Callable[[protocol.Message], None]) -> None:
        self._on_message = on_message
        self._complained = False

    def phase(self, context: Any, **fields: Any) -> None:
        """One word of one host; see the contributor docs for fields."""
        try:
            message = decode(fields)
        except (KeyError, TypeError, ValueError) as error:
            if not self._complained:
                LOG.warning(
                    'A message of another agent is not understood; more of '
                    'them are passed over silently: %r',
                    error,
                )
            self._complained = True
            return
        self._on_message(message)


def encode(message: protocol.Message) -> dict[str, Any]:
    """The fields of a message as they travel."""
    fields: dict[str, Any] = {
        'cluster': message.cluster,
        'host': message.host,
        'boot': message.boot,
        'seq': message.seq,
        'phase': message.word.phase.value,
        'lease_ms': message.lease_us // 1000,
    }
    if message.word.min_slice_us is not None:
        fields['min_slice_us'] = message.word.min_slice_us
    return fields


def decode(fields: dict[str, Any]) -> protocol.Message:
    """A message from its fields; unknown ones are of newer versions.

    :raises KeyError, TypeError, ValueError: when it makes no sense.
    """
    numbers = {name: fields[name] for name in ('boot', 'seq', 'lease_ms')}
    slice_us = fields.get('min_slice_us')
    if slice_us is not None:
        numbers['min_slice_us'] = slice_us
    for name, value in numbers.items():
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f'{name} {value!r} is no count')
    for name in ('cluster', 'host'):
        value = fields[name]
        if not isinstance(value, str) or len(value) > protocol.MAX_NAME:
            raise TypeError(
                f'{name} {str(value)[: protocol.MAX_NAME]!r} is no name'
            )
    return protocol.Message(
        cluster=fields['cluster'],
        host=fields['host'],
        boot=fields['boot'],
        seq=fields['seq'],
        word=ClusterPlan(Phase(fields['phase']), slice_us),
        lease_us=fields['lease_ms'] * 1000,
    )


class PeerBus:
    """Sends and receives; knows nothing of what the messages mean.

    :param on_message: called in a thread of oslo.messaging.
    """

    def __init__(
        self,
        transport: Any,
        host: str,
        on_message: Callable[[protocol.Message], None],
        version_cap: str | None = None,
    ) -> None:
        self._transport = transport
        self._host = host
        self._endpoint = _Endpoint(on_message)
        self._client = messaging.get_rpc_client(
            transport,
            messaging.Target(namespace=NAMESPACE, version='1.0'),
            version_cap=version_cap,
            # The protocol renews and repeats by itself.
            retry=0,
        )
        self._changed = threading.Condition()
        self._wanted: frozenset[str] = frozenset()
        self._servers: dict[str, Any] = {}
        self._stopping = False
        self._told = False

    def start(self) -> None:
        """Begin to follow the subscriptions."""
        threading.Thread(
            target=self._follow, name='vhpc-peers-listen', daemon=True
        ).start()

    def stop(self) -> None:
        """End all subscriptions in the background."""
        with self._changed:
            self._stopping = True
            self._wanted = frozenset()
            self._changed.notify_all()

    def subscribe(self, clusters: Collection[str]) -> None:
        """Listen to exactly these clusters from now on."""
        wanted = frozenset(clusters)
        if wanted != self._wanted:
            with self._changed:
                self._wanted = wanted
                self._changed.notify_all()

    @property
    def subscribed(self) -> frozenset[str]:
        """Clusters that are really being listened to."""
        return frozenset(self._servers)

    def send(self, message: protocol.Message) -> None:
        """Give a message to the broker.

        :raises BusError: when there is no broker to give it to.
        """
        fields = encode(message)
        version = '1.0'
        client = self._client.prepare(topic=topic(message.cluster))
        if 'min_slice_us' in fields:
            if client.can_send_version('1.1'):
                version = '1.1'
            else:
                del fields['min_slice_us']
        try:
            client.prepare(fanout=True, version=version).cast(
                {}, 'phase', **fields
            )
        except Exception as error:
            # Besides oslo.messaging's own, drivers let slip what they like.
            raise BusError(' '.join(str(error).split())) from error

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._stopping or self._wanted != self._servers.keys()
                    )
                )
                wanted = self._wanted
                if self._stopping and not self._servers:
                    return
            for cluster in self._servers.keys() - wanted:
                server = self._servers.pop(cluster)
                try:
                    server.stop()
                    server.wait()
                except Exception as error:
                    LOG.debug('Leaving the topic of %s: %s', cluster, error)
            for cluster in sorted(wanted - self._servers.keys()):
                problem = self._try_to_listen(cluster)
                if problem is not None:
                    self._tell(cluster, problem)
                    with self._changed:
                        self._changed.wait(5)
                    break
                if not self._wanted >= {cluster}:
                    break

    def _try_to_listen(self, cluster: str) -> str | None:
        """Why it is not listened to; None if it is."""
        try:
            self._servers[cluster] = self._listen(cluster)
        except Exception as error:
            return errors.one_line(error)
        self._told = False
        return None

    def _tell(self, cluster: str, problem: str) -> None:
        """Once, until it can be listened again: tries go on for hours."""
        if not self._told:
            self._told = True
            LOG.warning(
                'Cannot listen to virtual cluster %s; trying again: %s',
                cluster,
                problem,
            )

    def _listen(self, cluster: str) -> Any:
        server = messaging.get_rpc_server(
            self._transport,
            messaging.Target(topic=topic(cluster), server=self._host),
            [self._endpoint],
            access_policy=messaging.DefaultRPCAccessPolicy,
        )
        server.start()
        return server
