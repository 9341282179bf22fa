# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of TLS of :mod:`nova_vhpc.agent.metrics.endpoint`, by real clients."""

import pathlib
import socket
import ssl
import time
import urllib.request

import fixtures

from nova_vhpc.agent.metrics import endpoint
from nova_vhpc.tests import certificates
from nova_vhpc.tests.unit import waiting
from nova_vhpc.tests.unit.agent.metrics import endpoint_case


class TlsTest(endpoint_case.EndpointCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.cert, self.key = self.folder / 'c.pem', self.folder / 'k.pem'
        certificates.write(self.cert, self.key)

    def start(self, **tls: str) -> endpoint.Metrics:
        made = self.listen(
            **{'cert': str(self.cert), 'key': str(self.key), **tls}
        )
        self.wait_for_state(made, 'up')
        return made

    def get(
        self,
        made: endpoint.Metrics,
        scheme: str = 'https',
        client: tuple[pathlib.Path, pathlib.Path] | None = None,
    ) -> str:
        url = f'{scheme}://127.0.0.1:{made._server.server_port}/metrics'
        context = None
        if scheme == 'https':
            context = ssl.create_default_context(cafile=self.cert)
            if client:
                context.load_cert_chain(*client)
        with urllib.request.urlopen(
            url, timeout=60, context=context
        ) as answer:
            return answer.read().decode()

    def test_metrics_are_served_by_https_only(self) -> None:
        made = self.start()
        self.assertIn('nova_vhpc_ticks_total', self.get(made))
        # The server ends the connection without an answer, or resets it.
        self.assertRaises(OSError, self.get, made, 'http')

    def test_scrapers_need_a_certificate_of_the_authority(self) -> None:
        other = self.folder / 'other.pem', self.folder / 'other.key'
        certificates.write(*other)
        made = self.start(client_ca=str(self.cert))
        self.assertIn(
            'nova_vhpc_ticks_total',
            self.get(made, client=(self.cert, self.key)),
        )
        for client in (None, other):
            self.assertRaises(OSError, self.get, made, client=client)

    def test_clients_that_do_not_shake_hands_keep_no_scraper_out(self) -> None:
        made = self.start()
        for _ in range(40):
            client = socket.create_connection(
                ('127.0.0.1', made._server.server_port), 60.0
            )
            self.addCleanup(client.close)
        self.assertIn('nova_vhpc_ticks_total', self.get(made))

    def test_renewed_certificate_is_used_once_it_can_be(self) -> None:
        made = self.start()
        log = self.useFixture(fixtures.FakeLogger(endpoint.__name__))
        valid = self.cert.read_text()
        self.cert.write_text('broken')
        self.wait_for_log(log, 'The last certificate is still used')
        self.cert.write_text(valid)
        self.assertIn('nova_vhpc_ticks_total', self.get(made))
        certificates.write(self.cert, self.key)
        end_s = time.monotonic() + 60
        while True:
            try:
                self.assertIn('nova_vhpc_ticks_total', self.get(made))
                break
            except OSError:
                self.assertLess(time.monotonic(), end_s)
                time.sleep(0.1)

    def wait_for_log(self, log: fixtures.FakeLogger, text: str) -> None:
        waiting.wait_for(lambda: text in log.output)

    def test_files_that_cannot_be_used_are_named_until_they_can(self) -> None:
        moved = self.folder / 'moved.pem'
        self.cert.rename(moved)
        made = self.listen(cert=str(self.cert), key=str(self.key))
        self.wait_for_state(made, 'down')
        detail = made.status()['detail']
        for word in (
            f'metrics_cert_file = {self.cert}',
            f'metrics_key_file = {self.key}',
            'No such file',
        ):
            self.assertIn(word, detail)
        moved.rename(self.cert)
        self.wait_for_state(made, 'up')
        self.assertIn('nova_vhpc_ticks_total', self.get(made))

    def test_unusable_files_are_refused(self) -> None:
        other = self.folder / 'other.key'
        certificates.write(self.folder / 'other.pem', other)
        for files in (
            {'cert': str(self.cert), 'key': str(other)},
            {'cert': str(self.cert), 'key': str(self.key)}
            | {'client_ca': '/none'},
            {'key': str(self.key)},
            {'client_ca': str(self.cert)},
        ):
            with self.subTest(files):
                self.assertRaises(
                    endpoint.CertificateError,
                    endpoint.TlsFiles(**files).check,
                )

    def test_key_may_be_in_the_file_of_the_certificate(self) -> None:
        both = self.folder / 'both.pem'
        both.write_text(self.cert.read_text() + self.key.read_text())
        made = self.listen(cert=str(both))
        self.wait_for_state(made, 'up')
        self.assertIn('nova_vhpc_ticks_total', self.get(made))
