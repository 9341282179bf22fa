# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Windows are written while libvirt is slow, unless the guest is held."""

import contextlib
import os
import pathlib
import random
import threading
import time

import fixtures

from nova_vhpc.agent.actuators import weights
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

WEIGHTS = (20, 40_960, 7)
PINS = tuple(
    model.CpuTune(vcpu_pins=(frozenset({cpu}), frozenset({1 - cpu})))
    for cpu in (0, 1)
)


class GroupFile(type(pathlib.Path())):  # type: ignore[misc]
    """A file that is never read half written, like those of the kernel."""

    def write_text(self, text: str) -> None:
        draft = f'{self}.{threading.get_ident()}'
        with open(draft, 'w') as file:
            file.write(text)
        os.replace(draft, self)


class SlowDomain(fake_libvirt.Domain):
    """A domain with its weight in a file, whose libvirt calls take long.

    :ivar answering: while cleared, calls about the cputune hang.
    :ivar hanging: set while a call hangs.
    :ivar slow_s: longest duration of the other calls, in seconds.
    """

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.path = path
        self.slow_s = 0.0
        self.answering = threading.Event()
        self.answering.set()
        self.hanging = threading.Event()

    def _wait(self) -> None:
        if not self.answering.is_set():
            self.hanging.set()
        time.sleep(random.random() * self.slow_s)
        self.answering.wait(manager_case.PATIENCE_S)

    def schedulerParametersFlags(self, flags: int) -> dict[str, int]:
        self._wait()
        self.values[cputune.SHARES] = int(self.path.read_text())
        return super().schedulerParametersFlags(flags)

    def setSchedulerParametersFlags(
        self, values: dict[str, int], flags: int
    ) -> None:
        super().setSchedulerParametersFlags(values, flags)
        self._wait()
        if cputune.SHARES in values:
            self.path.write_text(str(values[cputune.SHARES]))

    def vcpuPinInfo(self, flags: int) -> list[tuple[bool, ...]]:
        self._wait()
        return super().vcpuPinInfo(flags)


class FreeWeightsCase(manager_case.ManagerTestCase):
    """Has a guest for which each window's weight was written once."""

    domain: SlowDomain

    def setUp(self) -> None:
        super().setUp()
        self.path = GroupFile(self.state, 'cpu.shares')
        self.path.write_text('1024')
        self.domain = SlowDomain(self.path)
        self.addCleanup(self.domain.answering.set)
        self.manager = self.make()
        self.useFixture(
            fixtures.MonkeyPatch(
                'nova_vhpc.agent.actuators.weights._find',
                lambda vm, host: self.path,
            )
        )
        self.target = self.look()
        for shares in WEIGHTS:
            self.assertTrue(self.manager.set_shares('u', shares))

    def weight(self) -> int:
        return int(self.path.read_text())

    def hang(self) -> None:
        """Make the next call of a worker hang."""
        self.domain.answering.clear()

    def until_it_hangs(self) -> None:
        self.assertTrue(self.domain.hanging.wait(manager_case.PATIENCE_S))
        self.assertTrue(self.target.lock.locked())


