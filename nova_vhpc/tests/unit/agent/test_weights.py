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

"""Weights are written at once, by the windows' own threads."""

import threading
from unittest import mock

from nova_vhpc.agent import cputune
from nova_vhpc.tests.unit.agent import test_writer


class TestWeights(test_writer.WriterCase):
    def test_a_weight_is_written_at_once(self) -> None:
        self.writer.set_shares('u', 7)
        self.assertEqual(7, self.domain.values[cputune.SHARES])
        self.assertIsNotNone(self.journal.load('u'))
        self.assertEqual({7}, self.target.shares_ours)
        self.writer.set_shares('gone', 7)

    def test_a_weight_that_somebody_else_has_taken_over(self) -> None:
        self.target.released = frozenset({cputune.SHARES})
        self.writer.set_shares('u', 7)
        self.assertEqual(1024, self.domain.values[cputune.SHARES])

    def test_a_weight_over_theirs_that_nobody_has_looked_at(self) -> None:
        self.target.shares_theirs = 333
        self.assertFalse(self.writer.set_shares('u', 7))
        self.assertEqual(1024, self.domain.values[cputune.SHARES])

    def test_a_weight_does_not_wait_for_long(self) -> None:
        with self.target.lock:
            self.assertRaises(TimeoutError, self.writer.set_shares, 'u', 7)

    def hang(self) -> threading.Event:
        """Have libvirt not return from a write of the VM's weight."""
        begun, release = threading.Event(), threading.Event()
        self.addCleanup(release.set)
        write = self.domain.setSchedulerParametersFlags

        def set_slowly(values: dict[str, int], flags: int) -> None:
            begun.set()
            release.wait(30)
            write(values, flags)

        self.domain.setSchedulerParametersFlags = set_slowly
        self.thread = threading.Thread(
            target=self.writer.set_shares, args=('u', 7), daemon=True
        )
        self.thread.start()
        self.assertTrue(begun.wait(30))
        return release

    def test_a_weight_that_hangs_is_late(self) -> None:
        self.deadline = 0.0
        release = self.hang()
        self.pool.watch()
        self.assertEqual(1, self.troubles.late_calls)
        self.assertTrue(self.target.quarantined)
        # It must not hold another of the windows' threads.
        self.assertRaisesRegex(
            TimeoutError, 'hangs', self.writer.set_shares, 'u', 8
        )
        release.set()
        self.thread.join(30)
        self.assertFalse(self.target.quarantined)
        self.writer.set_shares('u', 8)
        self.assertEqual(8, self.domain.values[cputune.SHARES])

    def test_a_weight_that_waited_until_the_end(self) -> None:
        """What is put back meanwhile must not be written after it."""
        self.target.lock = mock.MagicMock()
        self.target.lock.acquire.side_effect = lambda timeout: (
            self.gate.ending.set() or True
        )
        self.writer.set_shares('u', 7)
        self.assertEqual(1024, self.domain.values[cputune.SHARES])
        self.target.lock.release.assert_called_once_with()
