# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The endpoint that serves metrics to Prometheus."""

import contextlib
import gzip
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import prometheus_client
from prometheus_client import registry

from nova_vhpc import http_limits
from nova_vhpc.agent import periodic
from nova_vhpc.agent.daemon import host_metrics, metrics_access, tick

LOG = logging.getLogger(__name__)

MAX_BACKOFF_S = 10.0
"""Longest time between two attempts to take the port, in seconds."""

TICK_BUCKETS_S = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip

_PLAIN = 'text/plain; version=0.0.4; charset=utf-8'
_PLEASE = b'The metrics are at /metrics: use GET.\n'


class Handler(http_limits.LimitedHandler):
    """Answers one scraper. Few hosts have more than one."""

    clients = http_limits.Clients(most=16, receive_s=10.0)
    server: Any

    def setup(self) -> None:
        """Encrypt the connection, if there is a certificate."""
        if self.server.certificate is not None:
            self.request = self.server.certificate.wrap(self.request)
        super().setup()

    def finish(self) -> None:
        """Close the connection: the server knows only the bare one."""
        with contextlib.suppress(OSError):
            super().finish()
        self.connection.close()


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
        self._access = metrics_access.Access()
        self._state = 'off'
        self._detail = ''
        self._thread = periodic.PeriodicThread(
            'metrics', self._listen, lambda: MAX_BACKOFF_S, MAX_BACKOFF_S
        )

    def observe(self, result: tick.TickResult) -> None:
        """Add the duration of a tick to the histogram."""
        self._ticks.observe(result.took_us / 1e6)

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        with self._lock:
            text = self._vm_text()
            return prometheus_client.generate_latest(self.registry) + (
                text.encode()
            )

    def start(
        self,
        host: str,
        port: int,
        access: metrics_access.Access | None = None,
    ) -> None:
        """Serve the metrics, in a thread, as soon as the port can be had.

        Any local user may take the port first, so this must not keep the
        agent from running.

        :param host: address to listen on.
        :param port: TCP port.
        :param access: who may read the metrics; None for anybody.
        """
        self._address = host, port
        self._access = access or self._access
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
        if not self._access.allows(environ):
            start_response(
                '401 Unauthorized',
                [('WWW-Authenticate', 'Basic realm="nova-vhpc"')],
            )
            return [b'[vhpc_agent]metrics_password is needed.\n']
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
            certificate = self._access.certificate()
            self._server, _ = prometheus_client.start_http_server(
                # Empty, because it serves before it gets the application.
                port,
                host,
                registry=prometheus_client.CollectorRegistry(),
            )
        except metrics_access.CertificateError as error:
            raise self._down(str(error)) from error
        except OSError as error:
            raise self._down(
                f'[vhpc_agent]metrics_host = {host}, metrics_port = {port}: '
                f"{error.strerror or error}; allowed: this host's own "
                'address and a free port, or port 0 for none'
            ) from error
        self._server.certificate = certificate
        self._server.service_actions = Handler.clients.expire
        self._server.set_app(self.answer)
        self._server.RequestHandlerClass = Handler
        if self._state == 'down':
            LOG.info('Metrics are served')
        self._state, self._detail = 'up', ''
        self._thread.stop(0.0)

    def _down(self, detail: str) -> periodic.RetryLater:
        """Say why no metrics are served; return what to raise."""
        self._detail = detail
        if self._state != 'down':
            self._state = 'down'
            LOG.warning('No metrics are served, will retry: %s', detail)
        return periodic.RetryLater()
