# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""After a crash, values of the agent are restored, external ones are not."""

import dataclasses
import errno
import pathlib
from typing import Any
from unittest import mock

from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

ORIGINAL = fake_libvirt.ORIGINAL


class CrashRecoveryTest(manager_case.ManagerTestCase):
    def crash(self) -> None:
        """End the agent without a restore."""
        self.manager._context.permission.ending.set()

    def start(self) -> None:
        """Start the next agent."""
        self.manager = self.make()
        self.look()

    def tear(self) -> None:
        (self.journal.path / 'u.json').write_text('{')

    def assert_kept_for_people(self) -> None:
        self.assertEqual((), self.journal.uuids())
        (kept,) = self.journal.path.iterdir()
        self.assertEqual('u.bad', kept.name)

    def test_torn_record_without_copy_restores_the_definition(self) -> None:
        self.domain.vcpu = "<vcpu cpuset='1'>2</vcpu>"
        self.domain.extra = (
            '<cputune><shares>512</shares><quota>25000</quota>'
            "<vcpupin vcpu='0' cpuset='0'/>"
            # vCPU 2 is possible, but not plugged in.
            "<vcpupin vcpu='2' cpuset='0'/></cputune>"
        )
        self.write(self.look())
        self.domain.pins = [(True, True)] * 2
        self.crash()
        self.tear()
        self.domain.metadata_xml = None
        self.start()
        self.assertEqual(
            {**ORIGINAL, cputune.SHARES: 512, cputune.QUOTA: 25_000},
            self.domain.values,
        )
        self.assertEqual([(True, False), (False, True)], self.domain.pins)
        self.assert_kept_for_people()

    def test_misdirected_values_are_reverted_and_external_ones_stay(
        self,
    ) -> None:
        guest = self.look()
        tune = model.CpuTune(
            8_000, 8_000, vcpu_pins=(frozenset({0}), frozenset({1}))
        )
        self.manager.write(guest, tune)
        self.drain()
        self.crash()
        self.domain.id += 1
        self.domain.metadata_xml = None
        external = {**ORIGINAL, cputune.QUOTA: 50_000, cputune.SHARES: 77}
        self.domain.values = {**external, cputune.PERIOD: 8_000}
        # No agent ever pinned the second vCPU like this.
        self.domain.pins = [(True, False)] * 2
        self.start()
        self.assertEqual(external, self.domain.values)
        self.assertEqual([(True, True), (True, False)], self.domain.pins)
        self.assertEqual((), self.journal.uuids())
        # Now it is the original setting.
        guest = self.manager.guests['u']
        self.assertEqual(external, guest.original.parameters)

    def test_transient_domain_with_torn_record_is_refused(self) -> None:
        """libvirt would report the values in force as its definition."""
        self.domain.persistent = False
        self.write(self.look())
        left = dict(self.domain.values)
        self.assertNotEqual(ORIGINAL, left)
        self.crash()
        self.tear()
        self.domain.metadata_xml = None
        self.manager = self.make()
        self.manager.enqueue('u')
        self.drain()
        self.assertEqual({}, dict(self.manager.guests))
        self.assertIn('it is transient', self.manager.refused['u'])
        self.assertEqual(left, self.domain.values)
        self.assertEqual(('u',), self.journal.uuids())

    def test_record_is_kept_if_libvirt_did_not_restore(self) -> None:
        self.write(self.look())
        self.crash()
        self.manager = self.make()
        with mock.patch.object(self.domain, 'setSchedulerParametersFlags'):
            self.manager.enqueue('u')
            self.drain()
        self.assertIn('vcpu_quota is 8000', self.manager.refused['u'])
        self.assertEqual(('u',), self.journal.uuids())
        self.assertIsNotNone(self.domain.metadata_xml)
        self.look()
        self.assert_put_back()

    def test_every_value_is_in_the_journal_before_it_is_written(self) -> None:
        """The agent may crash between any two writes."""
        guest = self.look()
        for number in range(3):
            self.manager.write(
                guest, model.CpuTune(8_000 + number, 4_000 + number)
            )
            self.drain()
            self.manager.set_shares('u', 20 + number)
        noted: list[JournalRecord | None] = []
        self.domain.refuse = lambda: noted.append(self.journal.load('u'))
        self.manager.set_shares('u', 50)
        self.write(guest)
        known = [record.written for record in noted if record]
        self.assertIn(50, known[0][cputune.SHARES])
        self.assertEqual({20, 21, 22, 50}, known[-1][cputune.SHARES])
        self.assertIn(8_000, known[-1][cputune.QUOTA])

    def no_files(self) -> Any:
        """Have every read of a record fail: no descriptors are left."""
        open_file = pathlib.Path.open

        def refuse(path: pathlib.Path, *args: Any, **kwargs: Any) -> Any:
            if path.parent == self.journal.path:
                raise OSError(errno.EMFILE, 'Too many open files')
            return open_file(path, *args, **kwargs)

        return mock.patch.object(pathlib.Path, 'open', refuse)

    def test_unreadable_journal_leaves_external_values_alone(self) -> None:
        self.domain.values[cputune.QUOTA] = 50_000
        with self.no_files():
            self.manager = self.make()
            self.manager.enqueue('u')
            self.drain()
        self.assertEqual(50_000, self.domain.values[cputune.QUOTA])
        self.assertEqual([], self.domain.written)
        self.assertIn('Too many open files', self.manager.refused['u'])
        self.look()
        guest = self.manager.guests['u']
        self.assertEqual(50_000, guest.original.parameters[cputune.QUOTA])

    def test_copy_is_used_while_the_journal_cannot_be_read(self) -> None:
        guest = self.look()
        self.write(guest)
        self.crash()
        with self.no_files():
            self.start()
        self.assertEqual(ORIGINAL, self.domain.values)

    def test_unreadable_record_of_a_stopped_domain_is_kept(self) -> None:
        guest = self.look()
        self.write(guest)
        with self.no_files():
            self.manager._restore_queue.forget_record('u')
        self.assertEqual(('u',), self.journal.uuids())

    def test_known_value_needs_no_new_record(self) -> None:
        self.look()
        saved: list[JournalRecord] = []
        save = self.journal.save

        def count(record: JournalRecord) -> None:
            saved.append(record)
            save(record)

        self.journal.save = count
        for _ in range(5):
            for shares in (20, 2048):
                self.manager.set_shares('u', shares)
        self.assertEqual(2, len(saved))

    def test_written_values_are_forgotten_after_a_restore(self) -> None:
        """After restore and resume, only new writes count."""
        guest = self.look()
        self.manager.set_shares('u', 20)
        self.manager.pause()
        self.drain()
        self.manager.resume()
        self.write(guest)
        self.assertNotIn(cputune.SHARES, self.journal.load('u').written)

    def test_handed_back_guest_stays_so_until_it_is_resumed(self) -> None:
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.look()
        self.assertTrue(self.manager.stop(manager_case.PATIENCE_S))
        self.start()
        guest = self.manager.guests['u']
        self.assertEqual({cputune.SHARES}, guest.external)
        self.assertEqual('external', guest.hands_off)
        self.write(guest)
        expected = {**ORIGINAL, cputune.SHARES: 333}
        self.assertEqual(expected, self.domain.values)
        self.assertEqual('', self.manager.resume_one('u'))
        self.drain()
        self.assertEqual('', guest.hands_off)
        self.assertIsNone(self.journal.load('u'))
        self.write(guest)
        self.assertNotEqual(expected, self.domain.values)
        self.manager.pause()
        self.drain()
        self.assertEqual(expected, self.domain.values)

    def test_new_run_of_a_handed_back_server_is_managed(self) -> None:
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.look()
        self.crash()
        record = self.journal.load('u')
        run = dataclasses.replace(record.identity, domain_id=99)
        self.journal.save(dataclasses.replace(record, identity=run))
        self.start()
        guest = self.manager.guests['u']
        self.assertEqual(frozenset(), guest.external)
        self.assertEqual('', guest.hands_off)
