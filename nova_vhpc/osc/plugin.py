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

"""Plugin of the ``openstack`` client: the commands ``openstack vhpc ...``.

The client imports this module by the entry point group
``openstack.cli.extension``. Its commands are the entry points of the group
``openstack.vhpc.v1``, and are imported only when they run.
"""

import argparse
from typing import Any

API_NAME = 'vhpc'
API_VERSION_OPTION = 'os_vhpc_api_version'
API_VERSIONS = {'1': 'nova_vhpc.osc.plugin'}
DEFAULT_API_VERSION = '1'


def make_client(instance: Any) -> Any:
    """Return the openstacksdk connection of the ``openstack`` client.

    The commands have no client of their own, so that one login serves all.

    :param instance: the client manager.
    """
    return instance.sdk_connection


def build_option_parser(
    parser: argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """Add the global option that chooses the version of the commands."""
    parser.add_argument(
        '--os-vhpc-api-version',
        metavar='<version>',
        default=DEFAULT_API_VERSION,
        help='version of the vhpc commands; only 1 exists '
        '(default: %(default)s)',
    )
    return parser
