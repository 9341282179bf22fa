# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Numbers that can have been measured, or can be asked for."""

MAX = 1e15
"""Greater than anything that is measured or set, in any unit."""


def is_measurable(value: object) -> bool:
    """Return whether a value is a number from 0 to :data:`MAX`."""
    # A comparison with NaN is false.
    return isinstance(value, int | float) and 0 <= value <= MAX


def is_slice(value: object) -> bool:
    """Return whether a value is a time slice, in microseconds.

    libvirt takes whole numbers only.
    """
    return type(value) is int and 0 < value <= MAX
