# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""A client that floods a cluster's topic with messages of :data:`KINDS`.

Runs as ``python -m ... URL COUNT``, in a process of its own: within the
agents' interpreter it would slow them down by the GIL.
"""

import importlib
import json
import sys
from typing import Any

from nova_vhpc.agent.clusters import bus

kombu: Any = importlib.import_module('kombu')

CLUSTER = 'c1'
KINDS = ('noise', 'json', 'method', 'version', 'fields', 'hosts')
"""Kinds of messages: no JSON; JSON that is no RPC call; an unknown method; an
unknown version; an invalid phase; valid statements of hosts that do not
exist."""


def message(kind: str, number: int) -> tuple[bytes, str, str]:
    """Return one message: body, content type and encoding."""
    if kind == 'noise':
        return b'\x00\xff' * 200, 'application/data', 'binary'
    call = {
        'method': 'explode' if kind == 'method' else 'phase',
        'namespace': bus.NAMESPACE,
        'version': '7.0' if kind == 'version' else '1.0',
        '_unique_id': f'{kind}-{number}',
        'args': {
            'cluster': CLUSTER,
            'host': f'nobody{number}',
            'boot': 1,
            'seq': number,
            'phase': 'melting' if kind == 'fields' else 'computing',
            'lease_ms': 1000,
        },
    }
    body: dict[str, Any] = {
        'oslo.version': '2.0',
        'oslo.message': json.dumps(call),
    }
    if kind == 'json':
        body = {'number': number}
    return json.dumps(body).encode(), 'application/json', 'utf-8'


def flood(url: str, count: int) -> None:
    """Publish ``count`` messages of each kind as fast as possible."""
    with kombu.Connection(
        url.replace('rabbit://', 'amqp://').rstrip('/') + '//'
    ) as connection:
        exchange = kombu.Exchange(
            bus.topic(CLUSTER) + '_fanout',
            type='fanout',
            durable=False,
            auto_delete=True,
        )
        producer = kombu.Producer(connection.channel(), exchange)
        for number in range(count):
            for kind in KINDS:
                body, content_type, encoding = message(kind, number)
                producer.publish(
                    body, content_type=content_type, content_encoding=encoding
                )


if __name__ == '__main__':
    flood(sys.argv[1], int(sys.argv[2]))
