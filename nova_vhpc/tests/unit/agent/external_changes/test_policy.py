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

"""External changes: the server is handed back, or they are overridden."""

import dataclasses
from typing import Any
from unittest import mock

import libvirt

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.guests.guest import Hold
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.agent.restore import recovery
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.external_changes import policy_case

ALL = [(True, True)] * 2


class TestExternalChanges(policy_case.PolicyTestCase):
    def test_nothing_changed(self) -> None:
        self.assertEqual(0, self.look(self.make(journalled=True)))
        self.assertFalse(self.domain.has_metadata_copy)

    def test_before_our_first_write_it_is_the_original(self) -> None:
        target = self.make()
        self.domain.values[cputune.SHARES] = 77
        self.domain.pins = [(True, False), (True, False)]
        self.assertEqual(0, self.look(target))
        self.assertEqual(77, target.original_tune.shares)
        self.assertEqual(77, target.original.parameters[cputune.SHARES])
        self.assertEqual(frozenset({0}), target.allowed_cpus)

    def test_a_change_of_a_guest_without_our_values_hands_nothing_back(
        self,
    ) -> None:
        target = self.make()
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(0, self.look(target))
        self.assertEqual(frozenset(), target.external)
        self.assertTrue(target.free_to_write)

    def test_what_systemd_puts_back_is_written_anew(self) -> None:
        """It does not know of what windows write into the file."""
        target = self.make(journalled=True)
        target.original = target.expected
        target.weight_file = cgroup_weight.WeightFile(None)
        target.weight_file.proven = True
        target.note_written({cputune.SHARES: 20})
        self.assertEqual(0, self.look(target))
        self.assertEqual(frozenset(), target.external)
        self.assertEqual(['u'], self.told)
        self.assertEqual(1024, target.in_force.shares)
        self.assertEqual(0, self.look(target))
        self.assertEqual(['u'], self.told)

    def written(self) -> guest.Guest:
        """A VM with a slice and pins of ours in it."""
        target = self.make(journalled=True)
        target.original = target.expected
        cputune.write_bandwidth(self.domain, 8_000, 4_000, self.domain.values)
        self.domain.pins = [(True, False), (False, True)]
        self.domain.pinned = {0, 1}
        target.set_expected(cputune.read(self.domain))
        return target

    def assert_handed_back(self, target: guest.Guest, *names: str) -> None:
        self.assertEqual(frozenset(names), target.external)
        self.assertIn(Hold.EXTERNAL, target.holds)
        self.assertFalse(target.free_to_write)
        self.assertFalse(target.journalled)
        self.assertFalse(self.domain.has_metadata_copy)
        record = self.journal.load('u')
        self.assertTrue(record.is_handed_back)
        self.assertEqual(frozenset(names), record.external)
        # Another check finds nothing more, and writes nothing.
        values, pins = dict(self.domain.values), list(self.domain.pins)
        self.assertEqual(0, self.look(target))
        self.assertEqual(values, self.domain.values)
        self.assertEqual(pins, self.domain.pins)

    def test_each_parameter_stays_and_all_else_is_restored(self) -> None:
        for name, value in (
            (cputune.PERIOD, 77_000),
            (cputune.QUOTA, 25_000),
            (cputune.SHARES, 333),
        ):
            with self.subTest(name):
                self.domain = policy_case.Domain()
                original = dict(self.domain.values)
                target = self.written()
                self.domain.values[name] = value
                self.assertEqual(1, self.look(target))
                self.assertEqual({**original, name: value}, self.domain.values)
                self.assertEqual(ALL, self.domain.pins)
                self.assert_handed_back(target, name)

    def test_one_vcpus_pins_stay_and_all_else_is_restored(self) -> None:
        target = self.written()
        original = dict(self.domain.values)
        original.update({cputune.PERIOD: 100_000, cputune.QUOTA: 50_000})
        self.domain.pins[0] = (False, True)
        self.assertEqual(1, self.look(target))
        self.assertEqual([(False, True), (True, True)], self.domain.pins)
        self.assertEqual(original, self.domain.values)
        self.assert_handed_back(target, cputune.pin_name(0))

    def test_is_counted_and_logged_once(self) -> None:
        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        changes = self.changes()
        with self.assertLogs('nova_vhpc', 'WARNING') as logs:
            changes.check(target)
            self.domain.values[cputune.SHARES] = 333
            changes.check(target)
            self.restore(target, changes)
            changes.check(target)
        self.assertEqual(1, len(logs.output))
        self.assertIn('external change of vcpu_quota', logs.output[0])
        self.assertEqual(1, changes.handed_back)
        self.assertEqual(2, changes.count)

    def test_later_changes_of_a_server_handed_back_stay(self) -> None:
        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.look(target)
        self.domain.values[cputune.SHARES] = 8_000
        self.domain.pins[1] = (True, False)
        self.assertEqual(0, self.look(target))
        self.assertEqual(8_000, self.domain.values[cputune.SHARES])
        self.assertEqual((True, False), self.domain.pins[1])

    def test_values_set_one_after_the_other_both_stay(self) -> None:
        """The second one comes while the first one is journalled."""

        def set_next() -> None:
            self.domain.values[cputune.PERIOD] = 77_000
            self.domain.pins[1] = (True, False)

        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.domain.pins[0] = (False, True)
        self.domain.meanwhile = set_next
        self.look(target)
        self.domain.meanwhile = lambda: None
        self.look(target)
        self.assertEqual(77_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(25_000, self.domain.values[cputune.QUOTA])
        self.assertEqual([(False, True), (True, False)], self.domain.pins)

    def test_a_value_set_just_before_its_original_is_written_stays(
        self,
    ) -> None:
        """Only libvirt's event tells of it; the restore wrote over it."""
        for name, value in (
            (cputune.PERIOD, 77_000),
            (cputune.SHARES, 444),
            (cputune.pin_name(1), frozenset({0})),
        ):
            with self.subTest(name):
                self.domain = policy_case.Domain()
                target = self.written()
                self.domain.values[cputune.SHARES] = 20
                target.note_written({cputune.SHARES: 20})
                target.event_history.written_shares.add(20)
                self.domain.values[cputune.QUOTA] = 25_000
                self.look(target)
                if name == cputune.SHARES:
                    target.event_history.external_shares = value
                else:
                    target.event_history.external = {name: value}
                self.assertEqual(1, self.look(target))
                now = self.in_force()
                self.assertEqual(value, now[name])
                self.assertEqual(25_000, now[cputune.QUOTA])
                self.assert_handed_back(target, name, cputune.QUOTA)

    def in_force(self) -> dict[str, Any]:
        pins = enumerate(map(cputune.pin_cpus, self.domain.pins))
        return {
            **self.domain.values,
            **{cputune.pin_name(vcpu): pin for vcpu, pin in pins},
        }

    def test_what_libvirt_has_not_restored_is_tried_again(self) -> None:
        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        with (
            mock.patch.object(self.domain, 'setSchedulerParametersFlags'),
            mock.patch.object(self.domain, 'pinVcpuFlags'),
        ):
            self.assertRaises(recovery.RestoreError, self.look, target)
        self.assertTrue(target.journalled)
        self.assertFalse(target.free_to_write)
        self.assertFalse(self.journal.load('u').is_handed_back)
        self.look(target)
        self.assertEqual(100_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(ALL, self.domain.pins)
        self.assert_handed_back(target, cputune.QUOTA)

    def test_a_full_disk_does_not_keep_our_values_in_force(self) -> None:
        target = self.written()
        target.online = self.online()
        self.domain.values[cputune.QUOTA] = 25_000
        full = JournalError('full')
        with mock.patch.object(self.journal, 'save', side_effect=full):
            self.assertRaises(JournalError, self.look, target)
        # As the restore queue notes after a failure.
        target.uncertain = True
        self.assertEqual(100_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(25_000, self.domain.values[cputune.QUOTA])
        self.look(target)
        self.assert_handed_back(target, cputune.QUOTA)

    def test_the_journal_leaves_the_external_value_alone_on_the_way(
        self,
    ) -> None:
        """As for --restore, if the agent is killed before it restores."""
        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.changes().check(target)
        record = self.journal.load('u')
        self.assertEqual({cputune.QUOTA}, record.unmanaged_fields)
        self.assertEqual({cputune.QUOTA}, record.external)
        self.assertFalse(record.is_handed_back)
        cputune_restore.restore(
            self.domain, record.original, record.unmanaged_fields
        )
        self.assertEqual(25_000, self.domain.values[cputune.QUOTA])
        self.assertEqual(100_000, self.domain.values[cputune.PERIOD])

    def test_resumed_it_is_managed_again(self) -> None:
        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.look(target)
        self.assertEqual('', self.changes().resume(target))
        self.assertEqual(frozenset(), target.external)
        self.assertEqual((), self.journal.uuids())

    def test_not_resumed_before_all_is_restored(self) -> None:
        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        changes = self.changes()
        changes.check(target)
        self.assertIn('try again', changes.resume(target))
        self.assertEqual({cputune.QUOTA}, target.external)

    def test_a_guest_that_was_not_handed_back_is_resumed_at_once(self) -> None:
        target = self.written()
        self.assertEqual('', self.changes().resume(target))
        self.assertTrue(target.journalled)

    def test_vcpus_that_are_plugged_in_are_put_back_too(self) -> None:
        target = self.written()
        self.domain.pins += [(False, True)]
        target.set_info(dataclasses.replace(target.info, vcpus=3))
        self.assertEqual(0, self.look(target))
        self.assertEqual(3, len(target.original_tune.vcpu_pins or ()))
        record = self.journal.load('u')
        self.assertEqual(target.original, record.original)
        self.domain.pins[2] = (True, False)
        cputune_restore.restore(self.domain, record.original)
        self.assertEqual(
            [(True, True), (True, True), (False, True)], self.domain.pins
        )

    def test_vcpus_that_cannot_be_journalled_are_not_expected(self) -> None:
        target = self.written()
        self.domain.pins += [(True, True)]
        with mock.patch.object(
            self.journal, 'save', side_effect=JournalError('full')
        ):
            self.assertRaises(JournalError, self.look, target)
        self.assertEqual(2, len(target.expected.vcpupins))
        self.look(target)
        self.assertEqual(3, len(target.expected.vcpupins))
        self.assertEqual(3, len(target.original.vcpupins))

    def test_vcpus_that_are_plugged_out(self) -> None:
        target = self.written()
        del self.domain.pins[1]
        target.set_info(dataclasses.replace(target.info, vcpus=1))
        self.assertEqual(0, self.look(target))
        # There is nothing to write where no pins are wanted.
        self.assertEqual(1, len(target.original_tune.vcpu_pins or ()))
        self.assertEqual(2, len(target.original.vcpupins))

    def test_a_refused_restore_is_tried_again(self) -> None:
        target = self.written()
        self.domain.pins[0] = (False, True)
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(
            self.domain, 'pinVcpuFlags', side_effect=refused
        ):
            self.assertRaises(libvirt.libvirtError, self.look, target)
        self.assertEqual((False, True), self.domain.pins[1])
        self.look(target)
        self.assertEqual([(False, True), (True, True)], self.domain.pins)

    def test_overridden(self) -> None:
        target = self.make(journalled=True)
        self.domain.pins = [(True, False), (True, True)]
        self.assertEqual(1, self.look(target, 'override'))
        self.assertEqual(frozenset(), target.external)
        self.assertEqual(frozenset({0}), target.expected.vcpupins[0])

    def test_overridden_shares_are_the_players_to_write(self) -> None:
        target = self.make(journalled=True)
        self.domain.values[cputune.QUOTA] = 40_000
        self.look(target, 'override')
        self.assertEqual([], self.told)
        self.domain.values[cputune.SHARES] = 7
        self.look(target, 'override')
        self.assertEqual([target.uuid], self.told)

    def test_no_limit_of_ours_that_reads_in_another_way(self) -> None:
        """As on every host with cgroup v2."""
        target = self.make(journalled=True)
        cputune.write_bandwidth(self.domain, 100_000, -1, self.domain.values)
        target.note_written({cputune.PERIOD: 100_000, cputune.QUOTA: -1})
        self.domain.values[cputune.QUOTA] = 18_446_744_073_709_551
        self.assertEqual(0, self.look(target))
        self.assertEqual(frozenset(), target.external)

    def test_weights_of_our_own_windows(self) -> None:
        target = self.make(journalled=True)
        target.event_history.written_shares.add(5)
        self.domain.values[cputune.SHARES] = 5
        self.assertEqual(0, self.look(target))

    def test_what_is_left_of_our_own_failed_write(self) -> None:
        target = self.make(journalled=True, uncertain=True)
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(0, self.look(target))
        self.assertEqual(40_000, target.in_force.quota_us)
        self.assertFalse(target.uncertain)


class TestOverwrittenBandwidth(policy_case.PolicyTestCase):
    """Theirs by an event; a write of ours came just after."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def begin(self) -> None:
        self.domain = policy_case.Domain()
        # The original is 50 of 100 ms.
        self.target = self.make(journalled=True)
        self.target.original = self.target.expected
        self.write()

    def write(self) -> None:
        tune = model.CpuTune(10_000, 5_000)
        self.target.event_history.note_bandwidth(tune)
        cputune.write_bandwidth(self.domain, 10_000, 5_000, self.domain.values)
        self.target.note_written(
            {cputune.PERIOD: 10_000, cputune.QUOTA: 5_000}
        )

    def bandwidth(self) -> tuple[int, int]:
        values = self.domain.values
        return values[cputune.PERIOD], values[cputune.QUOTA]

    def test_is_written_again_and_the_other_is_restored(self) -> None:
        for name, value, wanted in (
            (cputune.QUOTA, 30_000, (100_000, 30_000)),
            (cputune.PERIOD, 80_000, (80_000, 50_000)),
        ):
            with self.subTest(name):
                self.begin()
                self.target.event_history.external = {name: value}
                self.assertEqual(1, self.look(self.target))
                self.assertEqual(wanted, self.bandwidth())
                self.assertEqual({name}, self.target.external)
                self.assertEqual({}, self.target.event_history.external)
                # It was told of once.
                self.assertEqual(0, self.look(self.target))

    def test_overridden_all_the_same(self) -> None:
        self.target.event_history.external = {cputune.QUOTA: 30_000}
        self.assertEqual(1, self.look(self.target, 'override'))
        self.assertEqual((10_000, 5_000), self.bandwidth())
        self.assertEqual(0, self.look(self.target, 'override'))

    def test_a_later_one_of_theirs_stays(self) -> None:
        self.target.event_history.external = {cputune.QUOTA: 30_000}
        self.domain.values[cputune.QUOTA] = 4_000
        self.look(self.target)
        self.assertEqual(4_000, self.bandwidth()[1])
        self.assertEqual({cputune.QUOTA}, self.target.external)

    def test_nor_is_it_ours_because_we_have_written_it_once(self) -> None:
        """As they have set it twice, the second time to what it was."""
        self.target.event_history.note_bandwidth(
            model.CpuTune(100_000, 50_000)
        )
        self.write()
        self.target.event_history.external = {cputune.QUOTA: 30_000}
        cputune.write_bandwidth(
            self.domain, 100_000, 50_000, self.domain.values
        )
        self.look(self.target)
        self.assertEqual((100_000, 50_000), self.bandwidth())

    def test_before_our_first_write_it_is_the_original(self) -> None:
        self.target.journalled = False
        self.target.event_history.external = {cputune.QUOTA: 30_000}
        self.assertEqual(0, self.look(self.target))
        self.assertEqual({}, self.target.event_history.external)

    def test_what_could_not_be_given_back_is_tried_again(self) -> None:
        self.target.event_history.external = {cputune.QUOTA: 30_000}
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(
            cputune, 'write_bandwidth', side_effect=refused
        ):
            self.assertRaises(libvirt.libvirtError, self.look, self.target)
        self.look(self.target)
        self.assertEqual((100_000, 30_000), self.bandwidth())

    def test_put_back_before_anybody_looked(self) -> None:
        self.target.event_history.external = {cputune.QUOTA: 30_000}
        self.restore(self.target, self.changes())
        self.assertEqual((100_000, 30_000), self.bandwidth())
        self.assertEqual({cputune.QUOTA}, self.target.external)


class TestSharesInWindows(policy_case.PolicyTestCase):
    """Theirs by an event; a window may have written over them since."""

    def setUp(self) -> None:
        super().setUp()
        self.target = self.make(journalled=True)
        self.target.event_history.written_shares.add(20)
        self.target.note_written({cputune.SHARES: 20})
        self.target.event_history.external_shares = 333
        self.domain.values[cputune.SHARES] = 20

    def shares(self) -> int:
        return self.domain.values[cputune.SHARES]

    def test_written_over_and_given_back(self) -> None:
        self.assertEqual(1, self.look(self.target))
        self.assertEqual(333, self.shares())
        self.assertEqual(333, self.target.in_force.shares)
        self.assertEqual({cputune.SHARES}, self.journal.load('u').external)
        self.assertIsNone(self.target.event_history.external_shares)
        self.assertEqual(0, self.look(self.target))

    def test_still_there(self) -> None:
        self.domain.values[cputune.SHARES] = 333
        self.assertEqual(1, self.look(self.target))
        self.assertEqual({cputune.SHARES}, self.target.external)
        self.assertEqual(333, self.shares())

    def test_a_later_one_of_theirs_stays(self) -> None:
        self.domain.values[cputune.SHARES] = 444
        self.look(self.target)
        self.assertEqual(444, self.shares())

    def test_nor_is_it_ours_because_we_have_written_it_once(self) -> None:
        """As they have set it twice, the second time to what it was."""
        self.target.event_history.written_shares.add(1024)
        self.domain.values[cputune.SHARES] = 1024
        self.assertEqual(1, self.look(self.target))
        self.assertEqual({cputune.SHARES}, self.target.external)
        self.assertEqual(1024, self.shares())

    def test_also_after_a_write_of_ours_that_failed(self) -> None:
        self.target.uncertain = True
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(1, self.look(self.target))
        self.assertEqual({cputune.SHARES}, self.target.external)
        self.assertEqual(333, self.shares())

    def test_overridden_all_the_same(self) -> None:
        self.assertEqual(1, self.look(self.target, 'override'))
        self.assertEqual(20, self.shares())
        self.assertEqual(['u'], self.told)
        self.assertIsNone(self.target.event_history.external_shares)

    def test_before_our_first_write(self) -> None:
        self.target.journalled = False
        self.domain.values[cputune.SHARES] = 333
        self.assertEqual(0, self.look(self.target))
        self.assertEqual(333, self.target.original.parameters[cputune.SHARES])
        self.assertEqual(frozenset(), self.target.external)

    def test_what_could_not_be_given_back_is_tried_again(self) -> None:
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(cputune, 'write_shares', side_effect=refused):
            self.assertRaises(libvirt.libvirtError, self.look, self.target)
        self.look(self.target)
        self.assertEqual(333, self.shares())

    def test_another_event_meanwhile(self) -> None:
        read = cputune.read

        def read_late(*arguments: Any) -> cputune.Cputune:
            self.target.event_history.external_shares = 444
            return read(*arguments)

        with mock.patch.object(cputune, 'read', read_late):
            self.look(self.target)
        # Its look is still to come.
        self.assertEqual(444, self.target.event_history.external_shares)
        self.assertEqual(444, self.shares())
        self.look(self.target)
        self.assertEqual(444, self.shares())

    def test_put_back_when_a_look_could_not_give_it_back(self) -> None:
        changes = self.changes()
        refused = fake_libvirt.refused('busy')
        changes.check(self.target)
        for _ in range(2):
            with mock.patch.object(
                cputune, 'write_shares', side_effect=refused
            ):
                self.assertRaises(
                    libvirt.libvirtError, self.restore, self.target, changes
                )
            self.assertEqual(20, self.shares())
        self.restore(self.target, changes)
        self.assertEqual(333, self.shares())

    def test_is_written_again_though_the_journal_cannot_be_written(
        self,
    ) -> None:
        full = JournalError('full')
        with mock.patch.object(self.journal, 'save', side_effect=full):
            self.assertRaises(JournalError, self.look, self.target)
        self.assertEqual(333, self.shares())

    def test_no_window_writes_while_we_look(self) -> None:
        """Else its value would be taken for theirs, and stay for ever."""
        held: list[bool] = []
        read = cputune.read

        def note(*arguments: Any) -> cputune.Cputune:
            held.append(self.target.lock.locked())
            return read(*arguments)

        with mock.patch.object(cputune, 'read', note):
            self.look(self.target)
        self.assertEqual({True}, set(held))
        self.assertFalse(self.target.lock.locked())
