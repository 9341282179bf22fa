# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Say in one line why a service cannot be asked, and which option to change.

The errors of keystoneauth name neither the option nor, mostly, the address.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

from keystoneauth1 import exceptions as ksa

from nova_vhpc import conf as conf_package

_ROLES = {
    'placement': 'service or admin',
    'vhpc_nova': 'admin or one that may list the servers of all projects',
    'keystone_authtoken': 'service or admin',
}
"""Role that the user of an option group needs."""

_AUTH = frozenset(
    (
        'auth_type',
        'auth_url',
        'username',
        'password',
        'project_name',
        'project_domain_name',
    )
)
"""Options that ``auth_section`` moves to another group."""

_REQUEST_ID = re.compile(r' \(Request-ID: [^)]*\)')
_INTERFACES = re.compile(r"^\['[\w', ]+'\] ")
"""How keystoneauth names the interfaces that no endpoint has."""
_POOL = re.compile(
    r'HTTPS?ConnectionPool\(.*\): Max retries exceeded with url: \S* '
    r'\(Caused by (.*)\)$'
)
_CAUSES = (
    re.compile(r'\w+\("?HTTPS?Connection\([^)]*\): (.*?)"?\)$'),
    re.compile(r"""\w+\((?:\w+\()?\d+, ['"](.*?)['"]\)+$"""),
)
"""How urllib3 wraps the message of the system or of OpenSSL."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an operator sets how a service is reached.

    :ivar name: the place, as in ``[placement]``; empty if the names of the
        options say it.
    :ivar spellings: names of options there that differ from keystoneauth's.
    :ivar prefix: prefix of all names, which are then in upper case.
    :ivar role: role that the user needs there.
    :ivar auth_name: the place of user and address of Keystone, if it is
        another one, as with ``auth_section``.
    """

    name: str
    spellings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prefix: str = ''
    role: str = 'admin'
    auth_name: str = ''

    @classmethod
    def of_group(cls, group: str) -> Self:
        """Return the place for an option group of keystoneauth."""
        spellings = {}
        if group == 'keystone_authtoken':
            spellings = {'valid_interfaces': 'interface'}
        return cls(f'[{group}]', spellings, role=_ROLES.get(group, 'admin'))

    def options(self, *names: str) -> str:
        """Return the names of options and where they are set.

        :param names: keystoneauth's names.
        """
        spelled = [
            f'{self.prefix}{self.spellings.get(name, name)}' for name in names
        ]
        if self.prefix:
            spelled = [name.upper() for name in spelled]
        text = ' and '.join(
            [', '.join(spelled[:-1]), spelled[-1]]
            if len(spelled) > 1
            else spelled
        )
        where = self.name
        if self.auth_name and _AUTH.issuperset(names):
            where = self.auth_name
        return f'{text} of {where}' if where else text


def is_connection_error(error: BaseException) -> bool:
    """Return whether an error came of settings or network, not of a bug.

    keystoneauth raises a bare ``Exception`` for a missing password, and an
    ``OSError`` for a missing file of certificates.
    """
    return (
        isinstance(error, (ksa.ClientException, OSError))
        or type(error) is Exception
    )


def reason(error: BaseException, place: Place, client: Any = None) -> str:
    """Return in one line why a request failed, and what to change.

    :param place: where the credentials are set that were used.
    :param client: keystoneauth's adapter or auth plugin, for the address of
        Keystone; None if unknown.
    """
    text = plain(error)
    hint = _hint(error, text, place, client)
    return f'{text.rstrip(".")}; {hint}' if hint else text


def plain(error: BaseException) -> str:
    """Return an error's text in one line, without what only confuses."""
    text = conf_package.plain(' '.join(str(error).split()))
    text = text or type(error).__name__
    if isinstance(error, ksa.HttpError) and error.url:
        # keystoneauth does not know how Nova writes its errors.
        text = text.replace(
            'Unrecognized schema in response body.',
            f'{error.method} {error.url.partition("?")[0]} was refused',
        )
    text = _REQUEST_ID.sub('', text)
    text = _INTERFACES.sub(
        lambda match: match[0].replace("'", '').strip('[] ') + ' ', text
    )
    match = _POOL.search(text)
    if match is None:
        return text
    cause = match[1]
    for pattern in _CAUSES:
        cause = pattern.sub(r'\1', cause)
    return text[: match.start()] + cause


