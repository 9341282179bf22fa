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

"""Tests of :mod:`nova_vhpc.agent.uplinks.binder`."""

import json
import threading
from unittest import mock

import fixtures
import libvirt

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.journal.record import JournalError
from nova_vhpc.agent.uplinks import binder, bindings, claims, plugger
from nova_vhpc.agent.uplinks.binders import binder_set
from nova_vhpc.linux import qemu_process
from nova_vhpc.placement import client
from nova_vhpc.tests.unit.agent import fake_libvirt
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case

PATIENCE_S = 10.0
OWN = (claims.ClaimedUplink('br-own', 'eth1'),)


class UplinkBinderTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.domain.specs['vhpc:network'] = 'separate'
        self.claims = mock.Mock(
            spec=claims.UplinkClaims, **{'uplinks.return_value': OWN}
        )
        self.useFixture(fixtures.MockPatchObject(binder, 'RETRY_S', 0.0))
        self.bindings = bindings.BindingJournal(self.state)
        self.binder = self.make_binder()
        self.target = self.look()

    def make_binder(self) -> binder.UplinkBinder:
        self.plugger = plugger.Plugger(
            self.bindings, qemu_process.Processes('/nowhere', '/nowhere')
        )
        return binder.UplinkBinder(
            binder_set.BinderSet([self.plugger]),
            lambda: self.manager.guests,
            lambda: self.manager.connection.get(),
            self.claims,
        )

    def bind(self) -> None:
        self.binder.reconcile()
        self.assertEqual('br-own', self.domain.bridge)

    def assert_restored(self) -> None:
        self.assertEqual('br-int', self.domain.bridge)
        self.assertEqual((), self.bindings.uuids())
        self.assertEqual([], self.binder.status()['bound'])

    def test_nics_are_restored_when_the_server_opts_out(self) -> None:
        self.bind()
        self.domain.specs = {}
        self.manager.enqueue('u')
        self.drain()
        self.assertEqual({}, self.manager.guests)
        self.binder.reconcile()
        self.assert_restored()

    def test_nics_are_restored_when_the_network_is_dropped(self) -> None:
        self.bind()
        del self.domain.specs['vhpc:network']
        self.manager.enqueue('u')
        self.drain()
        self.assertIn('u', self.manager.guests)
        self.binder.reconcile()
        self.assert_restored()

    def test_nics_are_restored_after_opting_out_without_an_agent(self) -> None:
        self.bind()
        self.domain.specs = {}
        self.manager = self.make()
        self.binder = self.make_binder()
        self.binder.reconcile()
        self.assert_restored()

    def test_nics_of_a_guest_not_adopted_yet_stay(self) -> None:
        """Restored and plugged again, the guest would lose packets."""
        self.bind()
        self.manager = self.make()
        self.binder = self.make_binder()
        self.binder.reconcile()
        self.assertEqual('br-own', self.domain.bridge)
        self.look()
        self.binder.reconcile()
        self.assertEqual(['u'], self.binder.status()['bound'])

    def test_record_of_a_domain_that_is_gone_is_removed(self) -> None:
        self.bind()
        self.manager.connection.get().domains.clear()
        self.reconcile()
        self.binder.reconcile()
        self.assertEqual((), self.bindings.uuids())
        self.assertEqual({}, self.binder.status()['problems'])

    def test_restoring_a_held_guest_is_retried(self) -> None:
        self.bind()
        self.target.holds.add(guest.Hold.PAUSED)
        self.domain.refuse = self.refuse
        self.binder.reconcile()
        self.assertEqual({'u': 'busy'}, self.binder.status()['problems'])
        self.domain.refuse = lambda: None
        self.binder.reconcile()
        self.assert_restored()
        self.assertEqual({}, self.binder.status()['problems'])

    def test_nics_bound_by_an_earlier_agent_are_restored_on_hold(self) -> None:
        self.bind()
        self.binder = self.make_binder()
        self.target.holds.add(guest.Hold.PAUSED)
        self.binder.reconcile()
        self.assert_restored()

    def test_nics_stay_during_a_migration(self) -> None:
        self.bind()
        self.target.holds |= {guest.Hold.LEAVING, guest.Hold.MIGRATING}
        self.binder.reconcile()
        self.assertEqual('br-own', self.domain.bridge)
        self.target.holds.discard(guest.Hold.MIGRATING)
        self.binder.reconcile()
        self.assert_restored()

    def test_nics_are_not_moved_after_stop(self) -> None:
        """Placement answers when all NICs are restored already."""

        def answer_late(uuid: str) -> tuple[claims.ClaimedUplink, ...]:
            self.binder.stop()
            return OWN

        self.claims.uplinks.side_effect = answer_late
        self.binder.start()
        self.binder.reconcile()
        self.assert_restored()

    def stop(self, refusals: int) -> None:
        """Stop the binder while libvirt is away for a number of attempts."""
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

    def test_stop_retries_while_libvirtd_restarts(self) -> None:
        self.stop(4)
        self.assertEqual('br-int', self.domain.bridge)
        self.assertEqual((), self.bindings.uuids())
        self.assertFalse(self.binder.left)

    def test_stop_reports_nics_if_libvirtd_stays_away(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.stop(1_000_000)
        self.assertEqual(('u',), self.bindings.uuids())
        self.assertTrue(self.binder.left)
        self.assertEqual(1, log.output.count('NICs of u are not restored'))

    def test_domain_that_hangs_at_stop_delays_no_other(self) -> None:
        other = fake_libvirt.Domain('v', **{'vhpc:network': 'separate'})
        self.manager.connection.get().domains['v'] = other
        self.manager.enqueue('v')
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

    def test_stop_needs_no_libvirtd_if_no_nic_was_moved(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.binder._connection = lambda: self.fail('libvirt is not needed')
        self.binder.start()
        self.binder.stop()
        self.assertFalse(self.binder.left)
        self.assertEqual('', log.output)

    def test_next_run_with_the_same_id_is_bound_again(self) -> None:
        """libvirtd was restarted between the runs."""
        self.bind()
        self.domain.bridge = 'br-int'
        self.manager._context.guests.remove_ended_run('u')
        self.look()
        self.bind()

    def test_damaged_record_restores_the_bridges_of_the_definition(
        self,
    ) -> None:
        self.bind()
        file = self.bindings.path / 'u.json'
        whole = file.read_bytes()
        flips = {
            whole[:place]
            + bytes([whole[place] ^ 1 << bit])
            + whole[place + 1 :]
            for place in range(0, len(whole), 7)
            for bit in (0, 5)
        }
        for damaged in (whole[:60], b'', *flips):
            self.domain.bridge = 'br-own'
            file.write_bytes(damaged)
            self.plugger.restore(self.domain)
            self.assertEqual('br-int', self.domain.bridge, damaged)
            self.assertEqual((), self.bindings.uuids())
        self.assertTrue(file.with_suffix('.bad').exists())

    def test_damaged_record_is_whole_again_after_binding(self) -> None:
        self.bind()
        file = self.bindings.path / 'u.json'
        whole = self.bindings.load('u')
        file.write_bytes(b'{')
        self.claims.uplinks.return_value = (
            claims.ClaimedUplink('br-other', 'eth2'),
        )
        self.binder = self.make_binder()
        self.binder.reconcile()
        self.assertEqual('br-other', self.domain.bridge)
        moved = self.bindings.load('u').moved
        self.assertEqual(
            {mac: (b, 'br-other') for mac, (b, _) in whole.moved.items()},
            moved,
        )

    def test_damaged_record_of_a_transient_domain_is_kept(self) -> None:
        self.bind()
        (self.bindings.path / 'u.json').write_bytes(b'{')
        with mock.patch.object(
            self.domain, 'isPersistent', return_value=False
        ):
            self.assertRaises(JournalError, self.plugger.restore, self.domain)
        self.assertEqual('br-own', self.domain.bridge)
        self.assertEqual(('u',), self.bindings.uuids())

    def test_torn_record_does_not_keep_others_from_being_restored(
        self,
    ) -> None:
        self.bind()
        link = self.manager.connection.get()
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
            # The damaged record comes first.
            (self.bindings.path / 'a.json').write_text(torn)
            with mock.patch.object(
                qemu_process.Processes, 'find', return_value=1
            ):
                failed = self.plugger.restore_all(lambda: link)
            self.assertEqual({}, failed)
            self.assertEqual('br-int', self.domain.bridge)

    def test_nics_of_another_run_defined_on_the_claim_stay(self) -> None:
        """Their bridge is the definition's, although it is the claimed one."""
        self.bind()
        self.domain.id += 1
        self.domain.defined_bridge = 'br-own'
        self.assertIn('br-own', self.domain.XMLDesc(1))
        self.assertEqual(0, self.plugger.restore(self.domain))
        self.assertEqual('br-own', self.domain.bridge)
        self.assertEqual((), self.bindings.uuids())

    def test_nics_of_a_guest_held_meanwhile_are_not_moved(self) -> None:
        def answer_late(uuid: str) -> tuple[claims.ClaimedUplink, ...]:
            self.target.holds.add(guest.Hold.PAUSED)
            return OWN

        self.claims.uplinks.side_effect = answer_late
        self.binder.reconcile()
        self.assert_restored()

    def test_nics_are_restored_when_the_claim_is_gone(self) -> None:
        self.bind()
        self.claims.uplinks.return_value = ()
        with mock.patch.object(binder.time, 'monotonic', return_value=1e12):
            self.binder.reconcile()
        self.assert_restored()

    def test_nics_stay_while_placement_is_away(self) -> None:
        self.bind()
        self.claims.uplinks.side_effect = client.PlacementError('away')
        with mock.patch.object(binder.time, 'monotonic', return_value=1e12):
            self.binder.reconcile()
        self.assertEqual('br-own', self.domain.bridge)
        self.assertEqual({}, self.binder.status()['problems'])

    def test_nics_stay_until_the_first_publication(self) -> None:
        """Only then it is known whether the claim is gone."""
        self.bind()
        self.binder = self.make_binder()
        self.claims.uplinks.return_value = None
        self.binder.reconcile()
        self.assertEqual('br-own', self.domain.bridge)

    def test_bound_guest_asks_placement_once(self) -> None:
        self.bind()
        self.binder.reconcile()
        self.claims.uplinks.assert_called_once()

    def test_guest_that_cannot_be_bound_is_tried_again_later(self) -> None:
        self.claims.uplinks.side_effect = client.PlacementError('away')
        with mock.patch.object(binder, 'RETRY_S', 100.0):
            self.binder.reconcile()
            self.binder.reconcile()
            self.assertEqual({'u': 'away'}, self.binder.status()['problems'])
            self.claims.uplinks.assert_called_once()
            # Another run is tried at once.
            self.manager._context.guests.remove_ended_run('u')
            self.look()
            self.binder.reconcile()
        self.assertEqual(2, self.claims.uplinks.call_count)

    def test_changed_binding_is_made_again(self) -> None:
        self.bind()
        self.domain.bridge = 'br-int'
        with mock.patch.object(self.plugger, 'intact', return_value=False):
            self.binder.reconcile()
        self.assertEqual('br-own', self.domain.bridge)

    def test_guest_that_no_binder_serves_is_a_problem(self) -> None:
        with mock.patch.object(self.plugger, 'serves', return_value=False):
            self.binder.reconcile()
        self.assertIn('no binder', self.binder.status()['problems']['u'])

    def test_status_says_how_a_guest_is_bound(self) -> None:
        self.bind()
        status = self.binder.status()['uplinks']['u']
        self.assertEqual('linux_bridge', status['binder'])
        self.assertEqual(['br-own/eth1'], status['claimed'])
        self.assertEqual(['br-own'], list(status['in_force'].values()))
