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
