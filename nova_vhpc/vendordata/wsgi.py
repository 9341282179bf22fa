# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The WSGI application of ``nova-vhpc-vendordata``.

Nova posts ``project-id``, ``instance-id`` and more, with the service token of
its ``[vendordata_dynamic_auth]``, which keystonemiddleware validates.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from keystonemiddleware import auth_token
from keystonemiddleware import exceptions as ksm_exceptions
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import uuidutils

from nova_vhpc import http_limits
from nova_vhpc.clients import credentials, failures
from nova_vhpc.vendordata import nova, shared_answers

LOG = logging.getLogger(__name__)

_AUTHTOKEN = 'keystone_authtoken'

_PROJECT = re.compile('[A-Za-z0-9_-]{1,64}')

_UNAVAILABLE = '503 Service Unavailable'

_CLIENT_HEADERS = (
    'HTTP_X_FORWARDED_FOR',
    'HTTP_X_REAL_IP',
    'HTTP_X_CLIENT_IP',
    'HTTP_X_CLUSTER_CLIENT_IP',
    'HTTP_TRUE_CLIENT_IP',
)
"""Headers in which proxies name the client."""

_FORWARDED_FOR = re.compile(
    '(?:^|[;,])\\s*for\\s*=\\s*([^;,]*)', re.IGNORECASE
)
"""Clients in the header ``Forwarded`` (RFC 7239)."""

