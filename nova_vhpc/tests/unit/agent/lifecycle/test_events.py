# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which events enqueue a guest, and what they record."""

from oslotest import base

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import events
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent.guests import test_guest, test_registry


class Domain:
    def __init__(self, uuid: str, domain_id: int = 1) -> None:
        self.uuid = uuid
        self.id = domain_id

    def ID(self) -> int:
        return self.id

    def UUIDString(self) -> str:
        return self.uuid


class EventsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.guest = test_guest.make()
        guests = test_registry.make()
        guests.add(self.guest)
        self.enqueued: list[str] = []
        self.events = events.Events(guests, self.enqueued.append)

    def tunable(
        self, name: str, value: int | str, uuid: str = 'u'
    ) -> list[str]:
        self.events._on_tunable(None, Domain(uuid), {name: value}, None)
        return self.enqueued

    def test_event_of_the_agents_own_write_is_ignored(self) -> None:
        self.guest.note_written({cputune.PERIOD: 5_000})
        self.assertEqual([], self.tunable('cputune.vcpu_period', 5_000))
        self.guest.journalled = True
        self.guest.event_history.written_shares.add(9)
        self.assertEqual([], self.tunable('cputune.cpu_shares', 9))
        self.assertIsNone(self.guest.event_history.external_shares)

    def test_event_of_no_limit_is_known_in_the_kernels_number(self) -> None:
        self.guest.note_written({cputune.QUOTA: 18_446_744_073_709_551})
        self.assertEqual([], self.tunable('cputune.vcpu_quota', -1))

    def test_external_shares_are_recorded(self) -> None:
        """The next window may replace them before a check."""
        self.events._on_tunable(
            None,
            Domain('u'),
            {'cputune.vcpu_period': 7_000, 'cputune.cpu_shares': 77},
            None,
        )
        self.assertEqual(['u'], self.enqueued)
        self.assertEqual(77, self.guest.event_history.external_shares)

    def test_shares_already_handed_back_are_not_recorded(self) -> None:
        self.guest.external = frozenset({cputune.SHARES})
        self.assertEqual(['u'], self.tunable('cputune.cpu_shares', 77))
        self.assertIsNone(self.guest.event_history.external_shares)

    def test_shares_of_an_earlier_run_are_not_recorded(self) -> None:
        self.events._on_tunable(
            None, Domain('u', 7), {'cputune.cpu_shares': 77}, None
        )
        self.assertIsNone(self.guest.event_history.external_shares)

    def test_late_event_after_a_restore_is_not_external(self) -> None:
        self.guest.event_history.written_shares.add(9)
        self.assertEqual(['u'], self.tunable('cputune.cpu_shares', 9))
        self.assertIsNone(self.guest.event_history.external_shares)

    def test_external_value_enqueues_the_guest(self) -> None:
        self.assertEqual(['u'], self.tunable('cputune.vcpu_period', 7_000))

    def test_external_bandwidth_is_recorded(self) -> None:
        """The agent may replace it before a check."""
        self.tunable('cputune.vcpu_period', 7_000)
        self.assertEqual(
            {cputune.PERIOD: 7_000}, self.guest.event_history.external
        )
        self.tunable('cputune.vcpu_quota', 3_000)
        self.assertEqual(
            {cputune.PERIOD: 7_000, cputune.QUOTA: 3_000},
            self.guest.event_history.external,
        )

    def test_known_bandwidth_is_not_recorded(self) -> None:
        self.guest.event_history.note_bandwidth(model.CpuTune(7_000, -1))
        self.tunable('cputune.vcpu_period', 7_000)
        self.tunable('cputune.vcpu_quota', 18_446_744_073_709_551)
        # The original value, which a restore writes.
        original = self.guest.original.parameters[cputune.PERIOD]
        self.tunable('cputune.vcpu_period', original)
        self.guest.external = frozenset({cputune.QUOTA})
        self.tunable('cputune.vcpu_quota', 3_000)
        # Of an earlier run.
        self.events._on_tunable(
            None, Domain('u', 7), {'cputune.vcpu_period': 8_000}, None
        )
        self.assertEqual({}, self.guest.event_history.external)

    def test_event_of_the_agents_own_pin_is_ignored(self) -> None:
        self.guest.note_written(pins={1: frozenset({0})})
        self.assertEqual([], self.tunable('cputune.vcpupin1', '0'))
        self.assertEqual(['u'], self.tunable('cputune.vcpupin1', '1'))

    def test_external_pin_is_recorded(self) -> None:
        """The agent may replace it before a check."""
        self.tunable('cputune.vcpupin1', '1')
        self.tunable('cputune.vcpupin0', '1,3-4')
        self.assertEqual(['u', 'u'], self.enqueued)
        self.assertEqual(
            {
                cputune.pin_name(0): frozenset({1, 3, 4}),
                cputune.pin_name(1): frozenset({1}),
            },
            self.guest.event_history.external,
        )

    def test_known_pins_are_not_recorded(self) -> None:
        name = cputune.pin_name(0)
        self.guest.event_history.note({name: frozenset({1})})
        self.tunable('cputune.vcpupin0', '1')
        # The original pins, which a restore writes, though not in force.
        self.guest.note_written(pins={1: frozenset({0})})
        self.tunable('cputune.vcpupin1', '0-1')
        self.guest.external = frozenset({cputune.pin_name(1)})
        self.tunable('cputune.vcpupin1', '1')
        self.assertEqual({}, self.guest.event_history.external)

    def test_invalid_cpu_set_is_not_recorded(self) -> None:
        for name in ('cputune.vcpupin0', 'cputune.emulatorpin'):
            self.enqueued.clear()
            self.assertEqual(['u'], self.tunable(name, ''))
        self.assertEqual({}, self.guest.event_history.external)

    def test_tunable_that_is_never_written_enqueues_only(self) -> None:
        self.assertEqual(['u'], self.tunable('cputune.emulator_period', 1))

    def test_event_of_an_unmanaged_domain_is_ignored(self) -> None:
        self.assertEqual([], self.tunable('cputune.vcpu_period', 1, 'x'))

    def test_change_of_the_metadata_copy_is_ignored(self) -> None:
        self.events._on_metadata(
            None, Domain('u'), 2, store.METADATA_URI, None
        )
        self.assertEqual([], self.enqueued)
        self.events._on_metadata(None, Domain('u'), 2, 'nova', None)
        self.assertEqual(['u'], self.enqueued)
