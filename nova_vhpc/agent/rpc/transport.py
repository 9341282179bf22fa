# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Transports of oslo.messaging that declare little and log little."""

import importlib
import logging
from typing import Any

from oslo_config import cfg

from nova_vhpc import conf as conf_package
from nova_vhpc.agent import errors
from nova_vhpc.agent.rpc import exclusive_queue
from nova_vhpc.agent.rpc.native_threads import messaging

__all__ = [
    'EXCHANGE',
    'NO_URL',
    'broker_error',
    'brokers',
    'check',
    'format_address',
    'get_transport',
    'hush',
    'register_unregistered_opts',
]

EXCHANGE = 'nova_vhpc'

NO_URL = 'rabbit://'
"""oslo.messaging's default for ``transport_url``. It counts as "not set",
because a broker on localhost is never what an agent needs by default."""

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

_PORT = 5672
"""Port of a broker if the URL has none."""

_OPTION = '[DEFAULT]transport_url'

_KEEPS_EXCHANGE = (
    'amqp_auto_delete',
    'amqp_durable_queues',
    'rabbit_quorum_queue',
)

# Options that oslo.messaging (18.3) reads from the ConfigOpts it is given, but
# registers on the global one only; with the module that defines them.
_UNREGISTERED_OPTS = {
    'oslo_messaging_metrics': 'oslo_messaging._metrics.client',
    'oslo_messaging_tracing': 'oslo_messaging._tracing.client',
}


def register_unregistered_opts(conf: cfg.ConfigOpts) -> None:
    """Register options that oslo.messaging registers on ``cfg.CONF`` only."""
    for group, module_name in _UNREGISTERED_OPTS.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            # Older and newer versions do not have the module.
            continue
        conf.register_opts(getattr(module, group, []), group=group)


class _Once(logging.Filter):
    """Logs the first message that no endpoint accepts, in one line."""

    def __init__(self) -> None:
        super().__init__()
        self._logged = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if self._logged or error is None:
            return False
        self._logged = True
        record.msg = (
            'Ignoring a message on the bus that is not for this version of '
            'the agent, or for no agent at all; further ones are ignored '
            'silently. If agents of other hosts are newer, upgrade this '
            'one: %r'
        )
        record.args = (error,)
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, 'WARNING'
        return True


_once = _Once()


def hush() -> None:
    """Keep oslo.messaging's drivers from logging every attempt to connect.

    While a broker is away they log each connection every few seconds, some
    with a traceback; the agent logs each change of state once. A flood of
    invalid messages must not flood the log, either.
    """
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # addFilter() adds the same filter only once.
    logging.getLogger('oslo_messaging.rpc.server').addFilter(_once)


def get_transport(conf: cfg.ConfigOpts) -> messaging.Transport:
    """Return the RPC transport of ``transport_url``, not connected yet.

    The broker deletes the agents' exchange with its last listener, unless
    exchanges are configured to be durable.

    RabbitMQ sends at most ``rabbit_qos_prefetch_count`` messages ahead; a
    flood of messages then waits in the broker, not in the agent's memory. A
    limit that is configured is kept.

    :raises ConfigError: oslo.messaging does not accept the URL.
    :raises cfg.Error: an option's value is invalid.
    """
    messaging.set_transport_defaults(EXCHANGE)
    register_unregistered_opts(conf)
    try:
        transport = messaging.get_rpc_transport(conf)
        url = messaging.TransportURL.parse(conf)
    except (cfg.Error, RecursionError):
        # oslo.config's own error does not name the option.
        conf_package.read(
            conf, conf_package.DEFAULT, 'transport_url', secret=True
        )
        raise
    except ImportError as error:
        raise errors.ConfigError(
            f'{_OPTION}: its driver cannot be loaded: {error}'
        ) from None
    except (ValueError, messaging.MessagingException):
        # Neither the value nor the reason is shown: if the password has a
        # / or @, parts of it pass for a port or a scheme.
        raise errors.ConfigError(
            f'{_OPTION} is no URL of oslo.messaging; allowed: '
            'rabbit://USER:PASSWORD@HOST:PORT/VHOST, with / : @ in user and '
            'password written as %2F %3A %40'
        ) from None
    if url.transport != 'rabbit':
        return transport
    options = conf.oslo_messaging_rabbit
    if not any(
        name in url.query or getattr(options, name) for name in _KEEPS_EXCHANGE
    ):
        url.query['amqp_auto_delete'] = 'true'
    if not options.rabbit_qos_prefetch_count:
        url.query.setdefault('rabbit_qos_prefetch_count', _PREFETCH)
    transport.cleanup()
    transport = messaging.get_rpc_transport(conf, url=url)
    exclusive_queue.use(transport)
    return transport


def brokers(transport: Any) -> list[tuple[str, int]]:
    """Return host and port of each broker of a transport's URL."""
    url = messaging.TransportURL.parse(transport.conf)
    return [
        (host.hostname, host.port or _PORT)
        for host in url.hosts
        if host.hostname
    ]


def format_address(address: tuple[str, int]) -> str:
    """Return an address as HOST:PORT."""
    host, port = address
    return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


def broker_error(transport: Any, error: Exception) -> str:
    """Return in one line why a broker cannot be used, and which it is.

    Errors of the system, of amqp and of kombu seldom have the address.
    """
    text = errors.one_line(error)
    addresses = ', '.join(map(format_address, brokers(transport)))
    return f'{text} (transport_url: {addresses})' if addresses else text


def check(conf: cfg.ConfigOpts) -> None:
    """Check the URL of the message bus, if the agent will use it.

    :raises ConfigError: oslo.messaging does not accept it.
    :raises cfg.Error: an option's value is invalid.
    """
    if conf.vhpc_peers.enabled:
        get_transport(conf).cleanup()
