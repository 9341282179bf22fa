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

"""What somebody else wrote: respected, or overridden."""

import dataclasses
import tempfile
import types
from typing import Any
from unittest import mock

import libvirt
from oslotest import base

from nova_vhpc.agent import context
from nova_vhpc.agent.external_changes import (
    cpu_hotplug,
    misdirected_writes,
    policy,
)
from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.guests import test_guest
from nova_vhpc.tests.unit.agent.libvirt import test_cputune

BOTH = frozenset({0, 1})


class Domain(test_cputune.Cgroup):
    """Takes the mark, too."""

    def __init__(self) -> None:
        super().__init__(100_000, 50_000, 1.0)
        self.uuid = 'u'
        self.cpuset: frozenset[int] | None = None
        self.marked = False
        self.meanwhile = lambda: None

    def ID(self) -> int:
        return 1

    def setMetadata(self, *arguments: Any) -> None:
        self.marked = True
        self.meanwhile()


class Processes:
    """Knows the CPUs of a domain's control group."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def cpuset(self, pid: int) -> frozenset[int] | None:
        return self.domain.cpuset


class ForeignCase(base.BaseTestCase):
    """A VM in a libvirt of memory, and a journal."""

    def setUp(self) -> None:
        super().setUp()
        self.journal = store.Journal(tempfile.mkdtemp())
        self.journal.prepare()
        self.domain = Domain()
        self.told: list[str] = []

    def make(self, **changes: Any) -> guest.Guest:
        target = test_guest.make(**changes)
        target.domain = self.domain
        target.set_expected(cputune.read(self.domain))
        return target

    def online(self) -> frozenset[int]:
        return cputune.pin_cpus(self.domain.online)

    def changes(self, choice: str = 'respect') -> policy.ExternalChangePolicy:
        connection = fake_libvirt.Link(self.domain)
        processes = Processes(self.domain)
        return policy.ExternalChangePolicy(
            context.HostContext(
                None, None, connection, None, self.journal, processes
            ),
            types.SimpleNamespace(foreign_changes=choice),
            cpu_hotplug.CpuHotplug(self.journal, self.online),
            misdirected_writes.MisdirectedWrites(connection, processes),
            self,
        )

    def forget(self, uuid: str) -> None:
        """Note that a guest's shares must be written again."""
        self.told.append(uuid)

    def look(self, target: guest.Guest, choice: str = 'respect') -> int:
        changes = self.changes(choice)
        changes.check(target)
        return changes.count


