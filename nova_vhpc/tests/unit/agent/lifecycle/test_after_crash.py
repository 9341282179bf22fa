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

"""After a crash: what we wrote is put back, what others wrote is not."""

import dataclasses
import errno
import json
import pathlib
from typing import Any
from unittest import mock

import fixtures

from nova_vhpc.agent.actuators import kernel_slice
from nova_vhpc.agent.journal import record
from nova_vhpc.agent.journal.record import JournalError, JournalRecord
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

ORIGINAL = fake_libvirt.ORIGINAL


class TestCrash(manager_case.ManagerTestCase):
    def crash(self) -> None:
        """The agent is gone; nothing is put back."""
        self.made._context.permission.ending.set()

    def start(self) -> None:
        """The next one finds the VM."""
        self.made = self.make()
        self.look()

    def test_only_shares_were_written(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.look()
        self.made.set_shares('u', 20)
        self.crash()
        self.domain.values[cputune.QUOTA] = 50_000
        self.domain.pins[1] = (False, True)
        self.start()
        self.assertEqual(
            {**ORIGINAL, cputune.QUOTA: 50_000}, self.domain.values
        )
        self.assertEqual([(True, True), (False, True)], self.domain.pins)
        self.assertIsNone(self.domain.mark)
        self.assertEqual((), self.records.uuids())
        self.assertIn('change of vcpu_quota, vcpupin 1 while', log.output)
        # And now it is what the VM had before us.
        target = self.made.guests['u']
        self.assertEqual(50_000, target.original.parameters[cputune.QUOTA])

    def slices(self, **what: Any) -> Any:
        """The VM's threads may have slices of their own."""
        target = self.look()
        target.may_have_kernel_slices = True
        self.write(target)
        self.crash()
        return mock.patch.object(kernel_slice, 'reset', **what)

    def test_slices_that_cannot_be_put_back(self) -> None:
        with self.slices(side_effect=OSError('no')):
            self.made = self.make()
            self.made.enqueue('u')
            self.drain()
        self.assertEqual(ORIGINAL, self.domain.values)
        self.assertEqual({'u': 'no'}, self.made.refused)
        self.assertEqual(('u',), self.records.uuids())

    def test_slices_of_the_vcpus_that_are_online(self) -> None:
        """Those that are not have pins, and no threads."""
        self.domain.pins *= 2
        with self.slices() as reset:
            self.start()
        reset.assert_called_once_with(mock.ANY, 0, 2)

    def tear(self) -> None:
        (self.records.path / 'u.json').write_text('{')

    def assert_kept_for_people(self) -> None:
        self.assertEqual((), self.records.uuids())
        (kept,) = self.records.path.iterdir()
        self.assertEqual('u.bad', kept.name)

    def test_a_torn_record_beside_the_copy(self) -> None:
        original = {**ORIGINAL, cputune.QUOTA: 50_000}
        self.domain.values = dict(original)
        self.write(self.look())
        self.crash()
        self.tear()
        self.start()
        self.assertEqual(original, self.domain.values)
        self.assertIsNone(self.domain.mark)
        self.assert_kept_for_people()

    def test_a_torn_record_without_a_copy(self) -> None:
        self.domain.vcpu = "<vcpu cpuset='1'>2</vcpu>"
        self.domain.extra = (
            '<cputune><shares>512</shares><quota>25000</quota>'
            "<vcpupin vcpu='0' cpuset='0'/>"
            # Of a vCPU that could be, but is not there.
            "<vcpupin vcpu='2' cpuset='0'/></cputune>"
        )
        self.write(self.look())
        self.domain.pins = [(True, True)] * 2
        self.crash()
        self.tear()
        self.domain.mark = None
        self.start()
        self.assertEqual(
            {**ORIGINAL, cputune.SHARES: 512, cputune.QUOTA: 25_000},
            self.domain.values,
        )
        self.assertEqual([(True, False), (False, True)], self.domain.pins)
        self.assert_kept_for_people()

    def test_what_met_another_run_and_what_others_set_there(self) -> None:
        target = self.look()
        tune = model.CpuTune(
            8_000, 8_000, vcpu_pins=(frozenset({0}), frozenset({1}))
        )
        self.made.write(target, tune)
        self.drain()
        self.crash()
        self.domain.id += 1
        self.domain.mark = None
        theirs = {**ORIGINAL, cputune.QUOTA: 50_000, cputune.SHARES: 77}
        self.domain.values = {**theirs, cputune.PERIOD: 8_000}
        # The second one is not as we ever had it.
        self.domain.pins = [(True, False)] * 2
        self.start()
        self.assertEqual(theirs, self.domain.values)
        self.assertEqual([(True, True), (True, False)], self.domain.pins)
        self.assertEqual((), self.records.uuids())
        # And now it is what the VM had before us.
        target = self.made.guests['u']
        self.assertEqual(theirs, target.original.parameters)

    def test_a_torn_record_of_a_transient_vm(self) -> None:
        """It would be started anew from what is in force: from our values."""
        self.domain.persistent = False
        self.write(self.look())
        left = dict(self.domain.values)
        self.assertNotEqual(ORIGINAL, left)
        self.crash()
        self.tear()
        self.domain.mark = None
        self.made = self.make()
        self.made.enqueue('u')
        self.drain()
        self.assertEqual({}, dict(self.made.guests))
        self.assertIn('it is transient', self.made.refused['u'])
        self.assertEqual(left, self.domain.values)
        self.assertEqual(('u',), self.records.uuids())

    def test_libvirt_says_that_it_has_done_what_it_has_not(self) -> None:
        self.write(self.look())
        self.crash()
        self.made = self.make()
        with mock.patch.object(self.domain, 'setSchedulerParametersFlags'):
            self.made.enqueue('u')
            self.drain()
        self.assertIn('vcpu_quota is 8000', self.made.refused['u'])
        self.assertEqual(('u',), self.records.uuids())
        self.assertIsNotNone(self.domain.mark)
        self.look()
        self.assert_put_back()

    def test_what_has_our_value_no_more(self) -> None:
        target = self.look()
        self.write(target)
        self.made.set_shares('u', 20)
        self.crash()
        self.domain.values[cputune.SHARES] = 333
        self.start()
        self.assertEqual({**ORIGINAL, cputune.SHARES: 333}, self.domain.values)

    def test_every_value_is_in_the_journal_before_it_is_written(self) -> None:
        """A crash may come between any two of our writes."""
        target = self.look()
        for number in range(3):
            self.made.write(
                target, model.CpuTune(8_000 + number, 4_000 + number)
            )
            self.drain()
            self.made.set_shares('u', 20 + number)
        noted: list[JournalRecord | None] = []
        self.domain.refuse = lambda: noted.append(self.records.load('u'))
        self.made.set_shares('u', 50)
        self.write(target)
        known = [record.written for record in noted if record]
        self.assertIn(50, known[0][cputune.SHARES])
        self.assertEqual({20, 21, 22, 50}, known[-1][cputune.SHARES])
        self.assertIn(8_000, known[-1][cputune.QUOTA])

    def no_files(self) -> Any:
        """There are no descriptors left to read a record with."""
        open_file = pathlib.Path.open

        def refuse(path: pathlib.Path, *args: Any, **kwargs: Any) -> Any:
            if path.parent == self.records.path:
                raise OSError(errno.EMFILE, 'Too many open files')
            return open_file(path, *args, **kwargs)

        return mock.patch.object(pathlib.Path, 'open', refuse)

    def test_what_somebody_set_stays_while_no_record_can_be_read(self) -> None:
        self.domain.values[cputune.QUOTA] = 50_000
        with self.no_files():
            self.made = self.make()
            self.made.enqueue('u')
            self.drain()
        self.assertEqual(50_000, self.domain.values[cputune.QUOTA])
        self.assertEqual([], self.domain.written)
        self.assertIn('Too many open files', self.made.refused['u'])
        self.look()
        target = self.made.guests['u']
        self.assertEqual(50_000, target.original.parameters[cputune.QUOTA])

    def test_the_copy_serves_while_no_record_can_be_read(self) -> None:
        target = self.look()
        self.write(target)
        self.crash()
        with self.no_files():
            self.start()
        self.assertEqual(ORIGINAL, self.domain.values)

    def test_a_record_of_who_is_gone_is_kept_while_it_cannot_be_read(
        self,
    ) -> None:
        target = self.look()
        self.write(target)
        with self.no_files():
            self.made._restore_queue.forget_record('u')
        self.assertEqual(('u',), self.records.uuids())

    def test_no_record_for_what_was_written_before(self) -> None:
        self.look()
        saved: list[JournalRecord] = []
        save = self.records.save

        def count(record: JournalRecord) -> None:
            saved.append(record)
            save(record)

        self.records.save = count
        for _ in range(5):
            for shares in (20, 2048):
                self.made.set_shares('u', shares)
        self.assertEqual(2, len(saved))

    def test_a_value_that_cannot_be_noted_is_not_written(self) -> None:
        self.look()
        self.made.set_shares('u', 20)

        def refuse(record: JournalRecord) -> None:
            raise JournalError('disk full')

        save, self.records.save = self.records.save, refuse
        self.assertRaises(JournalError, self.made.set_shares, 'u', 2048)
        self.assertEqual(20, self.domain.values[cputune.SHARES])
        # Not known by that, either.
        self.records.save = save
        self.made.set_shares('u', 2048)
        self.assertIn(2048, self.records.load('u').written[cputune.SHARES])

    def test_nothing_is_known_of_an_earlier_time(self) -> None:
        """Put back and resumed: what was ours then is so no more."""
        target = self.look()
        self.made.set_shares('u', 20)
        self.made.pause()
        self.drain()
        self.made.resume()
        self.write(target)
        self.assertNotIn(cputune.SHARES, self.records.load('u').written)

    def test_the_copy_in_the_vm_does_not_say(self) -> None:
        """It is written once; with it all is put back."""
        self.write(self.look())
        self.made.set_shares('u', 20)
        self.crash()
        self.records.remove('u')
        self.domain.values[cputune.QUOTA] = 50_000
        self.start()
        self.assertEqual(ORIGINAL, self.domain.values)

    def test_theirs_before_and_after_the_crash(self) -> None:
        target = self.look()
        self.write(target)
        self.made.set_shares('u', 20)
        self.domain.values[cputune.SHARES] = 333
        self.look()
        self.assertEqual({cputune.SHARES}, target.external)
        self.crash()
        self.domain.pins[1] = (False, True)
        self.start()
        self.assertEqual({**ORIGINAL, cputune.SHARES: 333}, self.domain.values)
        self.assertEqual([(True, True), (False, True)], self.domain.pins)

    def test_handed_back_after_a_restart_until_it_is_resumed(self) -> None:
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.look()
        self.assertTrue(self.made.stop(manager_case.PATIENCE_S))
        self.start()
        target = self.made.guests['u']
        self.assertEqual({cputune.SHARES}, target.external)
        self.assertEqual('external', target.hands_off)
        self.write(target)
        expected = {**ORIGINAL, cputune.SHARES: 333}
        self.assertEqual(expected, self.domain.values)
        self.assertEqual('', self.made.resume_one('u'))
        self.drain()
        self.assertEqual('', target.hands_off)
        self.assertIsNone(self.records.load('u'))
        self.write(target)
        self.assertNotEqual(expected, self.domain.values)
        self.made.pause()
        self.drain()
        self.assertEqual(expected, self.domain.values)

    def test_a_new_run_of_a_handed_back_server_is_managed(self) -> None:
        self.write(self.look())
        self.domain.values[cputune.SHARES] = 333
        self.look()
        self.crash()
        record = self.records.load('u')
        run = dataclasses.replace(record.identity, domain_id=99)
        self.records.save(dataclasses.replace(record, identity=run))
        self.start()
        target = self.made.guests['u']
        self.assertEqual(frozenset(), target.external)
        self.assertEqual('', target.hands_off)

    def test_values_that_an_older_agent_left_alone_hand_it_back(self) -> None:
        """Before the key 'external', single values were left alone."""
        self.write(self.look())
        self.crash()
        file = self.records.path / 'u.json'
        data = json.loads(file.read_text())
        del data['external'], data['crc32']
        data['released'] = [cputune.SHARES]
        data['crc32'] = record._checksum(data)
        file.write_text(json.dumps(data))
        self.domain.values[cputune.SHARES] = 333
        self.start()
        self.assertEqual({**ORIGINAL, cputune.SHARES: 333}, self.domain.values)
        self.assertEqual('external', self.made.guests['u'].hands_off)

    def test_record_of_a_restored_backup_is_not_believed(self) -> None:
        """It lacks values of the agent, which are no external changes."""
        target = self.look()
        self.made.set_shares('u', 20)
        file = self.records.path / 'u.json'
        backup = file.read_bytes()
        self.write(target)
        self.crash()
        file.write_bytes(backup)
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.start()
        self.assertEqual(ORIGINAL, self.domain.values)
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertIn('older than the copy', log.output)
        self.assertNotIn('external change', log.output)
        self.assertEqual((), self.records.uuids())

    def test_record_that_is_as_new_as_the_copy_is_believed(self) -> None:
        self.write(self.look())
        self.crash()
        self.domain.values[cputune.SHARES] = 333
        self.start()
        self.assertEqual({**ORIGINAL, cputune.SHARES: 333}, self.domain.values)

    def test_an_older_agents_record_does_not_say(self) -> None:
        self.write(self.look())
        self.crash()
        file = self.records.path / 'u.json'
        data = json.loads(file.read_text())
        del data['written'], data['crc32']
        file.write_text(json.dumps(data))
        self.domain.values[cputune.SHARES] = 20
        self.start()
        self.assertEqual(ORIGINAL, self.domain.values)
        self.assertEqual([], list(self.records.path.iterdir()))
