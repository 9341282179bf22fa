# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Who may read the metrics, and how: TLS and a password.

prometheus_client can serve TLS, too, but shakes hands in the thread that
accepts clients: one that says nothing would keep all others out. Nor does it
read a renewed certificate.
"""

import base64
import dataclasses
import hmac
import logging
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Any

LOG = logging.getLogger(__name__)


class CertificateError(Exception):
    """The certificate or its key cannot be used."""


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """What ``[vhpc_agent]`` says of access to the metrics.

    :ivar user: name that scrapers must give.
    :ivar password: their password; empty if anybody may read the metrics.
    :ivar cert_file: PEM file with the server's certificate; empty for HTTP.
    :ivar key_file: PEM file with its key; empty if it is in ``cert_file``.
    """

    user: str = ''
    password: str = dataclasses.field(default='', repr=False)
    cert_file: str = ''
    key_file: str = ''

    def allows(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request has the right password, if one is needed.

        :param environ: the request, as WSGI passes it.
        """
        if not self.password:
            return True
        credentials = base64.b64encode(f'{self.user}:{self.password}'.encode())
        scheme, _, given = environ.get('HTTP_AUTHORIZATION', '').partition(' ')
        # In constant time, because the time would tell how much is right.
        return hmac.compare_digest(
            credentials, given.strip().encode('latin-1')
        ) and (scheme.lower() == 'basic')

    def certificate(self) -> 'Certificate | None':
        """Return the certificate; None for HTTP.

        :raises CertificateError: it cannot be used.
        """
        if self.cert_file:
            return Certificate(self.cert_file, self.key_file)
        if self.key_file:
            raise CertificateError(
                f'[vhpc_agent]metrics_key_file = {self.key_file}: it needs '
                'metrics_cert_file'
            )
        return None


class Certificate:
    """A server's certificate, which is read again when its file changes.

    :param cert_file: PEM file with the certificate and those that signed it.
    :param key_file: PEM file with its key; empty if it is in the same file.
    :raises CertificateError: it cannot be used.
    """

    def __init__(self, cert_file: str, key_file: str) -> None:
        self._files = cert_file, key_file or cert_file
        self._read: tuple[Any, ...] = ()
        self._problem = ''
        self._context = self._load()

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Return the encrypted connection; hands are shaken when it is read.

        A renewed certificate that cannot be used is logged, and the last one
        stays.
        """
        try:
            if self._state() != self._read:
                self._context = self._load()
                self._problem = ''
        except (OSError, CertificateError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                LOG.warning('The last certificate is still used: %s', error)
        return self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )

    def _state(self) -> tuple[Any, ...]:
        return tuple(
            (status.st_mtime_ns, status.st_ino, status.st_size)
            for status in map(os.stat, self._files)
        )

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Also if it cannot be used, so that it is logged once.
            self._read = self._state()
            # An encrypted key gets an empty passphrase, and must not ask for
            # one at a terminal.
            context.load_cert_chain(*self._files, password=str)
        except OSError as error:
            cert_file, key_file = self._files
            raise CertificateError(
                f'[vhpc_agent]metrics_cert_file = {cert_file}, '
                f'metrics_key_file = {key_file}: {error.strerror or error}; '
                'needed: a certificate in PEM format and its key without a '
                'passphrase, both readable by the agent'
            ) from None
        return context