class TestForeignChanges(ForeignCase):
    def test_nothing_changed(self) -> None:
        self.assertEqual(0, self.look(self.make(journalled=True)))
        self.assertFalse(self.domain.marked)

    def test_before_our_first_write_it_is_the_original(self) -> None:
        target = self.make()
        self.domain.values[cputune.SHARES] = 77
        self.domain.pins = [(True, False), (True, False)]
        self.assertEqual(0, self.look(target))
        self.assertEqual(77, target.original_tune.shares)
        self.assertEqual(77, target.original.parameters[cputune.SHARES])
        self.assertEqual(frozenset({0}), target.allowed_cpus)

    def test_respected(self) -> None:
        target = self.make(journalled=True)
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(1, self.look(target))
        self.assertEqual({cputune.QUOTA}, target.released)
        self.assertEqual(target.released, self.journal.load('u').released)
        self.assertTrue(self.domain.marked)
        self.domain.values[cputune.QUOTA] = 30_000
        self.assertEqual(0, self.look(target))

    def test_what_systemd_puts_back_is_written_anew(self) -> None:
        """It does not know of what windows write into the file."""
        target = self.make(journalled=True)
        target.original = target.expected
        target.weight = cgroup_weight.WeightFile(None)
        target.weight.proven = True
        target.note_written({cputune.SHARES: 20})
        self.assertEqual(0, self.look(target))
        self.assertEqual(frozenset(), target.released)
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
        target.set_expected(cputune.read(self.domain))
        return target

    def test_whoever_sets_one_of_two_gets_the_other_as_it_was(self) -> None:
        for name, value, other, was in (
            (cputune.PERIOD, 77_000, cputune.QUOTA, 50_000),
            (cputune.QUOTA, 25_000, cputune.PERIOD, 100_000),
        ):
            self.domain = Domain()
            target = self.written()
            self.domain.values[name] = value
            self.assertEqual(1, self.look(target))
            self.assertEqual(value, self.domain.values[name])
            self.assertEqual(was, self.domain.values[other])
            self.assertEqual(was, target.expected.parameters[other])
            # And nothing more than that, now and when we leave.
            self.assertEqual(0, self.look(target))
            self.assertEqual([(True, False), (False, True)], self.domain.pins)
            cputune_restore.restore(
                self.domain, target.original, target.released
            )
            self.assertEqual(value, self.domain.values[name])
            self.assertEqual([(True, True)] * 2, self.domain.pins)

    def test_whoever_pins_one_vcpu_gets_the_others_as_they_were(self) -> None:
        target = self.written()
        self.domain.pins[0] = (False, True)
        self.assertEqual(1, self.look(target))
        self.assertEqual({cputune.pin_name(0)}, target.released)
        self.assertEqual([(False, True), (True, True)], self.domain.pins)
        self.assertEqual(8_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(0, self.look(target))
        cputune_restore.restore(self.domain, target.original, target.released)
        self.assertEqual([(False, True), (True, True)], self.domain.pins)

    def test_whoever_sets_one_after_the_other_keeps_both(self) -> None:
        """The second one comes while the first one is journalled."""

        def set_next() -> None:
            self.domain.values[cputune.PERIOD] = 77_000
            self.domain.pins[1] = (True, False)

        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.domain.pins[0] = (False, True)
        self.domain.meanwhile = set_next
        self.assertEqual(2, self.look(target))
        self.domain.meanwhile = lambda: None
        self.assertEqual(2, self.look(target))
        self.assertEqual(77_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(25_000, self.domain.values[cputune.QUOTA])
        self.assertEqual([(False, True), (True, False)], self.domain.pins)
        self.assertEqual(target.released, self.journal.load('u').released)

    def test_also_where_it_comes_just_before_ours_is_put_back(self) -> None:
        """Then libvirt's event alone tells of it."""
        target = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        restore = cputune_restore.restore

        def set_next(*arguments: Any) -> tuple[str, ...]:
            self.domain.values[cputune.PERIOD] = 77_000
            target.echoes.theirs = {cputune.PERIOD: 77_000}
            return restore(*arguments)

        with mock.patch.object(cputune_restore, 'restore', set_next):
            self.look(target)
        self.look(target)
        self.assertEqual(77_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(25_000, self.domain.values[cputune.QUOTA])
        self.assertEqual({cputune.PERIOD, cputune.QUOTA}, target.released)

    def test_what_libvirt_says_it_has_put_back_and_has_not(self) -> None:
        for name, value in ((cputune.QUOTA, 25_000), (cputune.PERIOD, 77_000)):
            self.domain = Domain()
            target = self.written()
            self.domain.values[name] = value
            self.domain.pins[0] = (False, True)
            with (
                mock.patch.object(self.domain, 'setSchedulerParametersFlags'),
                mock.patch.object(self.domain, 'pinVcpuFlags'),
            ):
                self.assertEqual(2, self.look(target))
            self.assertEqual(0, self.look(target))
            released = {name, cputune.pin_name(0)}
            self.assertEqual(released, target.released)
            original = target.original
            left = cputune.differences(
                original, cputune.read(self.domain), target.released
            )
            self.assertEqual((), left)

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
            self.journal, 'save', side_effect=store.JournalError('full')
        ):
            self.assertRaises(store.JournalError, self.look, target)
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

    def test_what_could_not_be_taken_back_is_tried_again(self) -> None:
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
        self.assertEqual(frozenset(), target.released)
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
        self.assertEqual(frozenset(), target.released)

    def test_weights_of_our_own_windows(self) -> None:
        target = self.make(journalled=True)
        target.echoes.shares_ours.add(5)
        self.domain.values[cputune.SHARES] = 5
        self.assertEqual(0, self.look(target))

    def test_what_is_left_of_our_own_failed_write(self) -> None:
        target = self.make(journalled=True, uncertain=True)
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(0, self.look(target))
        self.assertEqual(40_000, target.in_force.quota_us)
        self.assertFalse(target.uncertain)


class TestBandwidthWrittenOver(ForeignCase):
    """Theirs by an event; a write of ours came just after."""

    def setUp(self) -> None:
        super().setUp()
        # The original is 50 of 100 ms.
        self.target = self.make(journalled=True)
        self.target.original = self.target.expected
        self.write()

    def write(self) -> None:
        tune = model.CpuTune(10_000, 5_000)
        self.target.echoes.note_bandwidth(tune)
        cputune.write_bandwidth(self.domain, 10_000, 5_000, self.domain.values)
        self.target.note_written(
            {cputune.PERIOD: 10_000, cputune.QUOTA: 5_000}
        )

    def bandwidth(self) -> tuple[int, int]:
        values = self.domain.values
        return values[cputune.PERIOD], values[cputune.QUOTA]

    def test_given_back_with_what_belongs_to_it(self) -> None:
        for name, value, wanted in (
            (cputune.QUOTA, 30_000, (100_000, 30_000)),
            (cputune.PERIOD, 80_000, (80_000, 50_000)),
        ):
            with self.subTest(name):
                self.target.released = frozenset()
                self.write()
                self.target.echoes.theirs = {name: value}
                self.assertEqual(1, self.look(self.target))
                self.assertEqual(wanted, self.bandwidth())
                self.assertEqual({name}, self.target.released)
                self.assertEqual({}, self.target.echoes.theirs)
                # It was told of once.
                self.assertEqual(0, self.look(self.target))

    def test_overridden_all_the_same(self) -> None:
        self.target.echoes.theirs = {cputune.QUOTA: 30_000}
        self.assertEqual(1, self.look(self.target, 'override'))
        self.assertEqual((10_000, 5_000), self.bandwidth())
        self.assertEqual(0, self.look(self.target, 'override'))

    def test_a_later_one_of_theirs_stays(self) -> None:
        self.target.echoes.theirs = {cputune.QUOTA: 30_000}
        self.domain.values[cputune.QUOTA] = 4_000
        self.look(self.target)
        self.assertEqual(4_000, self.bandwidth()[1])
        self.assertEqual({cputune.QUOTA}, self.target.released)

    def test_nor_is_it_ours_because_we_have_written_it_once(self) -> None:
        """As they have set it twice, the second time to what it was."""
        self.target.echoes.note_bandwidth(model.CpuTune(100_000, 50_000))
        self.write()
        self.target.echoes.theirs = {cputune.QUOTA: 30_000}
        cputune.write_bandwidth(
            self.domain, 100_000, 50_000, self.domain.values
        )
        self.look(self.target)
        self.assertEqual((100_000, 50_000), self.bandwidth())

    def test_before_our_first_write_it_is_the_original(self) -> None:
        self.target.journalled = False
        self.target.echoes.theirs = {cputune.QUOTA: 30_000}
        self.assertEqual(0, self.look(self.target))
        self.assertEqual({}, self.target.echoes.theirs)

    def test_what_could_not_be_given_back_is_tried_again(self) -> None:
        self.target.echoes.theirs = {cputune.QUOTA: 30_000}
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(
            cputune, 'write_bandwidth', side_effect=refused
        ):
            self.assertRaises(libvirt.libvirtError, self.look, self.target)
        self.look(self.target)
        self.assertEqual((100_000, 30_000), self.bandwidth())

    def test_put_back_before_anybody_looked(self) -> None:
        self.target.echoes.theirs = {cputune.QUOTA: 30_000}
        self.changes().settle(self.target)
        self.assertEqual((100_000, 30_000), self.bandwidth())
        self.assertEqual({cputune.QUOTA}, self.target.released)


class TestSharesInWindows(ForeignCase):
    """Theirs by an event; a window may have written over them since."""

    def setUp(self) -> None:
        super().setUp()
        self.target = self.make(journalled=True)
        self.target.echoes.shares_ours.add(20)
        self.target.note_written({cputune.SHARES: 20})
        self.target.echoes.shares_theirs = 333
        self.domain.values[cputune.SHARES] = 20

    def shares(self) -> int:
        return self.domain.values[cputune.SHARES]

    def test_written_over_and_given_back(self) -> None:
        self.assertEqual(1, self.look(self.target))
        self.assertEqual(333, self.shares())
        self.assertEqual(333, self.target.in_force.shares)
        self.assertEqual({cputune.SHARES}, self.journal.load('u').released)
        self.assertIsNone(self.target.echoes.shares_theirs)
        self.assertEqual(0, self.look(self.target))

    def test_still_there(self) -> None:
        self.domain.values[cputune.SHARES] = 333
        self.assertEqual(1, self.look(self.target))
        self.assertEqual({cputune.SHARES}, self.target.released)
        self.assertEqual(333, self.shares())

    def test_a_later_one_of_theirs_stays(self) -> None:
        self.domain.values[cputune.SHARES] = 444
        self.look(self.target)
        self.assertEqual(444, self.shares())

    def test_nor_is_it_ours_because_we_have_written_it_once(self) -> None:
        """As they have set it twice, the second time to what it was."""
        self.target.echoes.shares_ours.add(1024)
        self.domain.values[cputune.SHARES] = 1024
        self.assertEqual(1, self.look(self.target))
        self.assertEqual({cputune.SHARES}, self.target.released)
        self.assertEqual(1024, self.shares())

    def test_also_after_a_write_of_ours_that_failed(self) -> None:
        self.target.uncertain = True
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(1, self.look(self.target))
        self.assertEqual({cputune.SHARES}, self.target.released)
        self.assertEqual(333, self.shares())

    def test_overridden_all_the_same(self) -> None:
        self.assertEqual(1, self.look(self.target, 'override'))
        self.assertEqual(20, self.shares())
        self.assertEqual(['u'], self.told)
        self.assertIsNone(self.target.echoes.shares_theirs)

    def test_before_our_first_write(self) -> None:
        self.target.journalled = False
        self.domain.values[cputune.SHARES] = 333
        self.assertEqual(0, self.look(self.target))
        self.assertEqual(333, self.target.original.parameters[cputune.SHARES])
        self.assertEqual(frozenset(), self.target.released)

    def test_what_could_not_be_given_back_is_tried_again(self) -> None:
        refused = fake_libvirt.refused('busy')
        with mock.patch.object(cputune, 'write_shares', side_effect=refused):
            self.assertRaises(libvirt.libvirtError, self.look, self.target)
        self.look(self.target)
        self.assertEqual(333, self.shares())

    def test_another_event_meanwhile(self) -> None:
        read = cputune.read

        def read_late(*arguments: Any) -> cputune.Cputune:
            self.target.echoes.shares_theirs = 444
            return read(*arguments)

        with mock.patch.object(cputune, 'read', read_late):
            self.look(self.target)
        # Its look is still to come.
        self.assertEqual(444, self.target.echoes.shares_theirs)
        self.assertEqual(444, self.shares())
        self.look(self.target)
        self.assertEqual(444, self.shares())

    def test_put_back_when_a_look_could_not_give_it_back(self) -> None:
        changes = self.changes()
        refused = fake_libvirt.refused('busy')
        for method in (changes.check, changes.settle):
            with mock.patch.object(
                cputune, 'write_shares', side_effect=refused
            ):
                self.assertRaises(libvirt.libvirtError, method, self.target)
            self.assertEqual(20, self.shares())
        changes.settle(self.target)
        self.assertEqual(333, self.shares())

    def test_given_back_before_the_journal_calls_it_theirs(self) -> None:
        full = store.JournalError('full')
        with mock.patch.object(self.journal, 'save', side_effect=full):
            self.assertRaises(store.JournalError, self.look, self.target)
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
        self.assertEqual([True], held)
        self.assertFalse(self.target.lock.locked())