_PROXY_HEADERS = (
    'HTTP_FORWARDED',
    'HTTP_VIA',
    'HTTP_X_FORWARDED_HOST',
    'HTTP_X_FORWARDED_PROTO',
)
"""Headers by which proxies are known that may not name the client."""

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class Application:
    """Answers Nova's dynamic vendordata requests.

    ``GET`` of any path returns the service's name, for health checks.

    :param answers: answers to servers.
    :param roles: roles of which the token must have one; None for no check.
    """

    def __init__(
        self, answers: shared_answers.SharedAnswers, roles: set[str] | None
    ) -> None:
        self._answers = answers
        self._roles = roles

    def __call__(
        self, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Serve one request."""
        return _respond(start_response, *self._serve(environ))

    def _serve(self, environ: Environ) -> tuple[str, bytes]:
        if self._roles is None and not _is_local(environ):
            # Whatever server runs the application, and wherever it listens.
            return _error(
                '403 Forbidden',
                '[vhpc_vendordata]auth_strategy = noauth answers only clients '
                'of the same host',
            )
        if environ['REQUEST_METHOD'] == 'GET':
            return '200 OK', b'{"service": "nova-vhpc-vendordata"}'
        if environ['REQUEST_METHOD'] != 'POST':
            return _error('405 Method Not Allowed', 'POST only')
        if self._roles is not None:
            held = environ.get('HTTP_X_ROLES', '').split(',')
            if not self._roles & {role.strip() for role in held}:
                wanted = ', '.join(sorted(self._roles))
                return _error(
                    '403 Forbidden', f'the token has none of: {wanted}'
                )
        try:
            size = int(environ.get('CONTENT_LENGTH') or 0)
        except ValueError:
            size = -1
        if not 0 < size <= http_limits.MAX_BODY_BYTES:
            return _error(
                '400 Bad Request',
                f'Content-Length must be 1 to {http_limits.MAX_BODY_BYTES}',
            )
        try:
            request = json.loads(environ['wsgi.input'].read(size))
            server_uuid = request['instance-id']
            project_id = request['project-id']
        # OSError: the client closed the connection before the end.
        except (ValueError, KeyError, TypeError, RecursionError, OSError):
            return _error(
                '400 Bad Request',
                'the body must be JSON with instance-id and project-id',
            )
        if not uuidutils.is_uuid_like(server_uuid):
            return _error('400 Bad Request', 'instance-id must be a uuid')
        if not isinstance(project_id, str) or not _PROJECT.fullmatch(
            project_id
        ):
            return _error('400 Bad Request', 'project-id is not an id')
        return self._answer(server_uuid, project_id)

    def _answer(self, server_uuid: str, project_id: str) -> tuple[str, bytes]:
        try:
            return '200 OK', self._answers.of(server_uuid, project_id)
        except nova.NotMember as reason:
            # Nova asks for every server, and most are in no cluster.
            LOG.debug('No vendordata for server %s: %s', server_uuid, reason)
            return '200 OK', b'{}'
        except RuntimeError as error:
            LOG.warning(
                'Nova cannot be asked for server %s: %s', server_uuid, error
            )
            return _error(_UNAVAILABLE, 'Nova cannot be asked')


def _respond(
    start_response: StartResponse, status: str, body: bytes
) -> Iterable[bytes]:
    """Send a response with a JSON body."""
    headers = [
        ('Content-Type', 'application/json'),
        ('Content-Length', str(len(body))),
        ('Cache-Control', 'no-store'),
    ]
    if status == _UNAVAILABLE:
        headers.append(('Retry-After', '5'))
    start_response(status, headers)
    return [body]


def _error(status: str, message: str) -> tuple[str, bytes]:
    return status, json.dumps({'error': message}).encode()


def _is_local(environ: Environ) -> bool:
    """Return whether the request comes from this host, as far as is told.

    A proxy that does not say for whom it asks may ask for anybody.
    """
    addresses = [environ.get('REMOTE_ADDR', '')]
    for name in _CLIENT_HEADERS:
        addresses += environ.get(name, '').split(',')
    forwarded = environ.get('HTTP_FORWARDED', '')
    addresses += _FORWARDED_FOR.findall(forwarded)
    is_named = any(address.strip() for address in addresses[1:])
    if not is_named and any(environ.get(name) for name in _PROXY_HEADERS):
        return False
    # A local socket has no address.
    return all(
        _is_loopback(address.strip().strip('"[]'))
        for address in addresses
        if address
    )


def _is_loopback(host: str) -> bool:
    """Return whether an address, or a host name, is of the loopback."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == 'localhost'
    mapped = getattr(address, 'ipv4_mapped', None)
    return bool((mapped or address).is_loopback)


class _UncheckedTokenError(Exception):
    """Keystone could not be asked about a token; its cause says why."""


class _TokenCheck(auth_token.AuthProtocol):
    """Has Keystone check the token of each request."""

    def fetch_token(self, token: str, **options: Any) -> Any:
        """Return what Keystone says of a token.

        :raises KeystoneMiddlewareException: the token is not valid.
        :raises _UncheckedTokenError: Keystone cannot be asked.
        """
        try:
            return super().fetch_token(token, **options)
        except ksm_exceptions.KeystoneMiddlewareException:
            raise
        except Exception as error:
            cause = _keystone_error(error)
            if cause is None:
                raise
            raise _UncheckedTokenError from cause

    def _create_session(self, **options: Any) -> Any:
        session = super()._create_session(**options)
        credentials.widen(session, http_limits.MOST_CLIENTS)
        return session

    def reason(
        self, error: _UncheckedTokenError, place: failures.Place
    ) -> str:
        """Return why Keystone could not be asked, and what to change."""
        cause = error.__cause__ or error
        return failures.reason(cause, place, self._auth)


def _keystone_error(error: BaseException) -> BaseException | None:
    """Return the error of the request to Keystone that led to an error."""
    cause: BaseException | None = error
    while cause is not None and not failures.is_connection_error(cause):
        cause = cause.__context__
    return cause


class Authenticated:
    """Passes requests with a valid token on to an application.

    Without this class, some errors of Keystone become a traceback and status
    500, and none names an option.

    :param application: application to protect.
    :param conf: configuration with ``[keystone_authtoken]``.
    :raises UnusableError: an option of that group is wrong or missing.
    """

    def __init__(self, application: Any, conf: cfg.ConfigOpts) -> None:
        try:
            self._check = _TokenCheck(
                application,
                {'oslo_config_config': conf, 'delay_auth_decision': False},
            )
        except Exception as error:
            # keystoneauth raises many kinds.
            place = credentials.place(conf, _AUTHTOKEN)
            text = failures.reason(error, place)
            raise credentials.UnusableError(
                f'[keystone_authtoken] is unusable: {text}'
            ) from error
        self._place = credentials.place(conf, _AUTHTOKEN)

    def __call__(
        self, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Serve one request; answer 503 while Keystone cannot be asked."""
        try:
            answer: Iterable[bytes] = self._check(environ, start_response)
        except _UncheckedTokenError as error:
            LOG.error(
                'Tokens cannot be checked: %s',
                self._check.reason(error, self._place),
            )
            return _respond(
                start_response,
                *_error(_UNAVAILABLE, 'tokens cannot be checked'),
            )
        return answer


def make_application(
    conf: cfg.ConfigOpts,
    answers: shared_answers.SharedAnswers,
) -> Any:
    """Return the application with the configured authentication.

    :raises ValueError: the configuration is unsafe or incomplete.
    """
    options = conf.vhpc_vendordata
    host = str(options.listen_host)
    if options.auth_strategy == 'noauth':
        if not _is_loopback(host):
            raise ValueError(
                '[vhpc_vendordata]auth_strategy = noauth with listen_host = '
                f'{host}: without authentication only a loopback address '
                'such as 127.0.0.1 is allowed'
            )
        return Application(answers, None)
    application = Authenticated(
        Application(answers, set(options.allowed_roles)), conf
    )
    # Not before: keystonemiddleware registers the options.
    if not credentials.given(conf, _AUTHTOKEN):
        raise ValueError(
            '[vhpc_vendordata]auth_strategy = keystone: no token can be '
            "checked without auth_type, auth_url and the service's user in "
            '[keystone_authtoken]'
        )
    return application
