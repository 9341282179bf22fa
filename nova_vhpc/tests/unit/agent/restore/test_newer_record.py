# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""A newer agent's journal: the guest is restored once, then refused."""

import fixtures

from nova_vhpc.agent.journal import store
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case


class NewerJournalTest(manager_case.ManagerTestCase):
    def arrive(self, metadata_xml: str) -> None:
        """Have the guest come from another host, without a record here."""
        self.write(self.look())
        self.manager._context.permission.ending.set()
        self.journal.remove('u')
        self.domain.metadata_xml = metadata_xml
        self.manager = self.make()

    def test_guest_with_newer_metadata_copy_is_restored(
        self,
    ) -> None:
        """Values of the newer agent must not pass for original settings."""
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.arrive('<vhpc:journal>{"version": 99}</vhpc:journal>')
        guest = self.look()
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertEqual(fake_libvirt.ORIGINAL, guest.original.parameters)
        self.assertIsNone(self.domain.metadata_xml)
        self.assertIn('metadata of vm: version 99', log.output)
        # Managed, with a copy that this agent can read.
        self.write(guest)
        self.assertNotIn('"version": 99', self.domain.metadata_xml)
        self.assertEqual('u', store.get_metadata(self.domain).uuid)

    def test_guest_with_torn_metadata_copy_is_restored(self) -> None:
        self.arrive('<vhpc:journal>{"vers</vhpc:journal>')
        self.look()
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)

    def test_dry_run_logs_newer_metadata_copy_and_writes_nothing(self) -> None:
        self.arrive('<vhpc:journal>{"version": 99}</vhpc:journal>')
        written = list(self.domain.written)
        self.manager = self.make(dry_run=True)
        with self.assertLogs('nova_vhpc.agent.lifecycle.after_crash'):
            self.look()
        self.assertEqual(written, self.domain.written)
