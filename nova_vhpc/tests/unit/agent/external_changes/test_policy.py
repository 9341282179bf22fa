# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""External changes: the server is handed back, or they are overridden."""

import contextlib
import dataclasses
from typing import Any, NamedTuple
from unittest import mock

import hypothesis
import libvirt
from hypothesis import strategies as st

from nova_vhpc.agent.guests.guest import Guest
from nova_vhpc.agent.journal import written_values
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.libvirt import cgroup_weight, cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.agent.restore import recovery
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.external_changes import policy_case

ALL = [(True, True)] * 2


class Case(NamedTuple):
    """What happened to one value of a guest.

    :ivar original: before the agent's first write.
    :ivar written: by the agent; maybe the original again.
    :ivar event: external value that the agent replaced, by an event; or None.
    :ivar external: external value in force; None if there is none.
    """

    original: Any
    written: Any
    event: Any
    external: Any

    @property
    def in_force(self) -> Any:
        return self.written if self.external is None else self.external

    @property
    def chosen(self) -> Any:
        """The value that somebody else chose last, or None."""
        return self.event if self.external is None else self.external


def cases(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    """Return cases of one value; all that differ in what they are differ."""
    return st.lists(values, min_size=4, max_size=4, unique=True).flatmap(
        lambda four: st.builds(
            Case,
            st.just(four[0]),
            st.sampled_from(four[:2]),
            st.sampled_from((None, None, four[2])),
            st.sampled_from((None, None, four[3])),
        )
    )


numbers = st.integers(1_000, 1_000_000)
pins = st.sets(st.integers(0, 2), min_size=1).map(frozenset)
by_name = st.fixed_dictionaries(
    {
        **dict.fromkeys(policy_case.NUMBERS, cases(numbers)),
        **dict.fromkeys(policy_case.PINS, cases(pins)),
    }
)


class AnyChangeTest(policy_case.PolicyTestCase):
    """Whatever the agent wrote, and whatever somebody else set since."""

    def setUp(self) -> None:
        super().setUp()
        # The disk would take most of the time of hundreds of journals.
        patch = mock.patch('os.fsync')
        patch.start()
        self.addCleanup(patch.stop)

    def begin(
        self, by_name: dict[str, Case], journalled: bool, has_file: bool
    ) -> Guest:
        """Return a guest to which all this happened."""
        self.domain = policy_case.Domain()
        self.domain.limit = 1e9
        self.domain.online = (True,) * 3
        self.forgotten_shares.clear()
        self.journal.remove('u')
        self.domain.put({n: case.original for n, case in by_name.items()})
        guest = self.make(journalled=journalled, online=self.online())
        guest.set_original(guest.expected)
        guest.set_allowed_cpus(guest.expected.cpus)
        if journalled:
            self.act(guest, {n: case.written for n, case in by_name.items()})
        # A guest with weights in a file is checked without stopping windows.
        guest.lock_free_weights = frozenset({1} if has_file else ())
        for name, case in by_name.items():
            if case.external is not None:
                self.domain.put({name: case.external})
            if journalled and case.event is not None:
                self.report(guest, name, case.event)
        return guest

    def act(self, guest: Guest, values: dict[str, Any]) -> None:
        """Write as the agent does."""
        self.domain.put(values)
        guest.written = written_values.with_values(guest.written, values)
        guest.event_history.note(values)
        guest.event_history.written_shares.add(values[cputune.SHARES])
        guest.note_written(
            {name: values[name] for name in policy_case.NUMBERS},
            {vcpu: values[n] for vcpu, n in enumerate(policy_case.PINS)},
        )

    def report(self, guest: Guest, name: str, value: Any) -> None:
        """Report a value by an event of libvirt."""
        history = guest.event_history
        if name == cputune.SHARES:
            history.external_shares = value
        else:
            history.external = {**history.external, name: value}

    def fail(self, guest: Guest, fault: str) -> None:
        """Have libvirt or the disk refuse the first look."""
        refused = fake_libvirt.refused('busy')
        with contextlib.ExitStack() as stack:
            if fault == 'libvirt':
                for call in ('setSchedulerParametersFlags', 'pinVcpuFlags'):
                    stack.enter_context(
                        mock.patch.object(
                            self.domain, call, side_effect=refused
                        )
                    )
            else:
                full = JournalError('full')
                stack.enter_context(
                    mock.patch.object(self.journal, 'save', side_effect=full)
                )
            try:
                self.look(guest)
            except (libvirt.libvirtError, JournalError):
                # As the restore queue notes after a failure.
                guest.uncertain = True

    @hypothesis.given(
        by_name,
        st.sampled_from(('', 'libvirt', 'disk', 'no check')),
        st.booleans(),
    )
    def test_external_values_stay_and_all_else_is_restored(
        self, by_name: dict[str, Case], fault: str, has_file: bool
    ) -> None:
        guest = self.begin(by_name, True, has_file)
        external = {
            name: case.chosen
            for name, case in by_name.items()
            if case.chosen is not None
        }
        before = self.domain.get()
        if fault == 'no check':
            # The operator has it restored before any check.
            self.restore(guest, self.changes())
        elif fault:
            self.fail(guest, fault)
            self.look(guest)
        else:
            self.assertEqual(len(external), self.look(guest))
        self.assertEqual(external.keys(), guest.external)
        if external or fault == 'no check':
            wanted = {name: case.original for name, case in by_name.items()}
            self.assertEqual({**wanted, **external}, self.domain.get())
            self.assertFalse(guest.journalled)
            self.assertFalse(self.domain.has_metadata_copy)
        else:
            self.assertEqual(before, self.domain.get())
            self.assertTrue(guest.journalled)
        if external:
            self.assert_handed_back(guest, *external)
        else:
            self.assertEqual((), self.journal.uuids())
            self.assertTrue(guest.free_to_write)

    @hypothesis.given(by_name, st.booleans())
    def test_external_values_are_overridden(
        self, by_name: dict[str, Case], has_file: bool
    ) -> None:
        guest = self.begin(by_name, True, has_file)
        external = {n for n, case in by_name.items() if case.chosen}
        before = self.domain.get()
        self.assertEqual(len(external), self.look(guest, 'override'))
        # The next plan differs from what is expected, and is written.
        self.assertEqual(before, written_values.values(guest.expected))
        self.assertEqual(before, self.domain.get())
        self.assertEqual(frozenset(), guest.external)
        self.assertEqual(
            ['u'] if cputune.SHARES in external else [], self.forgotten_shares
        )
        self.assertEqual(0, self.look(guest, 'override'))

    @hypothesis.given(by_name)
    def test_values_before_the_first_write_are_original(
        self, by_name: dict[str, Case]
    ) -> None:
        guest = self.begin(by_name, False, has_file=False)
        before = self.domain.get()
        self.assertEqual(0, self.look(guest))
        self.assertEqual(before, self.domain.get())
        self.assertEqual(before, written_values.values(guest.original))
        self.assertEqual(
            before[policy_case.PINS[0]] | before[policy_case.PINS[1]],
            guest.allowed_cpus,
        )
        self.assertTrue(guest.free_to_write)
        self.assertEqual((), self.journal.uuids())


class ExternalChangesTest(policy_case.PolicyTestCase):
    def test_weight_reset_by_systemd_is_written_again(self) -> None:
        """systemd does not know weights that windows wrote to the file."""
        guest = self.make(journalled=True)
        guest.original = guest.expected
        guest.weight_file = cgroup_weight.WeightFile(None)
        guest.weight_file.proven = True
        guest.note_written({cputune.SHARES: 20})
        guest.lock_free_weights = frozenset({20})
        self.assertEqual(0, self.look(guest))
        self.assertEqual(frozenset(), guest.external)
        self.assertEqual(['u'], self.forgotten_shares)
        self.assertEqual(1024, guest.in_force.shares)
        self.assertEqual(0, self.look(guest))
        self.assertEqual(['u'], self.forgotten_shares)

    def written(self) -> Guest:
        """Return a guest with a time slice and pins of the agent."""
        guest = self.make(journalled=True)
        guest.original = guest.expected
        cputune.write_bandwidth(self.domain, 8_000, 4_000, self.domain.values)
        self.domain.pins = [(True, False), (False, True)]
        self.domain.pinned = {0, 1}
        guest.set_expected(cputune.read(self.domain))
        return guest

    def test_later_changes_of_a_server_handed_back_stay(self) -> None:
        guest = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.look(guest)
        self.domain.values[cputune.SHARES] = 8_000
        self.domain.pins[1] = (True, False)
        self.assertEqual(0, self.look(guest))
        self.assertEqual(8_000, self.domain.values[cputune.SHARES])
        self.assertEqual((True, False), self.domain.pins[1])

    def test_values_set_one_after_the_other_both_stay(self) -> None:
        """The second one comes while the first one is journalled."""

        def set_next() -> None:
            self.domain.values[cputune.PERIOD] = 77_000
            self.domain.pins[1] = (True, False)

        guest = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.domain.pins[0] = (False, True)
        self.domain.meanwhile = set_next
        self.look(guest)
        self.domain.meanwhile = lambda: None
        self.look(guest)
        self.assertEqual(77_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(25_000, self.domain.values[cputune.QUOTA])
        self.assertEqual([(False, True), (True, False)], self.domain.pins)

    def test_value_set_just_before_its_original_is_written_stays(self) -> None:
        """The restore replaced it; only libvirt's event tells of it."""
        for name, value in (
            (cputune.PERIOD, 77_000),
            (cputune.SHARES, 444),
            (cputune.pin_name(1), frozenset({0})),
        ):
            with self.subTest(name):
                self.domain = policy_case.Domain()
                guest = self.written()
                self.domain.values[cputune.SHARES] = 20
                guest.note_written({cputune.SHARES: 20})
                guest.event_history.written_shares.add(20)
                self.domain.values[cputune.QUOTA] = 25_000
                self.look(guest)
                if name == cputune.SHARES:
                    guest.event_history.external_shares = value
                else:
                    guest.event_history.external = {name: value}
                self.assertEqual(1, self.look(guest))
                now = self.in_force()
                self.assertEqual(value, now[name])
                self.assertEqual(25_000, now[cputune.QUOTA])
                self.assert_handed_back(guest, name, cputune.QUOTA)

    def in_force(self) -> dict[str, Any]:
        pins = enumerate(map(cputune.pin_cpus, self.domain.pins))
        return {
            **self.domain.values,
            **{cputune.pin_name(vcpu): pin for vcpu, pin in pins},
        }

    def test_restore_that_libvirt_did_not_do_is_retried(self) -> None:
        guest = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        with (
            mock.patch.object(self.domain, 'setSchedulerParametersFlags'),
            mock.patch.object(self.domain, 'pinVcpuFlags'),
        ):
            self.assertRaises(recovery.RestoreError, self.look, guest)
        self.assertTrue(guest.journalled)
        self.assertFalse(guest.free_to_write)
        self.assertFalse(self.journal.load('u').is_handed_back)
        self.look(guest)
        self.assertEqual(100_000, self.domain.values[cputune.PERIOD])
        self.assertEqual(ALL, self.domain.pins)
        self.assert_handed_back(guest, cputune.QUOTA)

    def test_record_before_the_restore_leaves_the_external_value_alone(
        self,
    ) -> None:
        """As for --restore, if the agent is killed before it restores."""
        guest = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        self.changes().check(guest)
        record = self.journal.load('u')
        self.assertEqual({cputune.QUOTA}, record.unmanaged_fields)
        self.assertEqual({cputune.QUOTA}, record.external)
        self.assertFalse(record.is_handed_back)
        cputune_restore.restore(
            self.domain, record.original, record.unmanaged_fields
        )
        self.assertEqual(25_000, self.domain.values[cputune.QUOTA])
        self.assertEqual(100_000, self.domain.values[cputune.PERIOD])

    def test_guest_is_not_resumed_before_all_is_restored(self) -> None:
        guest = self.written()
        self.domain.values[cputune.QUOTA] = 25_000
        changes = self.changes()
        changes.check(guest)
        self.assertIn('try again', changes.resume(guest))
        self.assertEqual({cputune.QUOTA}, guest.external)

    def test_plugged_in_vcpus_are_restored_too(self) -> None:
        guest = self.written()
        guest.lock_free_weights = frozenset({1024})
        self.domain.pins += [(False, True)]
        guest.set_info(dataclasses.replace(guest.info, vcpus=3))
        self.assertEqual(0, self.look(guest))
        self.assertEqual(3, len(guest.original_tune.vcpu_pins or ()))
        record = self.journal.load('u')
        self.assertEqual(guest.original, record.original)
        self.domain.pins[2] = (True, False)
        cputune_restore.restore(self.domain, record.original)
        self.assertEqual(
            [(True, True), (True, True), (False, True)], self.domain.pins
        )

    def test_vcpus_that_cannot_be_journalled_are_not_expected(self) -> None:
        guest = self.written()
        self.domain.pins += [(True, True)]
        with mock.patch.object(
            self.journal, 'save', side_effect=JournalError('full')
        ):
            self.assertRaises(JournalError, self.look, guest)
        self.assertEqual(2, len(guest.expected.vcpupins))
        self.look(guest)
        self.assertEqual(3, len(guest.expected.vcpupins))
        self.assertEqual(3, len(guest.original.vcpupins))

    def test_external_pin_of_a_plugged_out_vcpu_is_ignored(self) -> None:
        guest = self.written()
        guest.event_history.note({cputune.pin_name(1): frozenset({1})})
        guest.event_history.external = {cputune.pin_name(1): frozenset({0})}
        del self.domain.pins[1]
        guest.set_info(dataclasses.replace(guest.info, vcpus=1))
        self.assertEqual(0, self.look(guest))

    def test_plugged_out_vcpus_are_no_external_change(self) -> None:
        guest = self.written()
        del self.domain.pins[1]
        guest.set_info(dataclasses.replace(guest.info, vcpus=1))
        self.assertEqual(0, self.look(guest))
        # Without planned pins, there is nothing to write.
        self.assertEqual(1, len(guest.original_tune.vcpu_pins or ()))
        self.assertEqual(2, len(guest.original.vcpupins))

    def test_no_limit_in_another_number_is_no_external_change(self) -> None:
        """cgroup v2 reads it as a large number."""
        guest = self.make(journalled=True)
        cputune.write_bandwidth(self.domain, 100_000, -1, self.domain.values)
        guest.note_written({cputune.PERIOD: 100_000, cputune.QUOTA: -1})
        self.domain.values[cputune.QUOTA] = 18_446_744_073_709_551
        self.assertEqual(0, self.look(guest))
        self.assertEqual(frozenset(), guest.external)

    def test_rest_of_a_failed_write_is_no_external_change(self) -> None:
        guest = self.make(
            journalled=True,
            uncertain=True,
            lock_free_weights=frozenset({1024}),
        )
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(0, self.look(guest))
        self.assertEqual(40_000, guest.in_force.quota_us)
        self.assertFalse(guest.uncertain)


class OverwrittenBandwidthTest(policy_case.PolicyTestCase):
    """An event reports an external value that the agent replaced."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def begin(self) -> None:
        self.domain = policy_case.Domain()
        # The original is 50 of 100 ms.
        self.guest = self.make(journalled=True)
        self.guest.original = self.guest.expected
        self.write()

    def write(self) -> None:
        tune = model.CpuTune(10_000, 5_000)
        self.guest.event_history.note_bandwidth(tune)
        cputune.write_bandwidth(self.domain, 10_000, 5_000, self.domain.values)
        self.guest.note_written({cputune.PERIOD: 10_000, cputune.QUOTA: 5_000})

    def bandwidth(self) -> tuple[int, int]:
        values = self.domain.values
        return values[cputune.PERIOD], values[cputune.QUOTA]

    def test_bandwidth_that_the_agent_wrote_earlier_is_external(self) -> None:
        """It was set externally twice, then to a value of the agent."""
        self.guest.event_history.note_bandwidth(model.CpuTune(100_000, 50_000))
        self.write()
        self.guest.event_history.external = {cputune.QUOTA: 30_000}
        cputune.write_bandwidth(
            self.domain, 100_000, 50_000, self.domain.values
        )
        self.look(self.guest)
        self.assertEqual((100_000, 50_000), self.bandwidth())

    def test_overwritten_quota_before_the_first_write_is_ignored(self) -> None:
        self.guest.journalled = False
        self.guest.event_history.external = {cputune.QUOTA: 30_000}
        self.assertEqual(0, self.look(self.guest))
        self.assertEqual({}, self.guest.event_history.external)


class SharesInWindowsTest(policy_case.PolicyTestCase):
    """An event reports shares that a window may have replaced."""

    def setUp(self) -> None:
        super().setUp()
        self.guest = self.make(journalled=True)
        self.guest.event_history.written_shares.add(20)
        self.guest.note_written({cputune.SHARES: 20})
        self.guest.event_history.external_shares = 333
        self.domain.values[cputune.SHARES] = 20

    def shares(self) -> int:
        return self.domain.values[cputune.SHARES]

    def test_shares_that_a_window_wrote_earlier_are_external(self) -> None:
        """It was set externally twice, then to a value of the agent."""
        self.guest.event_history.written_shares.add(1024)
        self.domain.values[cputune.SHARES] = 1024
        self.assertEqual(1, self.look(self.guest))
        self.assertEqual({cputune.SHARES}, self.guest.external)
        self.assertEqual(1024, self.shares())

    def test_overwritten_shares_are_restored_after_a_failed_write(
        self,
    ) -> None:
        self.guest.uncertain = True
        self.domain.values[cputune.QUOTA] = 40_000
        self.assertEqual(1, self.look(self.guest))
        self.assertEqual({cputune.SHARES}, self.guest.external)
        self.assertEqual(333, self.shares())

    def test_event_during_a_check_is_left_to_the_next_one(self) -> None:
        read = cputune.read

        def read_late(*arguments: Any) -> cputune.Cputune:
            self.guest.event_history.external_shares = 444
            return read(*arguments)

        with mock.patch.object(cputune, 'read', read_late):
            self.look(self.guest)
        # The event has enqueued another check.
        self.assertEqual(444, self.guest.event_history.external_shares)
        self.assertEqual(444, self.shares())
        self.look(self.guest)
        self.assertEqual(444, self.shares())

    def test_no_window_writes_during_a_check(self) -> None:
        """Otherwise the window's value would be taken for external."""
        held: list[bool] = []
        read = cputune.read

        def note(*arguments: Any) -> cputune.Cputune:
            held.append(self.guest.lock.locked())
            return read(*arguments)

        with mock.patch.object(cputune, 'read', note):
            self.look(self.guest)
        self.assertEqual({True}, set(held))
        self.assertFalse(self.guest.lock.locked())
