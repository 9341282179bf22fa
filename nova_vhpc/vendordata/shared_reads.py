# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Let threads that want the same at the same time share one read.

A cache alone does not help them: until the first read has ended, each of them
finds nothing in it.
"""

import concurrent.futures
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar('Value')


class SharedReads(Generic[Value]):
    """The reads that are under way, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, concurrent.futures.Future[Value]] = {}

    def get(self, key: Hashable, read: Callable[[], Value]) -> Value:
        """Return what a read returns that is under way, or else a new one.

        A read that is under way may have begun before the caller knew of
        what it wants to read.

        :param key: equal for callers that want the same.
        :param read: reads, in the thread of the first caller.
        :raises Exception: what the read raised, in all threads.
        """
        with self._lock:
            future = self._under_way.get(key)
            is_first = future is None
            if future is None:
                future = self._under_way[key] = concurrent.futures.Future()
        if is_first:
            try:
                future.set_result(read())
            except BaseException as error:
                future.set_exception(error)
            finally:
                with self._lock:
                    del self._under_way[key]
        return future.result()
