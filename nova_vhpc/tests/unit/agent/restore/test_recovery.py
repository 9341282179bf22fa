# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Recovery from a record, or from a metadata copy of this or another host."""

import dataclasses
import json
import tempfile
from typing import Any

import libvirt
from oslotest import base

from nova_vhpc.agent.journal import store, written_values
from nova_vhpc.agent.journal.record import JournalRecord
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import recovery
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt

BOTH = frozenset({0, 1})
ORIGINAL = cputune.Cputune(
    dict(fake_libvirt.ORIGINAL), (frozenset({0}),) * 2, frozenset({0}), 2
)
ANY: written_values.WrittenValues = dict.fromkeys(
    (*fake_libvirt.ORIGINAL, 'vcpupin 0', 'vcpupin 1')
)
"""So many values were written that any may be the agent's."""


class RecoveryTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.domain = fake_libvirt.Domain()
        self.journal = store.Journal(tempfile.mkdtemp())
        self.processes = qemu_process.Processes('/nowhere', '/nowhere')
        self.restorer = recovery.Restorer(self.journal, self.processes)

    def record(
        self, domain_id: int | None = None, **about: Any
    ) -> JournalRecord:
        """Return a record.

        :param domain_id: of the run that it is about; None for the present.
        """
        run = self.domain.id if domain_id is None else domain_id
        about = {'original': ORIGINAL, 'written': ANY, **about}
        return JournalRecord(
            'u', 'vm', qemu_process.Identity('', 0, 0, run), **about
        )

    def test_record_of_a_newer_agent_is_kept_as_it_is(self) -> None:
        self.domain.pins = [(True, False)] * 2
        self.domain.values[cputune.QUOTA] = 8_000
        self.journal.save(self.record())
        file = self.journal.path / 'u.json'
        newer = json.dumps({**json.loads(file.read_text()), 'version': 99})
        file.write_text(newer)
        for _ in range(2):
            # The second time, its values are external changes.
            outcome = self.restorer.recover(self.domain)
            self.assertIs(recovery.Outcome.FROM_DEFINITION_NEWER, outcome)
            self.domain.written.clear()
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertEqual([], self.domain.written)
        self.restorer.forget('u')
        self.assertEqual([file], list(self.journal.path.iterdir()))
        self.assertEqual(newer, file.read_text())

    def clean(self, domain_id: int = 9, **about: Any) -> recovery.Outcome:
        """
        :param domain_id: of the run that the copy is about.
        """
        store.put_metadata(self.domain, self.record(domain_id, **about))
        self.domain.written.clear()
        return self.restorer.recover(self.domain)

    def test_record_that_a_restore_left_beside_its_copy_is_removed(
        self,
    ) -> None:
        """An agent was killed between the two."""
        record = self.record(sequence=1)
        self.journal.save(record)
        store.put_metadata(
            self.domain, dataclasses.replace(record, restored=True, sequence=2)
        )
        self.domain.values[cputune.SHARES] = 7
        self.domain.written.clear()
        self.assertEqual(
            recovery.Outcome.NOTHING, self.restorer.recover(self.domain)
        )
        self.assertEqual(7, self.domain.values[cputune.SHARES])
        self.assertEqual((), self.journal.uuids())

    def test_floating_guest_gets_all_cpus_of_this_host(self) -> None:
        """It had one CPU there; here Nova gives all CPUs to guests."""
        self.domain.pins = [(True, False)] * 2
        self.clean(is_floating=True)
        self.assertEqual([(True, True)] * 2, self.domain.pins)

    def test_floating_guest_gets_the_cpuset_that_nova_gives(self) -> None:
        self.domain.vcpu = "<vcpu cpuset='1'>2</vcpu>"
        self.domain.pins = [(True, False)] * 2
        self.clean(is_floating=True)
        self.assertEqual([(False, True)] * 2, self.domain.pins)

    def test_external_pins_are_restored_where_possible(self) -> None:
        self.domain.pins = [(False, True)] * 2
        self.clean()
        self.assertEqual([(True, False)] * 2, self.domain.pins)

    def test_pins_that_no_agent_wrote_stay(self) -> None:
        """Nova gives a guest with dedicated CPUs others on each host."""
        self.domain.pins = [(False, True)] * 2
        self.domain.values[cputune.SHARES] = 7
        self.clean(repin=False)
        self.assertEqual([(False, True)] * 2, self.domain.pins)
        self.assertNotEqual(7, self.domain.values[cputune.SHARES])

    def test_external_changes_after_a_managed_save_stay(self) -> None:
        """They came while no agent ran, and no record is of this run."""
        written = {cputune.SHARES: frozenset[written_values.Value]({7})}
        self.domain.values.update({cputune.SHARES: 7, cputune.PERIOD: 77_000})
        self.domain.pins = [(False, True), (True, False)]
        with self.assertLogs(recovery.LOG, 'WARNING') as logs:
            self.clean(written=written, sequence=3)
        self.assertEqual(
            {**fake_libvirt.ORIGINAL, cputune.PERIOD: 77_000},
            self.domain.values,
        )
        self.assertEqual([(False, True), (True, False)], self.domain.pins)
        self.assertIn('vcpu_period, vcpupin 0', logs.output[0])

    def test_all_values_are_restored_from_a_copy_of_another_host(self) -> None:
        written = {cputune.SHARES: frozenset[written_values.Value]({7})}
        self.domain.pins = [(False, True)] * 2
        record = JournalRecord(
            'u',
            'vm',
            qemu_process.Identity('another boot', 0, 0, 9),
            ORIGINAL,
            written=written,
            sequence=3,
        )
        store.put_metadata(self.domain, record)
        self.restorer.recover(self.domain)
        self.assertEqual([(True, False)] * 2, self.domain.pins)

    def test_pins_of_unpinned_vcpus_are_not_written(self) -> None:
        """A CPU was switched off while no agent ran."""
        everything = dataclasses.replace(ORIGINAL, vcpupins=(BOTH, BOTH))
        self.domain.values[cputune.SHARES] = 7
        self.domain.online = (True, False)
        self.domain.pins = [(True, False)] * 2
        self.journal.save(
            self.record(
                original=everything,
                written={cputune.SHARES: frozenset({7})},
            )
        )
        with self.assertNoLogs(recovery.LOG, 'WARNING'):
            self.restorer.recover(self.domain)
        self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
        self.assertNotIn('pin', self.domain.written)

    def came(self, **about: Any) -> list[tuple[bool, ...]]:
        """Switch on the second CPU after a guest was pinned without it."""
        record = self.record(**about)
        found: list[tuple[bool, ...]] = []
        for put in (
            self.journal.save,
            lambda it: store.put_metadata(self.domain, it),
        ):
            self.domain.values[cputune.SHARES] = 7
            self.domain.pins = [(True, False)] * 2
            put(record)
            self.restorer.recover(self.domain)
            self.assertEqual(fake_libvirt.ORIGINAL, self.domain.values)
            found += self.domain.pins
        return found

    def test_cpu_switched_on_without_an_agent_is_added(self) -> None:
        self.assertEqual([(True, True)] * 4, self.came(is_floating=True))

    def test_cpu_plugged_in_without_an_agent_is_added(self) -> None:
        self.domain.online = (True,) * 4
        self.assertEqual([(True,) * 4] * 4, self.came(is_floating=True))

    def test_new_cpu_is_not_added_to_external_pins(self) -> None:
        only = [(True, False)] * 4
        self.assertEqual(only, self.came())
        self.domain.vcpu = "<vcpu cpuset='0'>2</vcpu>"
        self.assertEqual(only, self.came(is_floating=True))

    def test_restore_that_reached_another_run_is_reverted(self) -> None:
        """libvirt applies calls that waited to the new run."""
        sevens = dict.fromkeys(fake_libvirt.ORIGINAL, frozenset({7_000}))
        self.journal.save(self.record(written=sevens))
        self.domain.pins = [(True, False)] * 2
        self.domain.values = dict.fromkeys(fake_libvirt.ORIGINAL, 7_000)
        resized = {**fake_libvirt.ORIGINAL, cputune.QUOTA: 20_000}

        def restart() -> None:
            self.domain.refuse = lambda: None
            self.domain.id += 1
            self.domain.extra = '<cputune><quota>20000</quota></cputune>'
            self.domain.values = dict(resized)

        self.domain.refuse = restart
        self.assertRaises(
            recovery.RestoreError, self.restorer.recover, self.domain
        )
        self.assertEqual(resized, self.domain.values)
        # Who looks next finds it as it is to be.
        self.restorer.recover(self.domain)
        self.assertEqual(resized, self.domain.values)
        self.assertEqual((), self.journal.uuids())

    def test_unpinned_vcpus_are_not_reverted(self) -> None:
        """Such vCPUs have the online CPUs, which may equal written pins."""
        first = frozenset({0})
        written = {cputune.pin_name(0): frozenset({first})}
        for online, pin in ((True, False), first), ((True, True), BOTH):
            self.domain.online = online
            self.domain.pins = [(True, False), online]
            self.journal.save(self.record(self.domain.id - 1, written=written))
            outcome = self.restorer.recover(self.domain)
            self.assertEqual(pin == BOTH, outcome == recovery.Outcome.RESTORED)
            self.assertEqual(pin, cputune.pin_cpus(self.domain.pins[0]))

    def test_only_pins_of_a_restored_guest_are_written(self) -> None:
        self.domain.pins = [(True, False)] * 2
        self.domain.values[cputune.SHARES] = 100
        self.clean(is_floating=True, restored=True)
        self.assertEqual(100, self.domain.values[cputune.SHARES])
        self.assertEqual([(True, True)] * 2, self.domain.pins)
        self.assertIsNone(self.domain.metadata_xml)

    def test_restored_guest_of_this_run_is_not_written(self) -> None:
        self.domain.values[cputune.SHARES] = 7
        outcome = self.clean(self.domain.id, restored=True)
        self.assertIs(recovery.Outcome.NOTHING, outcome)
        self.assertEqual(['metadata'], self.domain.written)
        self.assertIsNone(self.domain.metadata_xml)

    def test_copy_of_a_restored_guest_that_is_leaving_is_kept(self) -> None:
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.clean(self.domain.id, restored=True)
        self.assertEqual([], self.domain.written)
