# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-vendordata``: the vendordata service for virtual clusters."""

import argparse
import socket
import socketserver
import sys
import wsgiref.simple_server
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import netutils

from nova_vhpc import conf as conf_package
from nova_vhpc import http_limits, version
from nova_vhpc.clients import credentials
from nova_vhpc.conf import nova_api as nova_conf
from nova_vhpc.conf import peers as peers_conf
from nova_vhpc.conf import vendordata as vendordata_conf
from nova_vhpc.vendordata import (
    live,
    nova,
    opaque_ids,
    shared_answers,
    wsgi,
)

LOG = logging.getLogger(__name__)


class ListenError(OSError):
    """The service cannot listen at its address; the text says why."""


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True
    # Clients beyond those that are served wait here; Linux allows 4096.
    request_queue_size = 2048

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _Handler.clients.guard(self)

    def service_actions(self) -> None:
        """Disconnect slow clients; called at least every half second."""
        _Handler.clients.expire()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the error at DEBUG: a closed connection needs no traceback."""
        LOG.debug('Client %s: %s', client_address, sys.exc_info()[1])


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(http_limits.LimitedHandler):
    # A rack of members boots at the same time, and Nova answers in seconds.
    clients = http_limits.Clients(http_limits.MOST_CLIENTS, receive_s=10.0)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request at DEBUG instead of writing it to stderr."""
        LOG.debug(format, *args)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    return _unread().parser('nova-vhpc-vendordata')


def _unread() -> conf_package.Options:
    """Return the options before command line and files are read."""
    conf = conf_package.Options()
    logging.register_options(conf)
    nova_conf.register_opts(conf)
    vendordata_conf.register_opts(conf)
    peers_conf.register_opts(conf)
    return conf


def load(argv: list[str]) -> cfg.ConfigOpts:
    """Read the configuration and set up the log.

    :param argv: command line, without the program's name.
    :raises cfg.Error: an option is wrong; the text names it.
    """
    conf = _unread()
    conf(
        argv,
        project='nova-vhpc',
        prog='nova-vhpc-vendordata',
        version=version.version_string(),
    )
    for module in (nova_conf, vendordata_conf, peers_conf):
        conf_package.check(conf, module.list_opts())
    credentials.check(conf, [nova_conf.GROUP])
    conf_package.set_up_log(conf, 'nova-vhpc-vendordata')
    conf_package.report_missing_files(conf)
    return conf


def make(conf: cfg.ConfigOpts) -> Any:
    """Return the application, with Nova's client from ``[vhpc_nova]``.

    :raises ValueError: the configuration is unsafe or incomplete.
    """
    group = nova_conf.GROUP
    options = conf.vhpc_vendordata
    source = nova.NovaClusterSource(
        credentials.adapter(conf, group, http_limits.MOST_CLIENTS),
        _secret_of_ids(conf),
        (options.switch_key, options.rack_key),
        place=credentials.place(conf, group),
    )
    application = wsgi.make_application(
        conf,
        shared_answers.SharedAnswers(
            source, options.cache_seconds, live.make(conf)
        ),
    )
    if not credentials.given(conf, group):
        LOG.error(
            'All requests will fail: [%s] has no auth_type, so Nova cannot '
            'be asked',
            group,
        )
    return application


def _secret_of_ids(conf: cfg.ConfigOpts) -> bytes | None:
    """Return the secret of the IDs that tenants get; None for no IDs.

    :raises ValueError: ``[vhpc_vendordata] id_secret`` is unsafe.
    """
    try:
        return opaque_ids.secret(conf, create=True)
    except opaque_ids.NoSecretError as error:
        LOG.warning(
            'Members get no IDs of hosts, switches and racks, so they cannot '
            'make files for job schedulers: %s',
            error,
        )
        return None


def application() -> Any:
    """Return the application for uWSGI and similar servers.

    They load ``nova_vhpc.cli.vendordata:application()``.
    """
    return make(load([]))


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted.

    :param argv: command line, without the program's name; None for that of
        the process.
    :returns: 0; 1 if the service cannot listen at its address, which a
        restart may change; 2 if the configuration is wrong. One line on
        stderr gives the reason.
    """
    try:
        server = _server(load(sys.argv[1:] if argv is None else argv))
    except (
        cfg.Error,
        ValueError,
        OSError,
        ks_exceptions.ClientException,
    ) as error:
        text = conf_package.reason(error)
        print(f'nova-vhpc-vendordata: {text}', file=sys.stderr)
        return 1 if isinstance(error, ListenError) else 2
    with server:
        host, port = server.server_address[:2]
        LOG.info(
            'Listening on %s', netutils.escape_ipv6(str(host)) + f':{port}'
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            LOG.info('Interrupted, shutting down')
    return 0


def _server(conf: cfg.ConfigOpts) -> _Server:
    """Return the server, bound to its address.

    :raises ValueError: the configuration is unsafe or incomplete.
    :raises ListenError: the service cannot listen at its address.
    """
    options = conf.vhpc_vendordata
    host, port = str(options.listen_host), options.listen_port
    application = make(conf)
    server_class = _Server6 if ':' in host else _Server
    try:
        return wsgiref.simple_server.make_server(
            host, port, application, server_class, _Handler
        )
    except OSError as error:
        raise ListenError(
            f'[vhpc_vendordata]listen_host = {host}, listen_port = {port}: '
            f'cannot listen there: {error}'
        ) from None


if __name__ == '__main__':
    sys.exit(main())
