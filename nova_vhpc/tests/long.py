# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How much a test does in each run, and how much in the nightly one.

``VHPC_LONG`` is set by the nightly run. The contributor's page on testing
lists all tests that differ.
"""

import os
from typing import TypeVar

T = TypeVar('T')


def long(often: T, nightly: T) -> T:
    """Return the value for this run.

    :param often: for each run.
    :param nightly: for the nightly run, which may take hours.
    """
    return nightly if os.environ.get('VHPC_LONG') else often
