# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Shorten values of any type for messages."""


def short(value: object) -> str:
    """Return at most 40 characters of a value's text."""
    try:
        return str(value)[:40]
    except ValueError:
        # Python refuses to print whole numbers of thousands of digits.
        return 'a huge number of'
