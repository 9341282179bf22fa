# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The newest shares are written in the end, without waiting for them."""

import threading
import time
from unittest import mock

from nova_vhpc.agent.actuators import share_writer
from nova_vhpc.tests import base as tests_base
from nova_vhpc.tests.unit import waiting


class Gate:
    """A ``set_shares`` that hangs for some VMs until it is released."""

    def __init__(self, *hanging: str) -> None:
        self.hanging = hanging
        self.begun = threading.Event()
        self.release = threading.Event()
        self.writes: list[tuple[str, int]] = []
        self.refused: set[str] = set()
        self.held: set[str] = set()
        self.places: list[tuple[str, tuple[int, ...]]] = []
        self.unplaceable: set[str] = set()

    def place(self, uuid: str, cpus: tuple[int, ...]) -> bool:
        """Note where a VM is to run; refuse some VMs."""
        self.places.append((uuid, cpus))
        if uuid in self.unplaceable:
            raise OSError('refused')
        return True

    def __call__(self, uuid: str, value: int) -> bool:
        if uuid in self.hanging and not self.release.is_set():
            self.begun.set()
            self.release.wait(waiting.PATIENCE_S)
        self.writes.append((uuid, value))
        if uuid in self.refused:
            raise OSError('refused')
        return uuid not in self.held


class ShareWriterTestCase(tests_base.TestCase):
    def make(self, *hanging: str) -> share_writer.ShareWriter:
        self.gate = Gate(*hanging)
        self.addCleanup(self.gate.release.set)
        return share_writer.ShareWriter(self.gate, self.gate.place)


class TestShareWriter(ShareWriterTestCase):
    def test_guest_left_alone_is_written_later(self) -> None:
        writer = self.make()
        for held in ({'a'}, set()):
            self.gate.held = held
            done = threading.Event()
            writer.submit({'a': 5, 'b': 6}, {}, done.set)
            self.assertTrue(done.wait(waiting.PATIENCE_S))
        self.assertEqual(2, self.gate.writes.count(('a', 5)))
        self.assertEqual(1, self.gate.writes.count(('b', 6)))
        self.assertEqual(frozenset(), writer.failing())
        # A guest that is still left alone does not delay the close.
        self.gate.held = {'a', 'b'}
        writer.leave({'a': 1, 'b': 1})
        self.assertTrue(writer.close(waiting.PATIENCE_S))

    def test_done_is_called_after_the_last_write(self) -> None:
        writer = self.make('a')
        done = threading.Event()
        writer.submit({'a': 7, 'b': 8}, {}, done.set)
        self.assertTrue(self.gate.begun.wait(waiting.PATIENCE_S))
        self.assertFalse(done.is_set())
        self.gate.release.set()
        self.assertTrue(done.wait(waiting.PATIENCE_S))
        self.assertEqual({('a', 7), ('b', 8)}, set(self.gate.writes))

    def test_done_is_called_at_once_if_nothing_changes(self) -> None:
        writer = self.make()
        for _ in range(2):
            done = threading.Event()
            writer.submit({'a': 7}, {}, done.set)
            self.assertTrue(done.wait(waiting.PATIENCE_S))
        self.assertEqual([('a', 7)], self.gate.writes)

    def test_hanging_guest_delays_done_only_once(self) -> None:
        writer = self.make('a')
        first, second = threading.Event(), threading.Event()
        writer.submit({'a': 7, 'b': 8}, {}, first.set)
        self.assertTrue(self.gate.begun.wait(waiting.PATIENCE_S))
        writer.submit({'a': 1, 'b': 2}, {}, second.set)
        self.assertTrue(second.wait(waiting.PATIENCE_S))
        self.assertFalse(first.is_set())

    def test_only_the_newest_shares_are_written_after_a_hang(self) -> None:
        writer = self.make('a')
        writer.submit({'a': 7}, {})
        self.assertTrue(self.gate.begun.wait(waiting.PATIENCE_S))
        writer.submit({'a': 8}, {})
        writer.leave({'a': 1024})
        self.gate.release.set()
        self.assertTrue(writer.close(waiting.PATIENCE_S))
        self.assertEqual([('a', 7), ('a', 1024)], self.gate.writes)

    def test_failed_write_is_retried_without_a_call(self) -> None:
        writer = self.make()
        done = threading.Event()
        self.gate.refused = {'a'}
        writer.submit({'a': 7}, {}, done.set)
        self.assertTrue(done.wait(waiting.PATIENCE_S))
        self.assertEqual({'a'}, writer.failing())
        self.gate.hanging = ('a',)
        self.assertTrue(self.gate.begun.wait(waiting.PATIENCE_S))
        self.gate.refused = set()
        writer.leave({'a': 1024})
        self.gate.release.set()
        self.assertTrue(writer.close(waiting.PATIENCE_S))
        self.assertEqual(('a', 1024), self.gate.writes[-1])

    def test_warning_is_logged_from_the_second_failure(self) -> None:
        """A single failure mostly means that another call takes long."""
        for failures, is_logged in ((1, False), (2, True)):
            answers = [OSError('busy')] * failures + [True]
            writer = share_writer.ShareWriter(
                mock.Mock(side_effect=answers), mock.Mock()
            )
            with mock.patch.object(share_writer, 'LOG') as log:
                writer.submit({'a': 7}, {})
                while writer.writes < len(answers):
                    writer.maintain()
                    time.sleep(0.001)
                writer.close(waiting.PATIENCE_S)
            self.assertEqual(failures, writer.failures)
            self.assertEqual(is_logged, log.warning.called)
            self.assertEqual(is_logged, log.info.called)

    def test_close_is_false_if_a_write_failed(self) -> None:
        writer = self.make()
        writer.submit({'a': 7, 'b': 7}, {})
        self.gate.refused = {'a'}
        writer.leave({'a': 1024, 'b': 1024})
        self.assertFalse(writer.close(waiting.PATIENCE_S))
        self.assertIn(('b', 1024), self.gate.writes)

    def test_leave_does_not_write_an_unknown_guest(self) -> None:
        writer = self.make()
        writer.leave({'a': 1024})
        self.assertTrue(writer.close(waiting.PATIENCE_S))
        self.assertEqual([], self.gate.writes)

    def test_missing_thread_is_logged_once_and_retried(self) -> None:
        writer = self.make()
        with (
            mock.patch.object(
                threading.Thread, 'start', side_effect=RuntimeError('no more')
            ),
            self.assertLogs(share_writer.LOG, 'ERROR') as logs,
        ):
            for value in range(5, 8):
                writer.submit({'a': value}, {})
            self.assertFalse(writer.close(0.01))
        self.assertEqual(1, len(logs.output), logs.output)
        writer = share_writer.ShareWriter(self.gate, self.gate.place)
        done = threading.Event()
        writer.submit({'a': 9}, {}, done.set)
        self.assertTrue(done.wait(waiting.PATIENCE_S))

    def test_threads_are_bounded(self) -> None:
        names = [f'vm{number}' for number in range(12)]
        writer = self.make(*names)
        with (
            mock.patch.object(share_writer, 'MOST_HELPERS', 6),
            mock.patch.object(share_writer, 'HELD_S', 0.0),
            self.assertLogs(share_writer.LOG, 'ERROR') as logs,
        ):
            end_s = time.monotonic() + waiting.PATIENCE_S
            value = 0
            while not logs.output and time.monotonic() < end_s:
                # Until as many calls hang as there may be threads.
                value += 1
                writer.submit(dict.fromkeys(names, value), {})
                time.sleep(0.001)
            for more in range(100):
                writer.submit(dict.fromkeys(names, value + more), {})
        self.assertEqual(6, writer._executor._threads)
        self.assertEqual(1, len(logs.output), logs.output)
        self.gate.release.set()
        writer.leave(dict.fromkeys(names, 1024))
        self.assertTrue(writer.close(waiting.PATIENCE_S))
        self.assertEqual(dict.fromkeys(names, 1024), dict(self.gate.writes))


