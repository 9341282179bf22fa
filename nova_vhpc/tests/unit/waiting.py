# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Wait for what other threads do, however busy the machine is."""

import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""Time after which what is waited for counts as hung, in seconds."""


def wait_for(condition: Callable[[], object], pause_s: float = 0.002) -> None:
    """Return when ``condition()`` is true.

    :param pause_s: time between two looks, in seconds.
    :raises AssertionError: it hangs.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f'not within {PATIENCE_S:.0f} s')
        time.sleep(pause_s)
