# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Connect console scripts to a cloud by clouds.yaml or OS_* variables."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

MICROVERSION = '2.86'
"""First microversion with which Nova checks extra specs by validators."""


class CloudError(Exception):
    """The cloud is not reachable, or does not have the named object."""


class UnknownNameError(CloudError):
    """Placement refused a query (HTTP 400), as for an unknown name."""


class GoneError(CloudError):
    """The requested object does not exist (HTTP 404)."""


class NothingPublishedError(UnknownNameError):
    """Placement does not know the resource classes that agents create."""


_KINDS = {400: UnknownNameError, 404: GoneError}


@contextlib.contextmanager
def asked() -> Iterator[None]:
    """Turn exceptions of the cloud's client libraries into CloudError.

    The libraries raise dozens of classes, and a caller can only report them.

    :raises CloudError: openstacksdk or keystoneauth raised an exception.
    """
    try:
        yield
    except Exception as error:
        package = type(error).__module__.partition('.')[0]
        if package not in ('openstack', 'keystoneauth1'):
            raise
        text = ' '.join(str(error).split())
        raise CloudError(f'the cloud says: {text}') from None


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

    :raises CloudError: the cloud is not configured.
    """
    # Imported here because it takes a second, which --help and offline use
    # do not need.
    import keystoneauth1.exceptions
    import openstack
    import openstack.exceptions

    from nova_vhpc.clients import credentials

    try:
        connection = openstack.connect(cloud=args.os_cloud)
    except (
        openstack.exceptions.SDKException,
        keystoneauth1.exceptions.ClientException,
    ) as error:
        raise CloudError(
            f'cannot connect to the cloud: {error}; set OS_CLOUD or the '
            'OS_* variables'
        ) from None
    credentials.keep_from_itself(connection.session.auth)
    return connection


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
    :raises CloudError: the flavor does not exist or is not visible.
    """
    flavor = connection.compute.find_flavor(
        name, ignore_missing=True, get_extra_specs=True
    )
    if flavor is None:
        raise CloudError(
            f"no flavor '{name}': openstack flavor list --all has them all"
        )
    return flavor


def get(adapter: Any, path: str, version: str) -> Any:
    """Return the decoded JSON answer to a GET request.

    :param adapter: keystoneauth adapter of the service.
    :param path: path and query of the request.
    :param version: microversion.
    :raises CloudError: the request failed or the answer is not JSON.
    """
    response = adapter.get(path, microversion=version)
    if response.status_code == 400 and 'CUSTOM_VHPC_' in response.text:
        raise NothingPublishedError(
            'Placement does not know what the flavor requests; no '
            'nova-vhpc-agent has published anything yet. It says: '
            + ' '.join(response.text.split())[:300]
        )
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
