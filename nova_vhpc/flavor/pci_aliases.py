# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""PCI devices that a flavor requests by alias."""

import re
from collections.abc import Mapping

from nova_vhpc.flavor.request_groups import ALIAS

_COUNT = re.compile(r'\s*\d+\s*')
"""A count as Nova reads it: any decimal digits, but no other numerals."""


def devices(specs: Mapping[str, str]) -> int:
    """Return the number of PCI devices of one member.

    An item that cannot be read counts as no device.

    :param specs: all extra specs of the flavor.
    """
    return sum(count for _, count in counts(specs))


def counts(specs: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return alias and number of devices of each item that can be read.

    :param specs: all extra specs of the flavor.
    """
    items = (item.partition(':') for item in _items(specs))
    return [
        (name.strip(), int(count))
        for name, _, count in items
        if _COUNT.fullmatch(count)
    ]


def problems(specs: Mapping[str, str]) -> list[str]:
    """Return why Nova or the filter refuses the aliases of a flavor."""
    found = []
    for item in _items(specs):
        name, _, count = item.partition(':')
        if not name.strip() or not _COUNT.fullmatch(count):
            found.append(
                f"{ALIAS}: '{item.strip()}' is not NAME:COUNT, with a whole "
                'number of devices'
            )
    if ALIAS in specs and not found and not devices(specs):
        found.append(
            f'{ALIAS}={specs[ALIAS]} asks for no device at all: '
            'vhpc:network=exported needs one at least'
        )
    return found


def _items(specs: Mapping[str, str]) -> list[str]:
    return specs[ALIAS].split(',') if ALIAS in specs else []
