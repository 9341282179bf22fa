# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""No write without journal, metadata copy and write permission.

:mod:`.test_any_life` draws pauses, restores, migrations and the like.
"""

import os
from collections.abc import Callable
from unittest import mock

import libvirt

from nova_vhpc.agent.guests.guest import Hold
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

ORIGINAL = fake_libvirt.ORIGINAL


class WriterTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()

    def assert_not_written(self) -> None:
        self.write(self.guest)
        self.assertEqual(ORIGINAL, self.domain.values)

    def test_nothing_is_written_without_the_metadata_copy(self) -> None:
        """Otherwise a migration would take agent values for original ones."""
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(
            self.domain, 'setMetadata', side_effect=refused
        ):
            self.assert_not_written()
            for _ in range(2):
                self.assertRaises(
                    libvirt.libvirtError, self.manager.set_shares, 'u', 7
                )
        self.assertEqual(ORIGINAL, self.domain.values)
        self.write(self.guest)
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        self.assertIsNotNone(self.domain.metadata_xml)

    def test_metadata_copy_is_put_with_each_new_record_only(self) -> None:
        self.write(self.guest)
        for shares, kinds in (
            (7, ['metadata', 'values']),
            (8, ['metadata', 'values']),
            (7, ['values']),
        ):
            self.domain.written.clear()
            self.manager.set_shares('u', shares)
            self.assertEqual(kinds, self.domain.written)

    def test_unseen_change_is_original(self) -> None:
        """The journal must hold the guest's original settings."""
        self.domain.values[cputune.QUOTA] = 20_000
        self.assertFalse(self.manager.set_shares('u', 7))
        self.drain()
        self.domain.values[cputune.QUOTA] = 30_000
        self.write(self.guest)
        self.assertEqual(
            {**ORIGINAL, cputune.QUOTA: 30_000}, self.domain.values
        )
        self.write(self.guest)
        self.assertEqual(8_000, self.domain.values[cputune.QUOTA])
        record = self.journal.load('u')
        self.assertEqual(30_000, record.original.parameters[cputune.QUOTA])

    def test_nothing_is_written_if_permission_ends_during_the_wait(
        self,
    ) -> None:
        """The guest is held while writers wait for its lock."""
        lock, guest = self.guest.lock, self.guest

        class Lock:
            def acquire(self, timeout: float = -1) -> bool:
                guest.holds.add(Hold.PAUSED)
                return lock.acquire(timeout=timeout)

            def release(self) -> None:
                lock.release()

            def __enter__(self) -> None:
                self.acquire()

            def __exit__(self, *args: object) -> None:
                self.release()

        guest.lock = Lock()  # type: ignore[assignment]
        self.assert_not_written()
        self.assertTrue(guest.holds)
        guest.holds.clear()
        self.assertFalse(self.manager.set_shares('u', 7))
        self.assertTrue(guest.holds)
        self.assertEqual([], self.domain.written)
        self.assertEqual((), self.journal.uuids())

    def ends(self, code: int, active: bool) -> None:
        """Have libvirt refuse writes as it does when a domain ends."""

        def refuse() -> None:
            raise fake_libvirt.error(code)

        self.domain.refuse = refuse
        self.domain.isActive = lambda: active  # type: ignore[attr-defined]

    def test_invalid_operation_of_a_running_guest_counts_as_failure(
        self,
    ) -> None:
        """Otherwise each tick would retry it, without a log line."""
        for active, failures in ((False, 0), (True, 1)):
            self.ends(libvirt.VIR_ERR_OPERATION_INVALID, active)
            self.write(self.guest)
            self.assertEqual(failures, self.guest.failures.count)
        self.assertRaises(
            libvirt.libvirtError, self.manager.set_shares, 'u', 7
        )

    def test_guest_that_ends_in_its_window_is_no_failure(self) -> None:
        for code in (
            libvirt.VIR_ERR_NO_DOMAIN,
            libvirt.VIR_ERR_OPERATION_INVALID,
        ):
            self.ends(code, active=False)
            self.assertFalse(self.manager.set_shares('u', 7))
            self.assertEqual(0, self.guest.failures.count)

    def test_shares_are_recorded_before_they_are_in_force(self) -> None:
        known: list[set[int]] = []
        self.domain.refuse = lambda: known.append(
            set(self.guest.event_history.written_shares)
        )
        self.manager.write(self.guest, model.CpuTune(shares=7))
        self.drain()
        self.assertEqual({7}, known[-1])


class PlaceTest(manager_case.ManagerTestCase):
    """Gang windows place the vCPUs by the affinity of their threads."""

    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()
        self.manager.set_shares('u', 20)
        self.guest.tids = (77, 78)
        self.domain.written.clear()
        self.affinity: dict[int, set[int]] = {}
        patch = mock.patch.object(
            os, 'sched_setaffinity', self.affinity.__setitem__
        )
        patch.start()
        self.addCleanup(patch.stop)

    def test_vcpus_run_on_their_cpus_or_where_their_pins_allow(self) -> None:
        self.assertTrue(self.manager.place('u', (1, 0)))
        self.assertEqual({77: {1}, 78: {0}}, self.affinity)
        self.assertTrue(self.manager.place('u', ()))
        pins = self.guest.expected.vcpupins
        self.assertEqual({77: pins[0], 78: pins[1]}, self.affinity)
        self.assertEqual([], self.domain.written)

    def test_guest_is_not_placed_if_it_may_not_be(self) -> None:
        def unrecorded() -> None:
            # A killed agent would leave it placed, and the next one would
            # not know it.
            self.guest.journalled = False

        def resized() -> None:
            self.guest.tids = (77, 78, 79)

        cases: tuple[tuple[str, Callable[[], object]], ...] = (
            ('other', lambda: None),
            ('u', lambda: self.guest.holds.add(Hold.LEAVING)),
            ('u', unrecorded),
            ('u', resized),
        )
        for uuid, happens in cases:
            self.guest.journalled = True
            self.guest.holds.clear()
            happens()
            self.assertFalse(self.manager.place(uuid, (1, 0)))
        self.assertEqual({}, self.affinity)