class TestPlaces(ShareWriterTestCase):
    """CPUs are set together with the shares."""

    def submit(
        self,
        writer: share_writer.ShareWriter,
        shares: dict[str, int],
        cpus: dict[str, tuple[int, ...]],
    ) -> None:
        """Set shares and CPUs, and wait until they are in force."""
        done = threading.Event()
        writer.submit(shares, cpus, done.set)
        self.assertTrue(done.wait(waiting.PATIENCE_S))

    def test_guest_is_placed_after_its_shares_are_written(self) -> None:
        writer = self.make()
        self.submit(writer, {'a': 7, 'b': 8}, {'a': (0, 1)})
        self.assertEqual([('a', (0, 1))], self.gate.places)
        self.assertEqual({('a', 7), ('b', 8)}, set(self.gate.writes))

    def test_guest_is_placed_only_on_other_cpus(self) -> None:
        """Without CPUs in a turn, it stays where it is."""
        writer = self.make()
        for shares, cpus in ((7, (0, 1)), (8, (0, 1)), (2, ()), (7, (0, 1))):
            self.submit(writer, {'a': shares}, {'a': cpus} if cpus else {})
        self.assertEqual([('a', (0, 1))], self.gate.places)
        self.submit(writer, {'a': 7}, {'a': (2, 3)})
        self.assertEqual(('a', (2, 3)), self.gate.places[-1])

    def test_guest_that_leaves_may_run_where_its_pins_allow(self) -> None:
        writer = self.make()
        self.submit(writer, {'a': 7, 'b': 7}, {'a': (0, 1)})
        writer.leave({'a': 1024, 'b': 1024})
        self.assertTrue(writer.close(waiting.PATIENCE_S))
        # A guest that was never placed is left as it is.
        self.assertEqual([('a', (0, 1)), ('a', ())], self.gate.places)

    def test_guest_is_placed_again_if_that_failed(self) -> None:
        writer = self.make()
        self.gate.unplaceable = {'a'}
        self.submit(writer, {'a': 7}, {'a': (0, 1)})
        self.assertEqual({'a'}, writer.failing())
        self.gate.unplaceable = set()
        waiting.wait_for(lambda: not writer.failing())
        self.assertEqual([('a', (0, 1))] * 2, self.gate.places)

    def test_guest_left_alone_is_not_placed(self) -> None:
        writer = self.make()
        self.gate.held = {'a'}
        self.submit(writer, {'a': 7}, {'a': (0, 1)})
        self.assertEqual([], self.gate.places)
        self.gate.held = set()
        self.submit(writer, {'a': 7}, {'a': (0, 1)})
        self.assertEqual([('a', (0, 1))], self.gate.places)

    def test_forgotten_guest_is_placed_again(self) -> None:
        writer = self.make()
        self.submit(writer, {'a': 7}, {'a': (0, 1)})
        writer.forget_written('a')
        self.submit(writer, {'a': 7}, {'a': (0, 1)})
        self.assertEqual([('a', (0, 1))] * 2, self.gate.places)
