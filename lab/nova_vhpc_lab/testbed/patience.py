# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""How long tests, demo and soak wait for what must come."""

import os
import time
from collections.abc import Callable
from typing import Any

VARIABLE = 'VHPC_PATIENCE'
"""Environment variable with how many times as long to wait."""


def _times() -> float:
    """Return how many times as long to wait.

    :raises SystemExit: the variable is no number from 0.1 to 1000.
    """
    text = os.environ.get(VARIABLE, '').strip()
    try:
        times = float(text or 1)
    except ValueError:
        times = 0.0
    if not 0.1 <= times <= 1000:
        raise SystemExit(f"{VARIABLE}: '{text}' is no number from 0.1 to 1000")
    return times


TIMES = _times()

PATIENCE_S = 300.0 * TIMES
"""Time after which what is waited for counts as hung, in seconds.

Emulated guests and a whole cloud may share two CPUs with other jobs.
"""


class TooLongError(TimeoutError):
    """Something did not come in time; the text says how busy the machine is.

    :param what: what was waited for.
    :param timeout_s: for how long.
    """

    def __init__(self, what: str, timeout_s: float = PATIENCE_S) -> None:
        load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
        busy = ', which is busy' if load > 1.5 * cpus else ''
        super().__init__(
            f'{what}: not within {timeout_s:.0f} s on this machine{busy} '
            f'(load {load:.1f} on {cpus} CPUs); {VARIABLE}={4 * TIMES:g} '
            'waits longer'
        )


def wait(
    what: str,
    condition: Callable[[], Any],
    timeout_s: float = PATIENCE_S,
    pause_s: float = 0.2,
) -> Any:
    """Wait until a condition is true, and return its value.

    :param what: description of the condition, for the error.
    :param pause_s: time between two calls, in seconds.
    :raises TooLongError: if it is not true within the time.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TooLongError(what, timeout_s)
        time.sleep(pause_s)
    return value
