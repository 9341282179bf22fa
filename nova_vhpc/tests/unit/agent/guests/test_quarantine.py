# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Quarantine after failures and during calls that hang."""

import types

import fixtures
from oslotest import base

from nova_vhpc.agent.guests import quarantine
from nova_vhpc.tests.unit.agent.guests import test_guest, test_registry

OPTIONS = types.SimpleNamespace(
    quarantine_failures=2, quarantine_seconds=100.0, call_deadline=5.0
)


class QuarantineTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = test_guest.make()
        self.guests = guests = test_registry.make()
        guests.add(self.guest)
        self.quarantine = quarantine.Quarantine(OPTIONS, guests)
        self.log = self.useFixture(fixtures.FakeLogger())

    def test_first_failure_and_quarantine_are_logged(self) -> None:
        self.quarantine.add_failure(self.guest, 'refused')
        self.assertFalse(self.guest.failures.quarantined)
        self.assertIn('write failed, will retry: refused', self.log.output)
        self.quarantine.add_failure(self.guest, 'refused')
        self.assertTrue(self.guest.failures.quarantined)
        self.assertIn('in quarantine for', self.log.output)

    def test_call_that_hangs_quarantines_until_it_returns(self) -> None:
        self.quarantine.call_is_late('u')
        self.assertTrue(self.guest.failures.quarantined)
        self.assertEqual(1, self.quarantine.late_calls)
        self.quarantine.calls_returned('u')
        self.assertFalse(self.guest.failures.quarantined)

    def test_hanging_calls_are_logged_once_until_all_return(self) -> None:
        """A call of a window hangs as long as the executor's."""
        for _ in range(2):
            self.quarantine.call_is_late('u')
            self.quarantine.call_is_late('u')
            self.quarantine.calls_returned('u')
        self.assertEqual(4, self.quarantine.late_calls)
        self.assertEqual(2, self.log.output.count('takes longer'))

    def test_returning_call_does_not_end_other_problems(self) -> None:
        for _ in range(2):
            self.quarantine.add_failure(self.guest, 'refused')
        self.quarantine.calls_returned('u')
        self.assertTrue(self.guest.failures.quarantined)

    def test_unknown_vm_that_hangs_is_refused_until_it_returns(self) -> None:
        # libvirt 11 does not give the XML of a domain whose QEMU hangs.
        self.quarantine.call_is_late('new')
        self.assertEqual({'new': quarantine.HANGS}, self.guests.refused)
        self.quarantine.calls_returned('new')
        self.assertEqual({}, self.guests.refused)

    def test_returning_call_does_not_end_another_refusal(self) -> None:
        self.guests.refuse('new', 'no journal')
        self.quarantine.call_is_late('new')
        self.quarantine.calls_returned('new')
        self.assertEqual({'new': 'no journal'}, self.guests.refused)

    def test_unmanaged_vm_that_hangs_is_not_refused(self) -> None:
        self.guests.add_unmanaged('other', (1, 10))
        self.quarantine.call_is_late('other')
        self.assertEqual({}, self.guests.refused)

    def test_vm_that_ends_while_it_hangs_is_forgotten(self) -> None:
        self.quarantine.call_is_late('gone')
        self.quarantine.calls_returned('gone')
        self.assertIn('VM gone: a libvirt call takes', self.log.output)
