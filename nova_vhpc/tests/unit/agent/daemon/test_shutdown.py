# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.daemon.shutdown`."""

import threading
import time
import types

from oslotest import base

from nova_vhpc.agent.daemon import shutdown


class TestShutdown(base.BaseTestCase):
    def test_parts_are_stopped_at_the_same_time(self) -> None:
        both = threading.Barrier(2, timeout=60)
        part = types.SimpleNamespace(stop=both.wait)
        left = shutdown.stop_all((part, part), time.monotonic() + 60)
        self.assertEqual([], left)
        self.assertFalse(both.broken)

    def test_part_that_hangs_is_returned_as_running(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)
        left = shutdown.stop_all((types.SimpleNamespace(stop=go.wait),), 0.0)
        self.assertFalse(go.is_set())
        self.assertEqual(left, shutdown.join_all(left, 0.0))
        go.set()
        self.assertEqual([], shutdown.join_all(left, time.monotonic() + 60))
