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

"""Pins that somebody set just before ours were written over them."""

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
    """A set of one."""
    return frozenset({cpu})


class TestPinsWrittenOver(policy_case.PolicyTestCase):
    """Theirs by an event; a write of ours came just after."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def begin(self) -> None:
        self.domain = policy_case.Domain()
        self.domain.online = (True,) * 4
        self.domain.pins = [(True,) * 4] * 2
        self.target = self.make(journalled=True)
        self.target.set_expected(
            dataclasses.replace(self.target.expected, host_cpus=4)
        )
        self.target.original = self.target.expected
        options = types.SimpleNamespace(cgroup_root='/nowhere')
        conf: Any = types.SimpleNamespace(vhpc_agent=options)
        libvirt_cputune.LibvirtCputuneActuator(conf).write(
            self.target, model.CpuTune(vcpu_pins=(only(0), only(1))), None
        )
        self.tell(0, 2)

    def tell(self, vcpu: int, cpu: int) -> None:
        theirs = {cputune.pin_name(vcpu): only(cpu)}
        self.target.event_history.external = {
            **self.target.event_history.external,
            **theirs,
        }

    def pins(self) -> list[frozenset[int]]:
        return [cputune.pin_cpus(pin) for pin in self.domain.pins]

    def test_given_back_and_the_others_are_as_they_were(self) -> None:
        self.assertEqual(1, self.look(self.target))
        self.assertEqual([only(2), ALL], self.pins())
        external = {cputune.pin_name(0)}
        self.assertEqual(external, self.target.external)
        self.assertEqual(external, self.journal.load('u').external)
        # It was told of once.
        self.assertEqual({}, self.target.event_history.external)
        self.assertEqual(0, self.look(self.target))

    def test_of_two_each_is_given_back(self) -> None:
        self.tell(1, 3)
        self.assertEqual(2, self.look(self.target))
        self.assertEqual([only(2), only(3)], self.pins())

    def test_overridden_all_the_same(self) -> None:
        self.assertEqual(1, self.look(self.target, 'override'))
        self.assertEqual([only(0), only(1)], self.pins())
        self.assertEqual(0, self.look(self.target, 'override'))

    def test_a_later_one_of_theirs_stays(self) -> None:
        for cpu in (1, 3):
            self.begin()
            cputune.write_pin(self.domain, 0, only(cpu), 4)
            self.look(self.target)
            self.assertEqual(only(cpu), self.pins()[0])

    def test_also_where_it_comes_just_before_ours_is_put_back(self) -> None:
        """Then libvirt's event alone tells of it."""
        restore = cputune_restore.restore

        def set_next(*arguments: Any) -> tuple[str, ...]:
            cputune.write_pin(self.domain, 1, only(3), 4)
            self.tell(1, 3)
            return restore(*arguments)

        with mock.patch.object(cputune_restore, 'restore', set_next):
            self.look(self.target)
        self.look(self.target)
        self.assertEqual([only(2), only(3)], self.pins())

    def test_of_a_vcpu_that_was_plugged_out(self) -> None:
        self.tell(1, 3)
        del self.domain.pins[1]
        self.assertEqual(1, self.look(self.target))
        self.assertEqual([only(2)], self.pins())

    def test_put_back_before_anybody_looked(self) -> None:
        self.restore(self.target, self.changes())
        self.assertEqual(only(2), self.pins()[0])
        self.assertEqual({cputune.pin_name(0)}, self.target.external)


class CpusetV1(test_cputune.CpusetV1, policy_case.Domain):
    """One with pins of ours; the kernel refuses CPUs that were off."""


class TestPinsThatCannotBePutBackWhole(policy_case.PolicyTestCase):
    """Somebody pins one vCPU: the other is to be as it was, or nearly."""

    def setUp(self) -> None:
        super().setUp()
        self.domain = CpusetV1()
        self.domain.cpuset = ALL
        self.domain.online = (True,) * 4
        self.domain.pins = [(True,) * 4] * 2
        self.target = self.make(journalled=True)
        self.target.original = dataclasses.replace(
            self.target.expected, host_cpus=4
        )
        self.domain.pins = [tuple(cpu == 0 for cpu in range(4))] * 2
        self.target.set_expected(cputune.read(self.domain))
        self.domain.pins[0] = tuple(cpu == 2 for cpu in range(4))

    def check(self, left: frozenset[int]) -> None:
        self.assertEqual(1, self.look(self.target))
        self.assertEqual(left, cputune.pin_cpus(self.domain.pins[1]))
        # Nobody else has done that; and it cannot be had better.
        with mock.patch.object(self.domain, 'pinVcpuFlags') as pin:
            self.assertEqual(0, self.look(self.target))
        pin.assert_not_called()
        self.assertEqual(self.target.external, self.journal.load('u').external)

    def test_without_those_that_are_off(self) -> None:
        self.domain.online = (True, True, True, False)
        self.check(ALL - {3})

    def test_without_those_that_came_back(self) -> None:
        """The kernel keeps them from groups that were there before."""
        self.domain.cpuset = ALL - {1}
        self.check(ALL - {1})
