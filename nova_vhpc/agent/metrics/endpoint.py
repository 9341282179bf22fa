# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The endpoint that serves metrics to Prometheus."""

import dataclasses
import gzip
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any

import prometheus_client
from prometheus_client import registry

from nova_vhpc import http_limits
from nova_vhpc.agent import periodic, tick_result
from nova_vhpc.agent.metrics import host_metrics

LOG = logging.getLogger(__name__)

MAX_BACKOFF_S = 10.0
"""Longest time between two attempts to take the port, in seconds."""

TICK_BUCKETS_S = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip

_PLAIN = 'text/plain; version=0.0.4; charset=utf-8'
_PLEASE = b'The metrics are at /metrics: use GET.\n'


class CertificateError(Exception):
    """The certificate, its key or the clients' authority cannot be used."""


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files for TLS, as ``[vhpc_agent]`` names them.

    :ivar cert: certificate of the endpoint; None for HTTP.
    :ivar key: its key; None if it is in ``cert``.
    :ivar client_ca: authority that signs the scrapers' certificates; None if
        they need none.
    """

    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None

    def written(self) -> tuple[int, ...]:
        """Return when the files were written; empty if one is missing."""
        try:
            return tuple(
                os.stat(file).st_mtime_ns
                for file in dataclasses.astuple(self)
                if file
            )
        except OSError:
            return ()

    def check(self) -> None:
        """Check that the files can be used.

        prometheus_client would serve HTTP if one of them were missing, and
        OpenSSL would ask for the passphrase of a key at the terminal.

        :raises CertificateError: they cannot be used.
        """
        files = [file for file in dataclasses.astuple(self) if file]
        if self.cert is None:
            if files:
                raise CertificateError(
                    f'[vhpc_agent]metrics_key_file or metrics_client_ca_file '
                    f'= {files[0]}: it needs metrics_cert_file'
                )
            return
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.cert, self.key, password=str)
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except OSError as error:
            raise CertificateError(
                f'[vhpc_agent]metrics_cert_file = {self.cert}, '
                f'metrics_key_file = {self.key}, metrics_client_ca_file = '
                f'{self.client_ca}: {error.strerror or error}; needed: PEM '
                'files that the agent may read, the key without a passphrase'
            ) from None


class Handler(http_limits.LimitedHandler):
    """Answers one scraper. Few hosts have more than one.

    prometheus_client gives each client a thread, for as long as it likes.
    """

    clients = http_limits.Clients(most=16, receive_s=10.0)


class Metrics:
    """The metrics endpoint, and the histogram of tick durations.

    :param collector: metrics of the agent and its host.
    :param vm_text: returns the metrics of VMs, in Prometheus' text format.
    """

    def __init__(
        self,
        collector: registry.Collector,
        vm_text: Callable[[], str] = lambda: '',
    ) -> None:
        self._vm_text = vm_text
        # Several scrapes at a time would only take the interpreter from each
        # other, and from the tick.
        self._lock = threading.Lock()
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(collector)
        self._ticks = prometheus_client.Histogram(
            f'{host_metrics.PREFIX}tick_seconds',
            'Time from the start of a tick to its end.',
            buckets=TICK_BUCKETS_S,
            registry=self.registry,
        )
        self._server: Any = None
        self._address = ('', 0)
        self._tls = TlsFiles()
        self._written: tuple[int, ...] = ()
        self._state = 'off'
        self._detail = ''
        self._thread = periodic.PeriodicThread(
            'metrics', self._listen, lambda: MAX_BACKOFF_S, MAX_BACKOFF_S
        )

    def observe(self, result: tick_result.TickResult) -> None:
        """Add the duration of a tick to the histogram."""
        self._ticks.observe(result.took_us / 1e6)

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        with self._lock:
            text = self._vm_text()
            return prometheus_client.generate_latest(self.registry) + (
                text.encode(errors='replace')
            )

    def start(
        self,
        host: str,
        port: int,
        tls: TlsFiles = TlsFiles(),
    ) -> None:
        """Serve the metrics, in a thread, as soon as the port can be had.

        Any local user may take the port first, so this must not keep the
        agent from running.

        :param host: address to listen on.
        :param port: TCP port.
        :param tls: certificates; without any, HTTP is spoken.
        """
        self._address = host, port
        self._tls = tls
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self._thread.stop(1.0)
        self._state = 'off'
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def status(self) -> dict[str, Any]:
        """Return whether the metrics are served, for the status document."""
        return {'state': self._state, 'detail': self._detail}

    def answer(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer one request, as a WSGI application."""
        if environ['REQUEST_METHOD'] != 'GET':
            start_response('405 Method Not Allowed', [('Allow', 'GET')])
            return [_PLEASE]
        if environ['PATH_INFO'] not in ('/', '/metrics'):
            start_response('404 Not Found', [('Content-Type', 'text/plain')])
            return [_PLEASE]
        headers = [('Content-Type', _PLAIN)]
        body = self.page()
        if 'gzip' in environ.get('HTTP_ACCEPT_ENCODING', ''):
            # Higher levels take several times as long for little.
            body = gzip.compress(body, compresslevel=1)
            headers.append(('Content-Encoding', 'gzip'))
        start_response('200 OK', headers)
        return [body]

    def _listen(self) -> None:
        """Take the port.

        :raises RetryLater: it cannot be had.
        """
        host, port = self._address
        try:
            self._written = self._tls.written()
            self._tls.check()
            self._server, _ = prometheus_client.start_http_server(
                # Empty, because it serves before it gets the application.
                port,
                host,
                registry=prometheus_client.CollectorRegistry(),
                certfile=self._tls.cert,
                keyfile=self._tls.key or self._tls.cert,
                client_cafile=self._tls.client_ca,
                client_auth_required=self._tls.client_ca is not None,
            )
        except CertificateError as error:
            raise self._down(str(error)) from error
        except OSError as error:
            raise self._down(
                f'[vhpc_agent]metrics_host = {host}, metrics_port = {port}: '
                f"{error.strerror or error}; allowed: this host's own "
                'address and a free port, or port 0 for none'
            ) from error
        if self._tls.cert is not None:
            # Hands are shaken in the thread of each client: one that says
            # nothing would keep all others out.
            self._server.socket.do_handshake_on_connect = False
        self._server.service_actions = self._maintain
        self._server.set_app(self.answer)
        self._server.RequestHandlerClass = Handler
        Handler.clients.guard(self._server)
        if self._state == 'down':
            LOG.info('Metrics are served')
        self._state, self._detail = 'up', ''
        self._thread.stop(0.0)

    def _maintain(self) -> None:
        """Disconnect slow clients, and use a renewed certificate."""
        Handler.clients.expire()
        written = self._tls.written()
        if written == self._written:
            return
        self._written = written
        try:
            self._tls.check()
            self._server.socket.context.load_cert_chain(
                self._tls.cert, self._tls.key
            )
        except (CertificateError, OSError) as error:
            LOG.warning('The last certificate is still used: %s', error)

    def _down(self, detail: str) -> periodic.RetryLater:
        """Say why no metrics are served; return what to raise."""
        self._detail = detail
        if self._state != 'down':
            self._state = 'down'
            LOG.warning('No metrics are served, will retry: %s', detail)
        return periodic.RetryLater()
