# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Plugin of the ``openstack`` client: the commands ``openstack vhpc ...``.

The client imports this module by the entry point group
``openstack.cli.extension``. Its commands are the entry points of the group
``openstack.vhpc.v1``, and are imported only when they run.
"""

import argparse
from typing import Any

API_NAME = 'vhpc'
API_VERSION_OPTION = 'os_vhpc_api_version'
API_VERSIONS = {'1': 'nova_vhpc.cli.plugin'}
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