class TestSlowLibvirt(FreeWeightsCase):
    def assert_played(self) -> None:
        for shares in WEIGHTS:
            self.assertTrue(self.manager.set_shares('u', shares))
            self.assertEqual(shares, self.weight())
            self.assertEqual(shares, self.target.in_force.shares)

    def test_windows_are_written_during_a_slow_reconcile(self) -> None:
        self.hang()
        self.manager.enqueue('u')
        self.until_it_hangs()
        self.assert_played()
        self.domain.answering.set()
        self.drain()
        self.assertEqual(frozenset(), self.target.external)
        self.assertEqual(0, self.manager.external_changes)
        self.assertEqual(7, self.target.in_force.shares)

    def test_windows_are_written_during_a_slow_write_of_pins(self) -> None:
        self.hang()
        self.domain.refuse = self.domain._wait
        self.manager.write(self.target, PINS[0])
        self.until_it_hangs()
        self.assert_played()
        self.domain.answering.set()
        self.drain()
        self.assertEqual(PINS[0].vcpu_pins, self.target.in_force.vcpu_pins)
        self.assertEqual(7, self.target.in_force.shares)

    def test_weight_that_is_not_journalled_waits_for_the_lock(self) -> None:
        with self.target.lock:
            self.assertRaises(TimeoutError, self.manager.set_shares, 'u', 8)
        self.assertEqual(7, self.weight())
        self.assertTrue(self.manager.set_shares('u', 8))

    def test_no_window_is_written_during_a_restore(self) -> None:
        """Not even if the reason for the restore has ended meanwhile."""
        self.hang()
        self.manager.pause()
        self.until_it_hangs()
        self.manager.resume()
        self.assertRaises(TimeoutError, self.manager.set_shares, 'u', 20)
        self.domain.answering.set()
        self.drain()
        self.assertEqual(1024, self.weight())
        self.assert_put_back()

    def test_no_window_is_written_while_libvirt_writes_a_weight(self) -> None:
        """It would be unknown which of the two weights is in force."""
        self.hang()
        self.manager.write(self.target, model.CpuTune(shares=1024))
        self.until_it_hangs()
        self.assertRaises(TimeoutError, self.manager.set_shares, 'u', 20)
        self.domain.answering.set()
        self.drain()
        self.assertEqual(1024, self.weight())
        self.assertEqual(1024, self.target.in_force.shares)

    def test_no_window_is_written_if_a_pause_begins_meanwhile(self) -> None:
        made, lock = self.manager, self.target.state_lock

        class Closing:
            def __enter__(self) -> None:
                made._context.permission.paused = True
                lock.acquire()

            def __exit__(self, *args: object) -> None:
                lock.release()

        self.target.state_lock = Closing()
        self.assertFalse(self.manager.set_shares('u', 20))
        self.assertEqual(7, self.weight())

    def test_vanished_weight_file_is_not_used_again(self) -> None:
        self.path.unlink()
        self.path.mkdir()
        with self.target.lock:
            self.assertRaises(TimeoutError, self.manager.set_shares, 'u', 20)
        self.assertFalse(self.target.uses_weight_file)

    def test_no_window_is_written_during_a_migration(self) -> None:
        self.target.holds.add(guest.Hold.MIGRATING)
        weights.restore_by_file(self.target, self.manager._context.processes)
        self.assertFalse(self.manager.set_shares('u', 20))
        self.assertEqual(1024, self.weight())

    def test_restore_before_migration_waits_for_a_windows_write(self) -> None:
        began, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        write = GroupFile.write_text

        def write_slowly(path: GroupFile, text: str) -> None:
            if text == '20':
                began.set()
                go_on.wait(manager_case.PATIENCE_S)
            write(path, text)

        self.useFixture(
            fixtures.MonkeyPatch(
                f'{__name__}.GroupFile.write_text', write_slowly
            )
        )
        player = threading.Thread(
            target=self.manager.set_shares, args=('u', 20)
        )
        player.start()
        self.assertTrue(began.wait(manager_case.PATIENCE_S))
        self.target.holds.add(guest.Hold.MIGRATING)
        keeper = threading.Thread(
            target=weights.restore_by_file,
            args=(self.target, self.manager._context.processes),
        )
        keeper.start()
        keeper.join(0.1)
        go_on.set()
        keeper.join()
        player.join()
        self.assertEqual(1024, self.weight())

    def test_no_window_overwrites_a_weight_being_detected(self) -> None:
        """libvirt sends no event about a weight written to the file itself."""
        refused: list[bool] = []

        def play() -> None:
            try:
                refused.append(not self.manager.set_shares('u', 20))
            except TimeoutError:
                refused.append(True)

        read = self.domain.vcpuPinInfo
        calls: list[int] = []

        def read_and_play(flags: int) -> list[tuple[bool, ...]]:
            calls.append(flags)
            if len(calls) == 2:
                # The weight has just been read, for the second time.
                play()
            return read(flags)

        self.path.write_text('333')
        self.useFixture(
            fixtures.MonkeyPatch(
                f'{__name__}.SlowDomain.vcpuPinInfo',
                lambda domain, flags: read_and_play(flags),
            )
        )
        self.look()
        self.assertEqual([True], refused)
        self.assertEqual({cputune.SHARES}, self.target.external)
        self.assertEqual(333, self.weight())


class TestRaces(FreeWeightsCase):
    """Windows are played in a thread while the guest is restored."""

    def setUp(self) -> None:
        super().setUp()
        self.ending = threading.Event()
        self.written = 0
        self.domain.slow_s = 0.002
        player = threading.Thread(target=self.play)
        player.start()
        self.addCleanup(player.join)
        self.addCleanup(self.ending.set)

    def play(self) -> None:
        source = random.Random(1)
        while not self.ending.is_set():
            with contextlib.suppress(TimeoutError):
                self.written += self.manager.set_shares(
                    'u', source.choice(WEIGHTS)
                )

    def assert_stays_put_back(self) -> None:
        self.drain()
        for _ in range(3):
            self.assertEqual(1024, self.weight())
            time.sleep(0.001)
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertEqual((), self.journal.uuids())
        self.assertEqual(
            self.target.copy_for_destination,
            self.domain.metadata_xml is not None,
        )

    def test_guest_is_restored_exactly_each_time(self) -> None:
        source = random.Random(2)
        for turn in range(25):
            self.manager.write(self.target, PINS[turn % 2])
            for _ in range(source.randrange(3)):
                self.manager.enqueue('u')
            time.sleep(source.random() * 0.01)
            back = source.choice(
                (
                    self.manager.pause,
                    lambda: self.manager.restore_one('u'),
                    lambda: self.manager.restore_before_migration(
                        frozenset({'u'})
                    ),
                )
            )
            back()
            if source.random() < 0.3:
                # The reason ends at once, before or after the restore.
                self.manager.restore_before_migration(frozenset())
                self.manager.resume()
                self.drain()
                back()
            self.assert_stays_put_back()
            self.manager.restore_before_migration(frozenset())
            self.manager.resume()
        self.assertEqual(frozenset(), self.target.external)
        self.assertEqual(0, self.manager.external_changes)
        self.assertGreater(self.written, 0)

    def test_guest_is_restored_exactly_at_stop(self) -> None:
        time.sleep(0.02)
        self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))
        self.assertFalse(self.manager.set_shares('u', 20))
        self.assertEqual(1024, self.weight())
        self.assert_put_back()

    def test_external_weight_stays_while_windows_are_played(self) -> None:
        """The event arrives while windows are written."""
        time.sleep(0.02)
        self.path.write_text('333')
        self.manager._events._on_tunable(
            None, self.domain, {'cputune.cpu_shares': 333}, None
        )
        self.drain()
        for _ in range(20):
            self.assertEqual(333, self.weight())
            time.sleep(0.001)
        self.assertEqual({cputune.SHARES}, self.target.external)
