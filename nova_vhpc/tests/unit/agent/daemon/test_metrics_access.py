# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.daemon.metrics_access`, by real clients."""

import base64
import pathlib
import socket
import ssl
import urllib.error
import urllib.request

import fixtures

from nova_vhpc.agent.daemon import metrics, metrics_access
from nova_vhpc.tests import certificates
from nova_vhpc.tests.unit.agent.daemon import endpoint


class AccessCase(endpoint.EndpointCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.cert, self.key = self.folder / 'c.pem', self.folder / 'k.pem'

    def start(self, **access: str) -> metrics.Metrics:
        return self.listen(access=metrics_access.Access(**access))

    def start_tls(self) -> metrics.Metrics:
        certificates.write(self.cert, self.key)
        made = self.start(cert_file=str(self.cert), key_file=str(self.key))
        self.wait_for_state(made, 'up')
        return made

    def get(
        self, made: metrics.Metrics, scheme: str = 'http', token: str = ''
    ) -> str:
        url = f'{scheme}://127.0.0.1:{made._server.server_port}/metrics'
        request = urllib.request.Request(url)
        if token:
            request.add_header('Authorization', token)
        context = None
        if scheme == 'https':
            context = ssl.create_default_context(cafile=self.cert)
        with urllib.request.urlopen(
            request, timeout=60, context=context
        ) as answer:
            return answer.read().decode()


class PasswordTest(AccessCase):
    def basic(self, text: str) -> str:
        return f'Basic {base64.b64encode(text.encode()).decode()}'

    def test_metrics_need_the_right_user_and_password(self) -> None:
        made = self.start(user='prometheus', password='gehéim:')
        self.wait_for_state(made, 'up')
        self.assertIn(
            'nova_vhpc_ticks_total',
            self.get(made, token=self.basic('prometheus:gehéim:')),
        )
        for token in (
            '',
            'Basic',
            'Basic \xe9',
            self.basic('prometheus:'),
            self.basic('prometheus:other'),
            self.basic('other:gehéim:'),
            self.basic('prometheus:gehéim:').replace('Basic', 'Bearer'),
        ):
            error = self.assertRaises(
                urllib.error.HTTPError, self.get, made, token=token
            )
            self.assertEqual(401, error.code, token)
            self.assertIn('Basic', error.headers['WWW-Authenticate'])
            self.assertNotIn(b'ticks', error.read())
            error.close()

    def test_password_is_not_in_the_text_of_the_object(self) -> None:
        self.assertNotIn('secret', str(metrics_access.Access('u', 'secret')))


class CertificateTest(AccessCase):
    def test_metrics_are_served_by_https_only(self) -> None:
        made = self.start_tls()
        self.assertIn('nova_vhpc_ticks_total', self.get(made, 'https'))
        # The server ends the connection without an answer, or resets it.
        self.assertRaises(OSError, self.get, made, 'http')

    def test_clients_that_do_not_shake_hands_keep_no_scraper_out(self) -> None:
        made = self.start_tls()
        for _ in range(100):
            client = socket.create_connection(
                ('127.0.0.1', made._server.server_port), 60.0
            )
            self.addCleanup(client.close)
        self.assertIn('nova_vhpc_ticks_total', self.get(made, 'https'))

    def test_renewed_certificate_is_used_from_then_on(self) -> None:
        made = self.start_tls()
        self.get(made, 'https')
        certificates.write(self.cert, self.key)
        self.assertIn('nova_vhpc_ticks_total', self.get(made, 'https'))

    def test_last_certificate_stays_if_the_renewed_one_is_broken(self) -> None:
        made = self.start_tls()
        old = self.cert.read_text()
        log = self.useFixture(fixtures.FakeLogger(metrics_access.__name__))
        for text in ('broken', None):
            self.cert.unlink()
            if text:
                self.cert.write_text(text)
            trusted = self.folder / 'old.pem'
            trusted.write_text(old)
            context = ssl.create_default_context(cafile=trusted)
            with (
                socket.create_connection(
                    ('127.0.0.1', made._server.server_port), 60.0
                ) as client,
                context.wrap_socket(
                    client, server_hostname='127.0.0.1'
                ) as encrypted,
            ):
                self.assertTrue(encrypted.getpeercert())
        self.assertIn('The last certificate is still used', log.output)

    def test_files_that_cannot_be_used_are_named_until_they_can(self) -> None:
        made = self.start(cert_file=str(self.cert), key_file=str(self.key))
        self.wait_for_state(made, 'down')
        detail = made.status()['detail']
        for word in (
            f'metrics_cert_file = {self.cert}',
            f'metrics_key_file = {self.key}',
            'No such file',
        ):
            self.assertIn(word, detail)
        certificates.write(self.folder / 'new', self.key)
        (self.folder / 'new').rename(self.cert)
        self.wait_for_state(made, 'up')
        self.assertIn('nova_vhpc_ticks_total', self.get(made, 'https'))

    def test_key_of_another_certificate_is_refused(self) -> None:
        certificates.write(self.cert, self.key)
        certificates.write(self.cert, self.folder / 'other')
        self.assertRaises(
            metrics_access.CertificateError,
            metrics_access.Certificate,
            str(self.cert),
            str(self.key),
        )

    def test_key_may_be_in_the_file_of_the_certificate(self) -> None:
        certificates.write(self.cert, self.key)
        both = self.folder / 'both.pem'
        both.write_text(self.cert.read_text() + self.key.read_text())
        made = self.start(cert_file=str(both))
        self.wait_for_state(made, 'up')
        self.assertIn('nova_vhpc_ticks_total', self.get(made, 'https'))

    def test_key_without_a_certificate_serves_nothing(self) -> None:
        made = self.start(key_file=str(self.key))
        self.wait_for_state(made, 'down')
        self.assertIn('needs metrics_cert_file', made.status()['detail'])
