# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.vendordata.nova.SharedReads`."""

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc.vendordata import nova

_PATIENCE_S = 60.0


@contextlib.contextmanager
def waiting_threads() -> Iterator[threading.Semaphore]:
    """Have a semaphore released by each thread that waits for a read."""
    waiting = threading.Semaphore(0)
    result = concurrent.futures.Future.result

    def noted(future, timeout=None):
        waiting.release()
        return result(future, timeout)

    with mock.patch.object(concurrent.futures.Future, 'result', noted):
        yield waiting


class SharedReadsTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.reads: nova.SharedReads[str] = nova.SharedReads()
        self.outcomes: list[object] = []

    def get(self, read: Callable[[], str]) -> threading.Thread:
        """Start a thread that reads."""

        def run() -> None:
            try:
                self.outcomes.append(self.reads.get('key', read))
            except Exception as error:
                self.outcomes.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def share(self, read: Callable[[], str]) -> list[object]:
        """Return what three threads get of one read, which comes last."""
        under_way, may_end = threading.Event(), threading.Event()

        def first() -> str:
            under_way.set()
            may_end.wait(_PATIENCE_S)
            return read()

        with waiting_threads() as waiting:
            threads = [self.get(first)]
            self.assertTrue(under_way.wait(_PATIENCE_S))
            for _ in range(2):
                threads.append(self.get(lambda: 'another read'))
                self.assertTrue(waiting.acquire(timeout=_PATIENCE_S))
            may_end.set()
            for thread in threads:
                thread.join(_PATIENCE_S)
        return self.outcomes

    def test_threads_share_the_read_that_is_under_way(self) -> None:
        self.assertEqual(['value'] * 3, self.share(lambda: 'value'))

    def test_threads_share_the_error_of_a_read(self) -> None:
        error = RuntimeError('Nova is away')
        self.assertEqual([error] * 3, self.share(mock.Mock(side_effect=error)))

    def test_read_after_another_one_is_a_new_one(self) -> None:
        read = mock.Mock(side_effect=[ValueError('x'), 'one', 'two'])
        self.assertRaises(ValueError, self.reads.get, 'key', read)
        self.assertEqual('one', self.reads.get('key', read))
        self.assertEqual('two', self.reads.get('key', read))

    def test_reads_of_other_keys_do_not_wait(self) -> None:
        outer = self.reads.get(
            'a', lambda: self.reads.get('b', lambda: 'inner')
        )
        self.assertEqual('inner', outer)
