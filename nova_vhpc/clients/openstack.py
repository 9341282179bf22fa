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


"""How the console scripts reach a cloud: clouds.yaml or OS_* variables."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

MICROVERSION = '2.86'
"""From here on Nova checks extra specs against our validators."""


class CloudError(Exception):
    """The cloud cannot be reached, or does not have what was named."""


class UnknownNameError(CloudError):
    """Placement refuses a question, as for a name that it does not know."""


class GoneError(CloudError):
    """What was asked for does not exist, or does not any more."""


class NothingPublishedError(UnknownNameError):
    """Placement does not even know the names of what agents publish."""


_KINDS = {400: UnknownNameError, 404: GoneError}


@contextlib.contextmanager
def asked() -> Iterator[None]:
    """Whatever the cloud's client libraries complain of is a CloudError.

    They raise dozens of classes, of which a caller can mend none.
    """
    try:
        yield
    except Exception as error:
        package = type(error).__module__.partition('.')[0]
        if package not in ('openstack', 'keystoneauth1'):
            raise
        text = ' '.join(str(error).split())
        raise CloudError(f'the cloud says: {text}') from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that name the cloud."""
    parser.add_argument(
        '--os-cloud',
        metavar='NAME',
        help='cloud in clouds.yaml; without it the OS_* variables count',
    )


def connect(args: argparse.Namespace) -> Any:
    """An openstacksdk connection.

    :raises CloudError: if the cloud is not configured.
    """
    # Imported late: it takes a second, and --help and offline use do
    # without.
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
    """Make Nova check what is written, if it can."""
    from openstack import utils

    compute = connection.compute
    if utils.supports_microversion(compute, MICROVERSION):
        compute.default_microversion = MICROVERSION


def find_flavor(connection: Any, name: str) -> Any:
    """A flavor by name or id, with its extra specs.

    :raises CloudError: if there is none, or it may not be seen.
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
    """One answer, decoded.

    :raises CloudError: if it is none.
    """
    response = adapter.get(path, microversion=version)
    if response.status_code == 400 and 'CUSTOM_VHPC_' in response.text:
        raise NothingPublishedError(
            'Placement does not know what the flavor claims; no '
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
            f'GET {path} was answered with no JSON: {response.text[:200]}'
        ) from None
