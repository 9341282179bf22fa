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


"""oslo.messaging, with the threading backend and without its chatter.

Import oslo_messaging through this module only: by itself it makes
oslo.service choose eventlet, which this project never loads.
"""

import importlib
import importlib.abc
import logging
import sys
from collections.abc import Callable
from typing import Any

from oslo_config import cfg


class _NoEventlet(importlib.abc.MetaPathFinder):
    """Libraries load eventlet wherever it is installed, as nova does."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname.partition('.')[0] == 'eventlet':
            raise ImportError('nova-vhpc runs native threads only')


sys.meta_path.insert(0, _NoEventlet())

from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)

import oslo_messaging as messaging  # noqa: E402

from nova_vhpc import conf as conf_package  # noqa: E402
from nova_vhpc.agent import errors  # noqa: E402

__all__ = [
    'EXCHANGE',
    'NO_URL',
    'check',
    'get_notification_transport',
    'get_transport',
    'hush',
    'messaging',
    'register_stray_opts',
]

EXCHANGE = 'nova_vhpc'

NO_URL = 'rabbit://'
"""oslo.messaging's default for ``transport_url``: with it no agent listens, as
nobody runs agents against a broker on localhost by default."""

_CHATTY = (
    'amqp',
    'kombu',
    'oslo_messaging._drivers.amqpdriver',
    'oslo_messaging._drivers.impl_rabbit',
    'oslo_messaging._drivers.pool',
    'oslo_messaging.server',
    'oslo.messaging._drivers.amqpdriver',
    'oslo.messaging._drivers.impl_rabbit',
    'oslo.messaging._drivers.pool',
)


_PREFETCH = '64'

_NOTIFICATIONS = 'oslo_messaging_notifications'

_KEEPS_QUEUES = (
    'amqp_auto_delete',
    'amqp_durable_queues',
    'rabbit_quorum_queue',
)

# Options that oslo.messaging reads from the ConfigOpts it is given but
# registers on the global one only (18.3), by the module that has them.
_STRAY_OPTS = {
    'oslo_messaging_metrics': 'oslo_messaging._metrics.client',
    'oslo_messaging_tracing': 'oslo_messaging._tracing.client',
}


def register_stray_opts(conf: cfg.ConfigOpts) -> None:
    """Make oslo.messaging work with a ConfigOpts of our own."""
    for group, module_name in _STRAY_OPTS.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            # Older and newer versions do without.
            continue
        conf.register_opts(getattr(module, group, []), group=group)


class _Once(logging.Filter):
    """Tells of the first message that no endpoint takes, in one line."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if self._told or error is None:
            return False
        self._told = True
        record.msg = (
            'A message on the bus is not for this version of the agent, or '
            'for no agent at all; more of them are passed over silently: %r'
        )
        record.args = (error,)
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, 'WARNING'
        return True


_once = _Once()


def hush() -> None:
    """Keep the drivers from logging every try to reach a broker.

    With a broker away they tell of each connection every few seconds,
    some with a traceback; we tell of each change of state, once. Nor may
    who floods the bus with nonsense flood the log.
    """
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # Adds it at most once.
    logging.getLogger('oslo_messaging.rpc.server').addFilter(_once)


def get_transport(conf: cfg.ConfigOpts) -> messaging.Transport:
    """The RPC transport of ``transport_url``. Connects to nobody yet.

    A topic per cluster comes and goes with the cluster, so the broker is
    to delete our queues with their last listener, unless they are
    configured to be durable. That is said in the URL and not in ``conf``:
    the exchange that notifications come from must stay as Nova declares it.

    :raises ConfigError: for a URL that oslo.messaging does not take.
    """
    messaging.set_transport_defaults(EXCHANGE)
    return _bounded(conf, messaging.get_rpc_transport, deletes_queues=True)


def get_notification_transport(
    conf: cfg.ConfigOpts,
) -> messaging.Transport:
    """The transport of Nova's notifications. Connects to nobody yet.

    :raises ConfigError: for a URL that oslo.messaging does not take.
    """
    return _bounded(
        conf, messaging.get_notification_transport, deletes_queues=False
    )


def check(conf: cfg.ConfigOpts) -> None:
    """Look at what says where the bus is, before anything is started.

    :raises ConfigError: for a URL that oslo.messaging does not take.
    :raises cfg.Error: for a value that cannot be read.
    """
    if conf.vhpc_peers.enabled:
        get_transport(conf).cleanup()
    if conf.vhpc_nova.notifications:
        get_notification_transport(conf).cleanup()


def _bounded(
    conf: cfg.ConfigOpts,
    make: Callable[..., messaging.Transport],
    *,
    deletes_queues: bool,
) -> messaging.Transport:
    """A transport with a limit to what the broker sends it ahead.

    A flood then waits in the broker, not in our memory. A limit that is
    configured stays.

    :param make: oslo.messaging's own function.
    :param deletes_queues: the broker is to, with the last listener.
    :raises cfg.Error: for a value that cannot be read.
    """
    register_stray_opts(conf)
    try:
        transport = make(conf)
        url = messaging.TransportURL.parse(conf, _own_url(conf, make))
    except (cfg.Error, RecursionError):
        if make is messaging.get_notification_transport:
            _read_url(conf, _NOTIFICATIONS)
        _read_url(conf, conf_package.DEFAULT)
        raise
    except ImportError as error:
        raise errors.ConfigError(
            f'[{_url_group(conf, make)}]transport_url: its driver cannot be '
            f'loaded: {error}'
        ) from None
    except (ValueError, messaging.MessagingException):
        # Neither the value nor the reason is told: with a stray / or @ in
        # it, parts of the password pass for a port or a scheme.
        raise errors.ConfigError(
            f'[{_url_group(conf, make)}]transport_url is no URL of '
            'oslo.messaging; allowed: '
            'rabbit://USER:PASSWORD@HOST:PORT/VHOST, with / : @ in user and '
            'password written as %2F %3A %40'
        ) from None
    if url.transport != 'rabbit':
        return transport
    options = conf.oslo_messaging_rabbit
    if deletes_queues and not any(
        name in url.query or getattr(options, name) for name in _KEEPS_QUEUES
    ):
        url.query['amqp_auto_delete'] = 'true'
    if not options.rabbit_qos_prefetch_count:
        url.query.setdefault('rabbit_qos_prefetch_count', _PREFETCH)
    transport.cleanup()
    return make(conf, url=url)


def _read_url(conf: cfg.ConfigOpts, group: str) -> None:
    """Say what is wrong with it; oslo.config does not name the option."""
    conf_package.read(conf, group, 'transport_url', secret=True)


def _url_group(
    conf: cfg.ConfigOpts, make: Callable[..., messaging.Transport]
) -> str:
    own = _own_url(conf, make) is not None
    return _NOTIFICATIONS if own else conf_package.DEFAULT


def _own_url(
    conf: cfg.ConfigOpts, make: Callable[..., messaging.Transport]
) -> str | None:
    """A URL for notifications only; its option comes with ``make``."""
    if make is not messaging.get_notification_transport:
        return None
    url: str | None = conf.oslo_messaging_notifications.transport_url
    return url
