# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Connect console scripts to a cloud by clouds.yaml or OS_* variables."""

import argparse
import contextlib
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from keystoneauth1 import exceptions as ksa

from nova_vhpc.clients import failures

MICROVERSION = '2.86'
"""First microversion with which Nova checks extra specs by validators."""


class CloudError(Exception):
    """The cloud is not reachable, or does not have the named object."""


class UnknownNameError(CloudError):
    """Placement refused a query (HTTP 400), as for an unknown name."""


class RefusedError(CloudError):
    """The user has no right to what was requested (HTTP 403)."""


class GoneError(CloudError):
    """The requested object does not exist (HTTP 404)."""


class NothingPublishedError(UnknownNameError):
    """Placement does not know the resource classes that agents create."""


_NOT_IN_CATALOG = 'The service is not present in the service catalog:'

_VARIABLES = ('OS_AUTH_URL', 'OS_USERNAME', 'OS_PASSWORD', 'OS_TOKEN')
"""Environment variables of which one is set if they describe the cloud."""

_KINDS = {400: UnknownNameError, 404: GoneError}


@contextlib.contextmanager
def asked(
    cloud: str | None = None, session: Callable[[], Any] = lambda: None
) -> Iterator[None]:
    """Turn exceptions of the cloud's client libraries into CloudError.

    The libraries raise dozens of classes, and a caller can only report them.

    :param cloud: name of the cloud in clouds.yaml, if one was given.
    :param session: returns the keystoneauth session; called after a refusal.
    :raises CloudError: the cloud cannot be asked.
    """
    try:
        yield
    except Exception as error:
        if not _is_of_libraries(error):
            raise
        refused = getattr(error, 'status_code', None) == 403
        kind = RefusedError if refused else CloudError
        why = _why(error, cloud, session() if refused else None)
        raise kind(f'the cloud says: {why}') from None


def _why(error: Exception, cloud: str | None, session: Any) -> str:
    """Return why the libraries failed, and what to change."""
    status = getattr(error, 'status_code', None)
    if status:
        # openstacksdk's own text has status and URL, which help nobody here.
        details = getattr(error, 'details', None) if status == 403 else None
        text = details or failures.plain(error)
        hint = failures.refusal(status, place(cloud), session)
        return f'{text.rstrip(".")}; {hint}' if hint else text
    text = str(error)
    if _NOT_IN_CATALOG in text:
        # openstacksdk keeps keystoneauth's error as text only.
        text = text.partition(_NOT_IN_CATALOG)[2].strip()
        kind = ksa.EmptyCatalog if 'is empty' in text else ksa.EndpointNotFound
        return failures.reason(kind(text), place(cloud))
    cause: BaseException | None = error
    while cause is not None and not failures.is_connection_error(cause):
        cause = cause.__cause__ or cause.__context__
    return failures.reason(cause or error, place(cloud))


