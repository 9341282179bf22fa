# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""External pins that a write of the agent has replaced."""

import dataclasses
import types
from typing import Any
from unittest import mock

from nova_vhpc.agent.actuators import libvirt_cputune
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.restore import cputune as cputune_restore
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent.external_changes import policy_case
from nova_vhpc.tests.unit.agent.restore import test_cputune

ALL = frozenset({0, 1, 2, 3})


def only(cpu: int) -> frozenset[int]:
    """Return a set of one CPU."""
    return frozenset({cpu})


class OverwrittenPinsTest(policy_case.PolicyTestCase):
    """An event reports an external pin that the agent replaced."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def begin(self) -> None:
        self.domain = policy_case.Domain()
        self.domain.online = (True,) * 4
        self.domain.pins = [(True,) * 4] * 2
        self.guest = self.make(journalled=True)
        self.guest.set_expected(
            dataclasses.replace(self.guest.expected, host_cpus=4)
        )
        self.guest.original = self.guest.expected
        options = types.SimpleNamespace(
            cgroup_root='/nowhere', window_weights='cgroup'
        )
        conf: Any = types.SimpleNamespace(vhpc_agent=options)
        libvirt_cputune.LibvirtCputuneActuator(conf).write(
            self.guest, model.CpuTune(vcpu_pins=(only(0), only(1)))
        )
        self.report(0, 2)

    def report(self, vcpu: int, cpu: int) -> None:
        self.guest.event_history.external = {
            **self.guest.event_history.external,
            cputune.pin_name(vcpu): only(cpu),
        }

    def pins(self) -> list[frozenset[int]]:
        return [cputune.pin_cpus(pin) for pin in self.domain.pins]

    def test_overwritten_pin_stays_and_others_are_restored(self) -> None:
        self.assertEqual(1, self.look(self.guest))
        self.assertEqual([only(2), ALL], self.pins())
        external = {cputune.pin_name(0)}
        self.assertEqual(external, self.guest.external)
        self.assertEqual(external, self.journal.load('u').external)
        # The event counts once.
        self.assertEqual({}, self.guest.event_history.external)
        self.assertEqual(0, self.look(self.guest))

    def test_two_overwritten_pins_both_stay(self) -> None:
        self.report(1, 3)
        self.assertEqual(2, self.look(self.guest))
        self.assertEqual([only(2), only(3)], self.pins())

    def test_override_keeps_the_agents_pins(self) -> None:
        self.assertEqual(1, self.look(self.guest, 'override'))
        self.assertEqual([only(0), only(1)], self.pins())
        self.assertEqual(0, self.look(self.guest, 'override'))

    def test_later_external_pin_stays(self) -> None:
        for cpu in (1, 3):
            self.begin()
            cputune.write_pin(self.domain, 0, only(cpu), 4)
            self.look(self.guest)
            self.assertEqual(only(cpu), self.pins()[0])

    def test_pin_set_just_before_the_restore_stays(self) -> None:
        """Only libvirt's event tells of it."""
        restore = cputune_restore.restore

        def set_next(*arguments: Any) -> tuple[str, ...]:
            cputune.write_pin(self.domain, 1, only(3), 4)
            self.report(1, 3)
            return restore(*arguments)

        with mock.patch.object(cputune_restore, 'restore', set_next):
            self.look(self.guest)
        self.look(self.guest)
        self.assertEqual([only(2), only(3)], self.pins())

    def test_overwritten_pin_of_an_unplugged_vcpu_is_ignored(self) -> None:
        self.report(1, 3)
        del self.domain.pins[1]
        self.assertEqual(1, self.look(self.guest))
        self.assertEqual([only(2)], self.pins())

    def test_restore_without_a_check_keeps_the_external_pin(self) -> None:
        self.restore(self.guest, self.changes())
        self.assertEqual(only(2), self.pins()[0])
        self.assertEqual({cputune.pin_name(0)}, self.guest.external)


class CpusetV1(test_cputune.CpusetV1, policy_case.Domain):
    """A domain in cgroup v1, which refuses CPUs that were off."""


class NarrowedPinsTest(policy_case.PolicyTestCase):
    """One vCPU is pinned externally; the other is restored in part."""

    def setUp(self) -> None:
        super().setUp()
        self.domain = CpusetV1()
        self.domain.cpuset = ALL
        self.domain.online = (True,) * 4
        self.domain.pins = [(True,) * 4] * 2
        self.guest = self.make(journalled=True)
        self.guest.original = dataclasses.replace(
            self.guest.expected, host_cpus=4
        )
        self.domain.pins = [tuple(cpu == 0 for cpu in range(4))] * 2
        self.guest.set_expected(cputune.read(self.domain))
        self.domain.pins[0] = tuple(cpu == 2 for cpu in range(4))

    def check(self, left: frozenset[int]) -> None:
        self.assertEqual(1, self.look(self.guest))
        self.assertEqual(left, cputune.pin_cpus(self.domain.pins[1]))
        # The narrower pins are no external change, and are not retried.
        with mock.patch.object(self.domain, 'pinVcpuFlags') as pin:
            self.assertEqual(0, self.look(self.guest))
        pin.assert_not_called()
        self.assertEqual(self.guest.external, self.journal.load('u').external)

    def test_original_pins_are_restored_without_cpus_that_are_off(
        self,
    ) -> None:
        self.domain.online = (True, True, True, False)
        self.check(ALL - {3})

    def test_original_pins_are_restored_without_cpus_the_group_lacks(
        self,
    ) -> None:
        """The kernel does not give CPUs back to existing groups."""
        self.domain.cpuset = ALL - {1}
        self.check(ALL - {1})
