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

"""Taking VMs in that another host, or another run of the agent, has known."""

import time
from unittest import mock

import fixtures
import libvirt

from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.lifecycle import reconcile
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

OWN = '<cputune><period>50000</period><quota>20000</quota></cputune>'

PINS = (
    "<cputune><vcpupin vcpu='0' cpuset='{}'/>"
    "<vcpupin vcpu='1' cpuset='{}'/></cputune>"
)


class TestRepin(manager_case.ManagerTestCase):
    """Nova migrates the live XML, and makes it the persistent one there."""

    def test_pins_that_confine_to_nothing(self) -> None:
        """Of a VM that was put back before it migrated."""
        self.domain.extra = PINS.format('0-1', '0-1')
        self.assertTrue(self.look().repin)

    def test_pins_that_are_put_back_since(self) -> None:
        """Of one that was not, after a restart of the agent here."""
        self.domain.extra = PINS.format(0, 1)
        self.assertTrue(self.look().repin)

    def test_pins_of_somebody_else(self) -> None:
        self.domain.extra = PINS.format(0, 1)
        self.domain.pins = [(True, False), (False, True)]
        self.assertFalse(self.look().repin)

    def test_placed_by_nova(self) -> None:
        self.domain.extra = (
            PINS.format('0-1', '0-1')
            + "<numatune><memory nodeset='0'/></numatune>"
        )
        self.assertFalse(self.look().repin)


class TestConfined(manager_case.ManagerTestCase):
    """systemd keeps CPUs from all machines; pins to these are refused."""

    def confined(self, *cpus: int) -> frozenset[int] | None:
        """What it may be pinned to then."""
        self.useFixture(
            fixtures.MockPatchObject(
                qemu_process.Processes,
                'confined_to',
                lambda host, pid: frozenset(cpus) or None,
            )
        )
        return self.look().allowed_cpus

    def test_to_one(self) -> None:
        self.assertEqual({1}, self.confined(1))

    def test_not_at_all(self) -> None:
        self.assertEqual({0, 1}, self.confined())

    def test_to_none_that_its_pins_allow(self) -> None:
        """Nothing that we could do would be better."""
        self.assertEqual({0, 1}, self.confined(7))


class TestComing(manager_case.ManagerTestCase):
    """On its way from another host: libvirt holds all that is written."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(
            fixtures.MockPatchObject(reconcile, 'INCOMING_S', 0.01)
        )
        self.domain.comes = True

    def find(self) -> None:
        self.made.enqueue('u')
        self.drain()

    def test_not_before_it_is_here(self) -> None:
        self.find()
        self.assertEqual({}, dict(self.made.guests))

    def test_without_an_event_when_it_is(self) -> None:
        self.find()
        self.domain.comes = False
        deadline = time.monotonic() + manager_case.PATIENCE_S
        while not self.made.guests and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertIn('u', self.made.guests)

    def test_nothing_of_another_agent_is_put_back_yet(self) -> None:
        self.domain.mark = 'x'
        for specs in (self.domain.specs, {}):
            self.domain.specs = specs
            self.find()
        self.assertEqual([], self.domain.written)

    def test_looked_at_by_one_timer(self) -> None:
        with mock.patch('threading.Timer') as timer:
            for _ in range(3):
                self.find()
        self.assertEqual(1, timer.call_count)


class TestGoing(manager_case.ManagerTestCase):
    """Found by an agent that starts while it is being sent away."""

    def test_nothing_is_written_before_it_is_known_to_stay(self) -> None:
        self.domain.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        target = self.look()
        self.write(target)
        self.assertFalse(self.made.set_shares('u', 20))
        self.assertEqual([], self.domain.written)
        self.domain.job = 0
        self.write(self.look())
        self.assertIn('values', self.domain.written)


class TestNextRun(manager_case.ManagerTestCase):
    """A VM ended, and was started anew, while libvirtd was not there."""

    def test_with_the_number_of_the_one_before(self) -> None:
        """libvirtd, too, was started anew between them."""
        pid = 7
        with mock.patch.object(
            qemu_process.Processes,
            'identity',
            lambda host, uuid, run: qemu_process.Identity('b', pid, pid, run),
        ):
            target = self.look()
            self.write(target)
            pid = 8
            self.domain.values = {
                **fake_libvirt.ORIGINAL,
                cputune.PERIOD: 50_000,
                cputune.QUOTA: 20_000,
            }
            self.domain.extra = OWN
            self.domain.mark = None
            found = self.look()
        self.assertIsNot(target, found)
        self.assertEqual(self.domain.values, found.original.parameters)
        self.assertEqual(frozenset(), found.external)
        self.assertEqual((), self.records.uuids())
