# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Restores of guests, and the copy for the destination of a migration."""

from unittest import mock

import libvirt

from nova_vhpc.agent.guests.guest import Hold
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case
from nova_vhpc.tests.unit.agent.lifecycle import test_adoption

PINS = (frozenset({0}), frozenset({1}))
LEAVING = frozenset({'u'})


class RestoreGuestCase(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = self.look()

    def pin(self) -> None:
        self.manager.write(self.guest, model.CpuTune(vcpu_pins=PINS))
        self.drain()

    def leave(self) -> None:
        self.manager.restore_before_migration(LEAVING)
        self.drain()

    def copy(self) -> JournalRecord:
        text = self.domain.metadata_xml.partition('>')[2].rpartition('<')[0]
        return JournalRecord.from_json(text, 'metadata')

    def assert_copy_for_destination(self) -> None:
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertEqual((), self.journal.uuids())
        self.assertTrue(self.copy().restored)
        self.assertTrue(self.copy().is_floating)


class MigrationCopyTest(RestoreGuestCase):
    def setUp(self) -> None:
        super().setUp()
        self.pin()

    def test_metadata_copy_stays_for_a_migration(self) -> None:
        self.assertFalse(self.copy().restored)
        self.leave()
        self.assert_copy_for_destination()

    def test_metadata_copy_stays_after_every_restore_by_an_operator(
        self,
    ) -> None:
        for _ in range(2):
            self.manager.restore_one('u')
            self.drain()
            self.assert_copy_for_destination()

    def test_agent_pins_from_another_host_get_a_metadata_copy(self) -> None:
        self.manager.pause()
        self.drain()
        self.domain.id += 1
        self.domain.extra = test_adoption.PINS.format('0-1', '0-1')
        self.guest = self.look()
        self.manager.resume()
        self.assertIsNone(self.domain.metadata_xml)
        self.leave()
        self.assert_copy_for_destination()

    def test_copy_is_for_a_crash_again_once_the_guest_stays(self) -> None:
        self.leave()
        self.manager.restore_before_migration(frozenset())
        self.pin()
        self.assertFalse(self.copy().restored)
        self.manager.pause()
        self.drain()
        self.assert_put_back()

    def test_stop_reports_a_copy_that_could_not_be_removed(self) -> None:
        self.leave()
        self.domain.refuse = self.refuse
        self.assertFalse(self.manager.stop(0.3))

    def test_removal_of_the_copy_is_retried_while_the_agent_stops(
        self,
    ) -> None:
        self.leave()
        refusals = iter(range(2))

        def refuse() -> None:
            if next(refusals, None) is not None:
                self.refuse()

        self.domain.refuse = refuse
        self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))
        self.assert_put_back()

    def test_copy_is_not_touched_during_a_migration(self) -> None:
        self.leave()
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.look()
        self.assertIn(Hold.MIGRATING, self.guest.holds)
        self.domain.refuse = self.refuse
        self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))

    def test_guest_that_was_never_pinned_gets_no_copy(self) -> None:
        self.manager.pause()
        self.drain()
        self.manager.resume()
        self.manager.write(self.guest, manager_case.TUNE)
        self.drain()
        self.leave()
        self.assert_put_back()
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)


class NeverWrittenTest(RestoreGuestCase):
    """Values that the agent has not written are not restored."""

    def pause(self) -> None:
        self.domain.written.clear()
        self.manager.pause()
        self.drain()

    def test_guest_that_was_never_written_is_not_restored(self) -> None:
        self.domain.values[cputune.QUOTA] = 50_000
        self.domain.pins[0] = (True, False)
        self.pause()
        self.assertEqual([], self.domain.written)

    def test_pins_that_were_never_written_are_not_restored(self) -> None:
        """Pin elements would stay in the XML, and migrate."""
        self.manager.write(self.guest, manager_case.TUNE)
        self.drain()
        self.pause()
        self.assertNotIn('pin', self.domain.written)
        self.assert_put_back()


class RestoreWithoutEffectTest(RestoreGuestCase):
    """libvirt reports success for a call that did nothing."""

    def test_restore_is_retried_if_libvirt_did_nothing(self) -> None:
        self.pin()
        with mock.patch.object(self.domain, 'pinVcpuFlags'):
            attempt = self.manager.restore_one('u')
            outcome = attempt.result(manager_case.PATIENCE_S)
        self.assertIn('vcpupin 0 is [0], not [0, 1]', outcome)
        self.assertEqual(('u',), self.journal.uuids())
        self.reconcile()
        self.assert_copy_for_destination()


class ExternalPinsTest(RestoreGuestCase):
    """Pins that an operator set migrate as they are."""

    def set_external_pins(self) -> None:
        self.domain.pins = [(False, True)] * 2
        self.domain.extra = test_adoption.PINS.format(1, 1)
        self.look()

    def assert_external_pins(self) -> None:
        self.assertEqual([(False, True)] * 2, self.domain.pins)
        self.assertIsNone(self.domain.metadata_xml)

    def test_external_pins_of_an_unpinned_guest_need_no_copy(self) -> None:
        self.set_external_pins()
        self.leave()
        self.assert_external_pins()

    def test_external_pins_are_restored_without_a_copy(self) -> None:
        self.set_external_pins()
        self.pin()
        self.assertNotEqual([(False, True)] * 2, self.domain.pins)
        self.leave()
        self.assert_external_pins()

    def test_external_pins_after_a_restore_remove_the_copy(self) -> None:
        self.pin()
        self.manager.restore_one('u')
        self.drain()
        self.assert_copy_for_destination()
        self.set_external_pins()
        self.assert_external_pins()