def refusal(status: int, place: Place, client: Any = None) -> str:
    """Return what to change after an answer of a service; may be empty.

    :param status: HTTP status.
    :param client: keystoneauth's session or adapter, which knows of what its
        token is; None if unknown.
    """
    if status == 403:
        return _forbidden(place, _scope(client))
    if status == 401:
        return (
            f'the service does not accept the token: is '
            f'{place.options("auth_url")} the Keystone of that service?'
        )
    return ''


def _scope(client: Any) -> str:
    """Return of what a token is: project, system, domain, '' if unknown."""
    session = getattr(client, 'session', client)
    access = getattr(getattr(session, 'auth', None), 'auth_ref', None)
    if isinstance(getattr(access, 'project_id', None), str):
        return 'project'
    if getattr(access, 'system_scoped', None) is True:
        return 'system'
    if isinstance(getattr(access, 'domain_id', None), str):
        return 'domain'
    return ''


def _forbidden(place: Place, scope: str) -> str:
    """Return what to change if a user may not do what it asked for."""
    project = place.options('project_name', 'project_domain_name')
    if scope in ('system', 'domain'):
        other = 'system_scope' if scope == 'system' else 'domain_name'
        return (
            f'its token is of the {scope}, and services of OpenStack answer '
            f'tokens of projects: set {project}, and no {other}'
        )
    user = f'the user that {place.options("username")} names'
    if scope == 'project':
        return f'{user} needs the role {place.role} in its project'
    return (
        f'{user} needs the role {place.role}, and its token must be of a '
        f'project: check {project}'
    )


def _keystone(client: Any, error: BaseException) -> str:
    """Return the address of Keystone, as it is named in a hint."""
    plugin = getattr(getattr(client, 'session', None), 'auth', client)
    address = getattr(plugin, 'auth_url', None)
    if address is None and isinstance(error, ksa.Unauthorized):
        address = (error.url or '').removesuffix('/auth/tokens')
    return f' ({address})' if address and isinstance(address, str) else ''


def _hint(error: BaseException, text: str, place: Place, client: Any) -> str:
    """Return what an operator should change; empty if the text says it."""
    keystone = _keystone(client, error)
    options = place.options
    if isinstance(error, ksa.Unauthorized):
        if error.url and not error.url.endswith('/auth/tokens'):
            return refusal(401, place)
        if 'password is expired' in text:
            return (
                'set a new password in Keystone, and '
                f'{options("password")} to it'
            )
        names = ('username', 'password', 'project_name')
        return (
            f'are {options(*names)} and the domains right for Keystone'
            f'{keystone}, and has the user a role in that project?'
        )
    if isinstance(error, ksa.Forbidden):
        return refusal(403, place, client)
    if isinstance(error, ksa.EmptyCatalog):
        return (
            'the token is of no project: set '
            f'{options("project_name", "project_domain_name")}'
        )
    if isinstance(error, ksa.CatalogException):
        return (
            f'set {options("region_name", "valid_interfaces")} to what '
            f"Keystone's catalog{keystone} has: openstack catalog list"
        )
    if isinstance(error, ksa.MissingAuthPlugin):
        if place.auth_name:
            return (
                f'does {options("auth_section")} name a group with auth_type?'
            )
        return f'set {options("auth_type")} and what goes with it'
    if isinstance(error, ksa.NoMatchingPlugin):
        return f'is {options("auth_type")} right? Try password'
    if isinstance(error, ksa.DiscoveryFailure):
        return (
            f'is {options("auth_url")}{keystone} the address of Keystone, '
            'like https://HOST/identity/v3?'
        )
    if isinstance(error, ksa.SSLError):
        if 'CERTIFICATE_VERIFY_FAILED' in text:
            return (
                f'set {options("cafile")} to the file of the authority that '
                'issued the certificate'
            )
        return (
            f'does that address use TLS? If not, {options("auth_url")}, or '
            "the endpoint in Keystone's catalog, must begin with http:"
        )
    if isinstance(error, ksa.ConnectionError):
        if '/auth/tokens' in text:
            return f'is Keystone up, and {options("auth_url")} right?'
        return (
            'is the service up? '
            f'{options("region_name", "valid_interfaces")} choose that '
            "address in Keystone's catalog"
        )
    if isinstance(error, OSError) and 'invalid path' in text:
        return f'is {options("cafile")}, certfile or keyfile a wrong path?'
    if type(error) is Exception or isinstance(error, ksa.OptionError):
        where = place.auth_name or place.name or 'the OS_* variables'
        return f'set it in {where}'
    return ''
