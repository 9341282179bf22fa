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

"""NICs go back whenever a VM is not ours to plug any more."""

import json
import threading
from unittest import mock

import fixtures
import libvirt

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.uplinks import binder, plugger
from nova_vhpc.linux import qemu_process
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import test_manager

PATIENCE_S = 10.0


class TestUplinkBinder(test_manager.DomainsCase):
    def setUp(self) -> None:
        super().setUp()
        self.domain.specs['vhpc:network'] = 'separate'
        self.claims: tuple[str, ...] = ('br-own',)
        self.bindings = plugger.BindingJournal(self.state)
        self.binder = self.make_binder()
        self.target = self.look()

    def make_binder(self) -> binder.UplinkBinder:
        return binder.UplinkBinder(
            plugger.Plugger(
                self.bindings, qemu_process.Processes('/nowhere', '/nowhere')
            ),
            lambda: self.made.guests,
            lambda: self.made.connection.get(),
            lambda uuid: self.claims,
        )

    def bind(self) -> None:
        self.binder.step()
        self.assertEqual('br-own', self.domain.bridge)

    def assert_put_back(self) -> None:
        self.assertEqual('br-int', self.domain.bridge)
        self.assertEqual((), self.bindings.uuids())
        self.assertEqual([], self.binder.status()['bound'])

    def test_opted_out(self) -> None:
        self.bind()
        self.domain.specs = {}
        self.made.look('u')
        self.drain()
        self.assertEqual({}, self.made.guests)
        self.binder.step()
        self.assert_put_back()

    def test_asks_for_no_network_of_its_own_any_more(self) -> None:
        self.bind()
        del self.domain.specs['vhpc:network']
        self.made.look('u')
        self.drain()
        self.assertIn('u', self.made.guests)
        self.binder.step()
        self.assert_put_back()

    def test_opted_out_while_no_agent_ran(self) -> None:
        self.bind()
        self.domain.specs = {}
        self.made = self.make()
        self.binder = self.make_binder()
        self.binder.step()
        self.assert_put_back()

    def test_ours_and_not_yet_found(self) -> None:
        """Put back and plugged again, it would lose packets for nothing."""
        self.bind()
        self.made = self.make()
        self.binder = self.make_binder()
        self.binder.step()
        self.assertEqual('br-own', self.domain.bridge)
        self.look()
        self.binder.step()
        self.assertEqual(['u'], self.binder.status()['bound'])

    def test_gone(self) -> None:
        self.bind()
        self.made.connection.get().domains.clear()
        self.reconcile()
        self.binder.step()
        self.assertEqual((), self.bindings.uuids())
        self.assertEqual({}, self.binder.status()['problems'])

    def test_held_and_refused_at_first(self) -> None:
        self.bind()
        self.target.holds.add(guest.Hold.PAUSED)
        self.domain.refuse = self.refuse
        self.binder.step()
        self.assertEqual({'u': 'busy'}, self.binder.status()['problems'])
        self.domain.refuse = lambda: None
        self.binder.step()
        self.assert_put_back()
        self.assertEqual({}, self.binder.status()['problems'])

    def test_held_since_before_it_was_bound_by_this_agent(self) -> None:
        self.bind()
        self.binder = self.make_binder()
        self.target.holds.add(guest.Hold.PAUSED)
        self.binder.step()
        self.assert_put_back()

    def test_not_during_a_migration(self) -> None:
        self.bind()
        self.target.holds |= {guest.Hold.LEAVING, guest.Hold.MIGRATING}
        self.binder.step()
        self.assertEqual('br-own', self.domain.bridge)
        self.target.holds.discard(guest.Hold.MIGRATING)
        self.binder.step()
        self.assert_put_back()

    def test_not_after_the_end(self) -> None:
        """Placement answers when all was put back already."""

        def answer_late(uuid: str) -> tuple[str, ...]:
            self.binder.stop()
            return self.claims

        self.binder._claims = answer_late
        self.binder.start()
        self.binder.step()
        self.assert_put_back()

    def stop(self, refusals: int) -> None:
        """End while libvirt is away for so many tries."""
        self.bind()
        self.binder.start()
        away = iter(range(refusals))

        def refuse() -> None:
            if next(away, None) is not None:
                raise fake_libvirt.error(libvirt.VIR_ERR_NO_CONNECT, 'away')

        self.domain.refuse = refuse
        with (
            mock.patch.object(qemu_process.Processes, 'find', return_value=1),
            mock.patch.object(binder, 'FIRST_RETRY_S', 0.001),
            mock.patch.object(binder, 'RETRY_SECONDS', 0.5),
        ):
            self.binder.stop()

    def test_libvirtd_is_started_anew_at_the_end(self) -> None:
        self.stop(4)
        self.assertEqual('br-int', self.domain.bridge)
        self.assertEqual((), self.bindings.uuids())
        self.assertFalse(self.binder.left)

    def test_libvirtd_stays_away_at_the_end(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.stop(1_000_000)
        self.assertEqual(('u',), self.bindings.uuids())
        self.assertTrue(self.binder.left)
        self.assertEqual(1, log.output.count('NICs of u are not put back'))

    def test_one_that_hangs_at_the_end_holds_up_no_other(self) -> None:
        other = fake_libvirt.Domain('v', **{'vhpc:network': 'separate'})
        self.made.connection.get().domains['v'] = other
        self.made.look('v')
        self.drain()
        self.bind()
        self.assertEqual(('u', 'v'), self.bindings.uuids())
        go, done = threading.Event(), threading.Event()
        self.addCleanup(go.set)
        self.domain.refuse = lambda: self.assertTrue(go.wait(PATIENCE_S))
        other.refuse = done.set
        self.binder.start()
        with mock.patch.object(qemu_process.Processes, 'find', return_value=1):
            end = threading.Thread(target=self.binder.stop)
            end.start()
            self.assertTrue(done.wait(PATIENCE_S))
            self.assertTrue(end.is_alive())
            go.set()
            end.join()
        self.assertEqual('br-int', self.domain.bridge)
        self.assertEqual('br-int', other.bridge)
        self.assertEqual((), self.bindings.uuids())
        self.assertFalse(self.binder.left)

    def test_libvirtd_is_away_and_no_nic_was_moved(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.binder._connection = lambda: self.fail('libvirt is not needed')
        self.binder.start()
        self.binder.stop()
        self.assertFalse(self.binder.left)
        self.assertEqual('', log.output)

    def test_the_next_run_has_the_number_of_the_one_before(self) -> None:
        """libvirtd was started anew between them."""
        self.bind()
        self.domain.bridge = 'br-int'
        self.made._roster.dismiss('u')
        self.look()
        self.bind()

    def test_torn_records_keep_no_other_vm_from_being_put_back(self) -> None:
        self.bind()
        link = self.made.connection.get()
        link.domains['a'] = fake_libvirt.Domain('a')
        whole = json.loads((self.bindings.path / 'u.json').read_text())
        for torn in (
            '{',
            '[]',
            '[' * 100_000,
            json.dumps({**whole, 'moved': []}),
            json.dumps({**whole, 'identity': []}),
        ):
            self.binder = self.make_binder()
            self.bind()
            # It comes first.
            (self.bindings.path / 'a.json').write_text(torn)
            with mock.patch.object(
                qemu_process.Processes, 'find', return_value=1
            ):
                failed = self.binder._plugger.undo_all(link)
            self.assertEqual({'a'}, failed.keys())
            self.assertEqual('br-int', self.domain.bridge)

    def test_another_run_that_is_defined_so_is_left_alone(self) -> None:
        """What is there is not by our hand, though it is where we want it."""
        self.bind()
        self.domain.id += 1
        self.assertIn('br-own', self.domain.XMLDesc(1))
        self.assertEqual(0, self.binder._plugger.undo(self.domain))
        self.assertEqual('br-own', self.domain.bridge)
        self.assertEqual((), self.bindings.uuids())

    def test_not_to_a_vm_that_is_held_meanwhile(self) -> None:
        def answer_late(uuid: str) -> tuple[str, ...]:
            self.target.holds.add(guest.Hold.PAUSED)
            return self.claims

        self.binder._claims = answer_late
        self.binder.step()
        self.assert_put_back()
