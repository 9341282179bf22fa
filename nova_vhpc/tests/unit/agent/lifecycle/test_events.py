# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Which events enqueue a guest, and what they record."""

from collections.abc import Mapping, Set
from typing import Any

from oslotest import base

from nova_vhpc.agent.journal import store
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import events
from nova_vhpc.tests.unit.agent.guests import test_guest, test_registry


class Domain:
    def __init__(self, uuid: str, domain_id: int = 1) -> None:
        self.uuid = uuid
        self.id = domain_id

    def ID(self) -> int:
        return self.id

    def UUIDString(self) -> str:
        return self.uuid


ZERO, ONE = frozenset({0}), frozenset({1})
FIRST, SECOND = cputune.pin_name(0), cputune.pin_name(1)
NONE = 18_446_744_073_709_551
EVENTS = (
    # Before it; tunable, value; enqueued; recorded as external.
    ({}, 'vcpu_period', 7_000, True, {cputune.PERIOD: 7_000}),
    ({}, 'vcpu_quota', 3_000, True, {cputune.QUOTA: 3_000}),
    ({}, 'cpu_shares', 77, True, {cputune.SHARES: 77}),
    ({}, 'vcpupin1', '1', True, {SECOND: ONE}),
    ({}, 'vcpupin0', '1,3-4', True, {FIRST: frozenset({1, 3, 4})}),
    # Expected: a write of the agent that is in force.
    ({'expected': {cputune.PERIOD: 5_000}}, 'vcpu_period', 5_000, False, {}),
    ({'expected': {SECOND: ZERO}}, 'vcpupin1', '0', False, {}),
    # No limit is reported in the kernel's number.
    (
        {'expected': {cputune.QUOTA: 2**64 // 1000}},
        'vcpu_quota',
        -1,
        False,
        {},
    ),
    # Written earlier: a late event, or a value that was set again.
    ({'written': {cputune.PERIOD: 7_000}}, 'vcpu_period', 7_000, True, {}),
    ({'written': {cputune.QUOTA: -1}}, 'vcpu_quota', NONE, False, {}),
    ({'written': {FIRST: ONE}}, 'vcpupin0', '1', True, {}),
    ({'shares': 9}, 'cpu_shares', 9, True, {}),
    ({'shares': 9, 'journalled': True}, 'cpu_shares', 9, False, {}),
    # The original value, which a restore writes.
    ({'expected': {cputune.PERIOD: 9}}, 'vcpu_period', 100_000, True, {}),
    ({'expected': {SECOND: ZERO}}, 'vcpupin1', '0-1', True, {}),
    # Handed back for this value already.
    ({'external': {cputune.QUOTA}}, 'vcpu_quota', 3_000, True, {}),
    ({'external': {cputune.SHARES}}, 'cpu_shares', 77, True, {}),
    ({'external': {SECOND}}, 'vcpupin1', '1', True, {}),
    # Of an earlier run.
    ({'run': 7}, 'vcpu_period', 8_000, True, {}),
    ({'run': 7}, 'cpu_shares', 77, True, {}),
    # Never written by the agent, or not to be read.
    ({}, 'emulator_period', 1, True, {}),
    ({}, 'emulatorpin', '', True, {}),
    ({}, 'vcpupin0', '', True, {}),
    ({'uuid': 'another'}, 'vcpu_period', 1, False, {}),
)


class EventsTest(base.BaseTestCase):
    def begin(
        self,
        expected: Mapping[str, Any] | None = None,
        written: Mapping[str, Any] | None = None,
        shares: int | None = None,
        external: Set[str] = frozenset(),
        **changes: Any,
    ) -> None:
        """Make a guest for which all this is so."""
        self.guest = test_guest.make(external=frozenset(external), **changes)
        for name, value in (expected or {}).items():
            if isinstance(value, frozenset):
                self.guest.note_written(pins={int(name[-1]): value})
            else:
                self.guest.note_written({name: value})
        self.guest.event_history.note(
            {
                n: cputune.plain(n, v) if isinstance(v, int) else v
                for n, v in (written or {}).items()
            }
        )
        if shares is not None:
            self.guest.event_history.written_shares.add(shares)
        guests = test_registry.make()
        guests.add(self.guest)
        self.enqueued: list[str] = []
        self.events = events.Events(guests, self.enqueued.append)

    def recorded(self) -> dict[str, Any]:
        """Return the external values that events reported."""
        shares = self.guest.event_history.external_shares
        return {
            **self.guest.event_history.external,
            **({} if shares is None else {cputune.SHARES: shares}),
        }

    def test_external_value_is_enqueued_and_recorded(self) -> None:
        """The agent may replace it before a check."""
        for before, tunable, value, is_enqueued, recorded in EVENTS:
            with self.subTest(f'{tunable} = {value} after {before}'):
                about = dict(before)
                domain = Domain(about.pop('uuid', 'u'), about.pop('run', 1))
                self.begin(**about)
                self.events._on_tunable(
                    None, domain, {f'cputune.{tunable}': value}, None
                )
                self.assertEqual(['u'] * is_enqueued, self.enqueued)
                self.assertEqual(recorded, self.recorded())

    def test_all_values_of_one_event_and_of_several_are_recorded(self) -> None:
        self.begin()
        for values in (
            {'cputune.vcpu_period': 7_000, 'cputune.cpu_shares': 77},
            {'cputune.vcpupin1': '1'},
        ):
            self.events._on_tunable(None, Domain('u'), values, None)
        self.assertEqual(['u', 'u'], self.enqueued)
        self.assertEqual(
            {cputune.PERIOD: 7_000, cputune.SHARES: 77, SECOND: ONE},
            self.recorded(),
        )

    def test_change_of_the_metadata_copy_is_ignored(self) -> None:
        self.begin()
        for uri, enqueued in ((store.METADATA_URI, []), ('nova', ['u'])):
            self.events._on_metadata(None, Domain('u'), 2, uri, None)
            self.assertEqual(enqueued, self.enqueued)
