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

"""Ending parts that talk to services which may not answer."""

import threading
import time
from collections.abc import Iterable
from typing import Any


def stop_all(parts: Iterable[Any], end_s: float) -> list[threading.Thread]:
    """Call ``stop()`` of all parts, all at the same time.

    They run in daemon threads: who is not done in time ends with us.

    :param end_s: when to wait no more, by the monotonic clock.
    :returns: the threads of those that are not done yet.
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

    :returns: those that still run.
    """
    left = []
    for thread in threads:
        thread.join(max(0.05, end_s - time.monotonic()))
        if thread.is_alive():
            left.append(thread)
    return left
