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
    request_queue_size = 128


class LimitsTest(base.BaseTestCase):
    """A real server with room for three clients."""

    grace_s = 0.0

    def setUp(self) -> None:
        super().setUp()
        self.clients = http_limits.Clients(3, PATIENCE_S, self.grace_s)
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
        self.clients.guard(self.server)
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

    def test_slow_clients_give_place_to_the_next_and_are_told(self) -> None:
        slow = [self.connect(SLOW) for _ in range(100)]
        before = threading.active_count()
        self.assertTrue(self.post(b'me').endswith(b'me'))
        told = 0
        while told < 98:
            ended, _, _ = select.select(slow, [], [], PATIENCE_S)
            for client in ended:
                self.assertIn(b' 503 ', client.recv(4096))
                slow.remove(client)
                told += 1
        self.assertLess(threading.active_count(), before + 5)

    def test_clients_beyond_those_that_wait_are_answered_later(self) -> None:
        self.answer.clear()
        self.addCleanup(self.answer.set)
        waiting = [self.connect(b'GET / HTTP/1.1\r\n\r\n') for _ in range(40)]
        for _ in range(3):
            self.assertTrue(self.asked.acquire(timeout=PATIENCE_S))
        self.assertFalse(self.asked.acquire(timeout=0.3))
        self.answer.set()
        for client in waiting:
            self.assertIn(b' 200 OK', client.makefile('rb').read())

    def test_client_that_sends_byte_by_byte_is_told_why_it_goes(self) -> None:
        self.clients._receive_s = 0.0
        self.server.service_actions = self.clients.expire
        for words in (b'', b'POST / HT', SLOW + b'x'):
            client = self.connect(words)
            self.assertIn(b' 408 ', client.makefile('rb').read())


class GraceTest(LimitsTest):
    """Clients have time before others may take their places."""

    grace_s = PATIENCE_S

    def test_slow_clients_give_place_to_the_next_and_are_told(self) -> None:
        slow = [self.connect(SLOW) for _ in range(3)]
        next_one = self.connect(b'GET / HTTP/1.1\r\n\r\n')
        ended, _, _ = select.select([*slow, next_one], [], [], 0.5)
        self.assertEqual([], ended)
        slow[0].sendall(b'x' * 1000)
        self.assertIn(b' 200 OK', next_one.makefile('rb').read())