def _is_of_libraries(error: BaseException) -> bool:
    """Return whether an error is one that the client libraries report.

    keystoneauth passes on a bare ``Exception`` and errors of files.
    """
    packages = ('openstack', 'keystoneauth1')
    if type(error).__module__.partition('.')[0] in packages:
        return True
    return (isinstance(error, OSError) or type(error) is Exception) and any(
        str(frame.f_globals.get('__name__')).partition('.')[0] in packages
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def place(cloud: str | None) -> failures.Place:
    """Return where the settings of a cloud are made.

    :param cloud: name of the cloud in clouds.yaml, if one was given.
    """
    name = cloud or os.environ.get('OS_CLOUD')
    spellings = {'valid_interfaces': 'interface', 'cafile': 'cacert'}
    if name and name != 'envvars':
        return failures.Place(f"cloud '{name}' in clouds.yaml", spellings)
    if any(name in os.environ for name in _VARIABLES):
        return failures.Place('', spellings, prefix='OS_')
    return failures.Place('the cloud in clouds.yaml', spellings)


@contextlib.contextmanager
def read() -> Iterator[None]:
    """Turn what a reader of damaged answers raises into CloudError.

    :raises CloudError: an answer is not what the API describes, as that of a
        proxy.
    """
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise CloudError(
            f'an answer of the cloud cannot be read ({error!r}); is there a '
            'proxy before its API?'
        ) from error


def text(value: Any) -> str:
    """Return a text of an answer.

    :raises TypeError: it is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f'{value!r} is no text')
    return value


def count(value: Any) -> int:
    """Return a number of an answer.

    :raises TypeError: it is no integer.
    """
    if not isinstance(value, int):
        raise TypeError(f'{value!r} is no integer')
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the cloud."""
    parser.add_argument(
        '--os-cloud',
        metavar='NAME',
        help='cloud in clouds.yaml; without it the OS_* variables count',
    )


def connect(args: argparse.Namespace) -> Any:
    """Return an openstacksdk connection.

    :raises CloudError: the cloud is not configured, or not named where there
        are several.
    """
    # Imported here because it takes a second, which --help and offline use
    # do not need.
    import openstack

    from nova_vhpc.clients import credentials

    try:
        connection = openstack.connect(cloud=args.os_cloud)
    except Exception as error:
        # It passes on whatever a damaged clouds.yaml makes it raise.
        raise CloudError(
            'cannot connect to the cloud: '
            f'{failures.plain(error).rstrip(".")}; ' + _choice(args.os_cloud)
        ) from None
    credentials.keep_from_itself(connection.session.auth)
    return connection


def _choice(cloud: str | None) -> str:
    """Return what to change if there is no cloud to connect to."""
    from openstack import config

    try:
        names = set(config.OpenStackConfig().get_cloud_names())
    except Exception as error:
        return f'clouds.yaml is no mapping of clouds by name ({error})'
    name = cloud or os.environ.get('OS_CLOUD')
    if name in names:
        return f"change cloud '{name}' in clouds.yaml"
    if not name and any(name in os.environ for name in _VARIABLES):
        return 'change or set OS_AUTH_URL and the other OS_* variables'
    # Names that openstacksdk makes up.
    names -= {'envvars', 'defaults'}
    if names:
        return (
            'name one cloud of clouds.yaml by --os-cloud or OS_CLOUD: '
            + ', '.join(sorted(names))
        )
    return (
        'set OS_AUTH_URL and the other OS_* variables, or write a clouds.yaml '
        '(one that is not YAML is ignored)'
    )


def validating(connection: Any) -> None:
    """Have Nova validate the extra specs that it is sent, if it can.

    Nova does so from compute API microversion 2.86 on.
    """
    from openstack import utils

    compute = connection.compute
    if utils.supports_microversion(compute, MICROVERSION):
        compute.default_microversion = MICROVERSION


def find_flavor(connection: Any, name: str) -> Any:
    """Return a flavor with its extra specs.

    :param name: name or ID of the flavor.
    :raises CloudError: the flavor does not exist or is not visible, or the
        answer is not what the API describes.
    """
    with read():
        flavor = connection.compute.find_flavor(
            name, ignore_missing=True, get_extra_specs=True
        )
    if flavor is None:
        raise CloudError(
            f"no flavor '{name}': openstack flavor list --all has them all"
        )
    return flavor


def all_flavors(connection: Any) -> list[Any]:
    """Return all flavors with their extra specs.

    Those of single projects are among them for an administrator only.

    :raises CloudError: the answer is not what the API describes.
    """
    with read():
        return list(
            connection.compute.flavors(get_extra_specs=True, is_public='None')
        )


def _refused(status: int, adapter: Any) -> str:
    """Return what to do about an answer 401 or 403."""
    service = getattr(adapter, 'service_type', None) or 'cloud'
    if status == 401:
        return f'{service}: {failures.refusal(status, place(None))}'
    return (
        f'{service} does not let this user read the hosts of the cloud; only '
        'an administrator may: use credentials with the role admin, or ask '
        'the operator of the cloud'
    )


def get(adapter: Any, path: str, version: str | None) -> Any:
    """Return the decoded JSON answer to a GET request.

    :param adapter: keystoneauth adapter of the service.
    :param path: path and query of the request.
    :param version: microversion; None for a service without.
    :raises CloudError: the request failed or the answer is not JSON.
    """
    response = adapter.get(path, microversion=version)
    if response.status_code == 400 and 'CUSTOM_VHPC_' in response.text:
        raise NothingPublishedError(
            'Placement does not know what the flavor requests; no '
            'nova-vhpc-agent has published anything yet. It says: '
            + ' '.join(response.text.split())[:300]
        )
    if response.status_code in (401, 403):
        kind = RefusedError if response.status_code == 403 else CloudError
        raise kind(_refused(response.status_code, adapter))
    if response.status_code != 200:
        raise _KINDS.get(response.status_code, CloudError)(
            f'GET {path} was answered {response.status_code}: '
            f'{response.text[:200]}'
        )
    try:
        return response.json()
    except ValueError:
        raise CloudError(
            f'GET {path}: the answer is not JSON: {response.text[:200]}'
        ) from None
