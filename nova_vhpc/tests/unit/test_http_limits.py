# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.http_limits`."""

import select
import socket
import socketserver
import threading
from typing import Any
from wsgiref import simple_server

from oslotest import base

from nova_vhpc import http_limits

PATIENCE_S = 60.0
SLOW = b'POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n'


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True


class LimitsTest(base.BaseTestCase):
    """A real server with room for three clients."""

    def setUp(self) -> None:
        super().setUp()
        self.clients = http_limits.Clients(most=3, receive_s=PATIENCE_S)
        self.answer = threading.Event()
        self.answer.set()
        self.asked = threading.Semaphore(0)
        handler = type(
            'Handler',
            (http_limits.LimitedHandler,),
            {'clients': self.clients, 'timeout': PATIENCE_S},
        )
        self.server = simple_server.make_server(
            '127.0.0.1', 0, self.application, Server, handler
        )
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        threading.Thread(
            target=self.server.serve_forever, args=(0.01,), daemon=True
        ).start()

    def application(self, environ: Any, start_response: Any) -> list[bytes]:
        self.asked.release()
        self.answer.wait(PATIENCE_S)
        size = int(environ['CONTENT_LENGTH'] or 0)
        body: bytes = environ['wsgi.input'].read(size)
        start_response('200 OK', [('Content-Length', str(len(body)))])
        return [body]

    def connect(self, words: bytes) -> socket.socket:
        client = socket.create_connection(
            self.server.server_address, PATIENCE_S
        )
        self.addCleanup(client.close)
        client.sendall(words)
        return client

    def wait_for_clients(self, count: int) -> None:
        ready = threading.Event()
        for _ in range(6000):
            if len(self.clients._served) == count:
                return
            ready.wait(0.01)
        self.fail(f'{len(self.clients._served)} clients')

    def post(self, body: bytes) -> bytes:
        client = self.connect(
            b'POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n' % len(body) + body
        )
        with client.makefile('rb') as answer:
            return answer.read()

    def test_body_reaches_the_application(self) -> None:
        answer = self.post(b'x' * http_limits.MAX_BODY_BYTES)
        self.assertTrue(answer.endswith(b'xxxxxxxx'))

    def test_larger_body_is_not_read(self) -> None:
        answer = self.post(b'x' * (http_limits.MAX_BODY_BYTES + 1))
        self.assertTrue(answer.endswith(b'\r\n\r\n') or not answer)

    def test_slow_clients_give_place_to_the_next(self) -> None:
        slow = [self.connect(SLOW) for _ in range(3)]
        self.wait_for_clients(3)
        self.assertTrue(self.post(b'me').endswith(b'me'))
        # One of them had to go, and is told so; which, depends on whose
        # thread was the first.
        ended, _, _ = select.select(slow, [], [], PATIENCE_S / 2)
        self.assertEqual(1, len(ended))
        ended[0].makefile('rb').read()
        self.wait_for_clients(2)

    def test_any_number_of_slow_clients_has_few_threads(self) -> None:
        before = threading.active_count()
        slow = [self.connect(SLOW) for _ in range(100)]
        self.assertTrue(self.post(b'me').endswith(b'me'))
        for client in slow[:97]:
            client.makefile('rb').read()
        ready = threading.Event()
        for _ in range(6000):
            if threading.active_count() <= before + 3:
                return
            ready.wait(0.01)
        self.fail(f'{threading.active_count() - before} threads')

    def test_client_beyond_those_that_wait_for_answers_is_refused(
        self,
    ) -> None:
        self.answer.clear()
        self.addCleanup(self.answer.set)
        waiting = [self.connect(b'GET / HTTP/1.1\r\n\r\n') for _ in range(3)]
        for _ in waiting:
            self.assertTrue(self.asked.acquire(timeout=PATIENCE_S))
        self.assertEqual(b'', self.connect(b'').recv(64))
        self.answer.set()
        for client in waiting:
            self.assertIn(b' 200 OK', client.makefile('rb').read())

    def test_client_that_sends_byte_by_byte_is_disconnected(self) -> None:
        self.clients._receive_s = 0.0
        self.server.service_actions = self.clients.expire
        slow = self.connect(SLOW + b'x')
        slow.makefile('rb').read()
        self.wait_for_clients(0)
