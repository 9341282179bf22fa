# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.uplinks.moved_nics`."""

from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.uplinks import moved_nics
from nova_vhpc.linux import qemu_process

RUN = qemu_process.Identity('boot', 12, 34, 5)
MAC = '52:54:00:00:00:01'


class MovedNicsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.processes = mock.create_autospec(
            qemu_process.Processes, instance=True
        )
        self.run_as(RUN)
        self.journal = moved_nics.MovedNicsJournal(
            self.useFixture(fixtures.TempDir()).path, self.processes
        )
        self.save()

    def save(self) -> None:
        self.journal.save(
            moved_nics.MovedNics('u', RUN, {MAC: ('br-shared', 'br-own')})
        )

    def run_as(self, identity: qemu_process.Identity) -> None:
        """Let the domain run as this process; none, if its ID is 0."""
        self.processes.find.return_value = identity.pid
        self.processes.boot_id.return_value = identity.boot_id
        self.processes.start_ticks.return_value = identity.start_ticks

    def test_nic_of_a_guest_that_still_runs_is_named(self) -> None:
        for _ in range(2):
            problem = self.journal.problems()['u']
            for word in (MAC, 'br-shared', 'br-own', 'u.json'):
                self.assertIn(word, problem)
        self.assertEqual(('u',), self.journal.uuids())

    def test_record_of_another_run_is_removed_and_logged(self) -> None:
        for other in (
            qemu_process.Identity('boot', 0, 0, 0),
            qemu_process.Identity('boot', 12, 35, 5),
            qemu_process.Identity('boot', 13, 34, 5),
            qemu_process.Identity('next', 12, 34, 5),
        ):
            self.save()
            self.run_as(other)
            with self.assertLogs(moved_nics.LOG, 'INFO') as logs:
                self.assertEqual({}, self.journal.problems())
            self.assertIn('br-shared', logs.output[0])
            self.assertEqual((), self.journal.uuids())

    def test_damaged_record_is_never_lost(self) -> None:
        file = self.journal.path / 'u.json'
        file.write_text('{')
        self.assertIn(str(file), self.journal.problems()['u'])
        self.assertTrue(file.exists())
        self.run_as(qemu_process.Identity('boot', 0, 0, 0))
        with self.assertLogs(moved_nics.LOG, 'INFO'):
            self.assertEqual({}, self.journal.problems())
        self.assertTrue(file.with_suffix('.bad').exists())

    def test_host_without_such_records_has_no_problem(self) -> None:
        self.journal.remove('u')
        self.assertEqual({}, self.journal.problems())
