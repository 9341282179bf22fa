# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""``nova-vhpc-flavor check``: find flavors whose extra specs are wrong.

Nova validates extra specs from microversion 2.86 on. A client that asks for
an older one, as ``openstack`` does by default, can write wrong ones.
"""

import argparse
from typing import Any

from nova_vhpc.clients import openstack
from nova_vhpc.cmd import output
from nova_vhpc.flavor import validation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`run` reads."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        '--all',
        action='store_true',
        help='all flavors of the cloud, also those of single projects',
    )
    which.add_argument(
        'flavors',
        nargs='*',
        default=[],
        metavar='flavor',
        help='name or id',
    )
    parser.add_argument('--json', action='store_true', help='print JSON')


def run(args: argparse.Namespace, connection: Any) -> int:
    """Print what is wrong with flavors.

    :returns: exit code: 1 if a flavor is wrong.
    """
    if args.all:
        flavors = openstack.all_flavors(connection)
    else:
        flavors = [openstack.find_flavor(connection, f) for f in args.flavors]
    specs = {flavor.name: dict(flavor.extra_specs) for flavor in flavors}
    wrong = validation.problems_of_all(specs)
    if args.json:
        output.print_json({'checked': len(specs), 'problems': wrong})
        return 1 if wrong else 0
    for name, problems in wrong.items():
        for problem in problems:
            print(f'Flavor {name}: {problem}')
    print(f'Checked {len(specs)} flavors, {len(wrong)} are wrong.')
    return 1 if wrong else 0
