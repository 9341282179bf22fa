# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Stops parts of the agent that wait for services which may not answer."""

import threading
import time
from collections.abc import Iterable
from typing import Any


def stop_all(parts: Iterable[Any], end_s: float) -> list[threading.Thread]:
    """Call ``stop()`` of all parts, each in a thread.

    The threads are daemon threads: one that is still running when the
    process exits ends with it.

    :param parts: parts of the agent that have a method ``stop``.
    :param end_s: deadline on the monotonic clock, in seconds.
    :returns: the threads that are still running.
    """
    threads = [
        threading.Thread(target=part.stop, daemon=True) for part in parts
    ]
    for thread in threads:
        thread.start()
    return join_all(threads, end_s)


def join_all(
    threads: Iterable[threading.Thread], end_s: float
) -> list[threading.Thread]:
    """Wait for threads.

    :param end_s: deadline on the monotonic clock, in seconds.
    :returns: the threads that are still running.
    """
    running = []
    for thread in threads:
        thread.join(max(0.05, end_s - time.monotonic()))
        if thread.is_alive():
            running.append(thread)
    return running
