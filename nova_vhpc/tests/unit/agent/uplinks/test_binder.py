# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.uplinks.binder`."""

import pathlib
import types
from unittest import mock

import fixtures

from nova_vhpc.agent.guests import guest
from nova_vhpc.agent.libvirt import interfaces
from nova_vhpc.agent.ovsdb import connection
from nova_vhpc.agent.uplinks import (
    binder,
    bound_guest,
    claims,
    port_networks,
    steering,
)
from nova_vhpc.agent.uplinks.binders import base as binder_base
from nova_vhpc.agent.uplinks.binders import (
    encap_ip,
    encap_ip_writer,
    guest_ports,
)
from nova_vhpc.placement import client, publisher
from nova_vhpc.tests.unit.agent.lifecycle import manager as manager_case
from nova_vhpc.tests.unit.agent.uplinks.binders import ovsdb
from nova_vhpc.topology import links, model

MAC = '52:54:00:00:00:01'
OWN = (claims.ClaimedUplink('br-own', 'eth1', '10.2.0.1'),)


class UplinkBinderTest(manager_case.ManagerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.domain.specs['vhpc:network'] = 'shared-separate'
        self.claims = mock.Mock(
            spec=claims.UplinkClaims, **{'uplinks.return_value': OWN}
        )
        for name in ('RETRY_S', 'SETTLE_S'):
            self.useFixture(fixtures.MockPatchObject(binder, name, 0.0))
        self.ovsdb = ovsdb.MemoryOvsdb()
        self.row = self.ovsdb.plug('u', MAC)
        self.enabled = True
        self.records = encap_ip_writer.EncapIpJournal(self.state)
        self.binder = self.make_binder()
        self.target = self.look()

    def make_binder(self) -> binder.UplinkBinder:
        self.encap_ips = encap_ip.EncapIpBinder(
            self.ovsdb,
            self.records,
            'h1',
            guest_ports.UplinkLinks(links.Links(pathlib.Path('/nowhere'))),
            lambda: False,
        )
        binders = binder_base.BinderSet([self.encap_ips])
        return binder.UplinkBinder(
            binders,
            lambda: self.manager.guests,
            lambda: self.manager.connection.get(),
            self.claims,
            ovsdb.steering_of(self.ovsdb, binders),
            enabled=self.enabled,
        )

    @property
    def encap_ip(self) -> str | None:
        return self.ovsdb.encap_ip(self.row)

    def bind(self) -> None:
        self.binder.reconcile()
        self.assertEqual('10.2.0.1', self.encap_ip)

    def assert_restored(self) -> None:
        self.assertIsNone(self.encap_ip)
        self.assertEqual((), self.records.uuids())
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
        self.assertEqual('10.2.0.1', self.encap_ip)
        self.look()
        self.binder.reconcile()
        self.assertEqual(['u'], self.binder.status()['bound'])

    def test_devices_whose_packets_are_steered_are_known(self) -> None:
        self.assertEqual({}, self.binder.steered_devices())
        self.bind()
        self.assertEqual(['u'], list(self.binder.steered_devices()))

    def test_claims_of_servers_that_are_gone_are_left_out(self) -> None:
        self.claims.last.return_value = {'u': OWN, 'v': OWN, 'w': ()}
        self.assertEqual({'u': OWN}, self.binder.claimed())

    def test_record_of_a_domain_that_is_gone_is_removed(self) -> None:
        self.bind()
        self.manager.connection.get().domains.clear()
        self.reconcile()
        self.binder.reconcile()
        self.assertEqual((), self.records.uuids())
        self.assertEqual({}, self.binder.status()['problems'])

    def test_restoring_a_held_guest_is_retried(self) -> None:
        self.bind()
        self.target.holds.add(guest.Hold.PAUSED)
        self.ovsdb.connected = False
        self.binder.reconcile()
        self.assertIn('answer', self.binder.status()['problems']['u'])
        self.ovsdb.connected = True
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
        self.assertEqual('10.2.0.1', self.encap_ip)
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
        """Stop the binder while ovsdb refuses a number of writes."""
        self.bind()
        self.binder.start()
        away = iter(range(refusals))

        def refuse() -> None:
            if next(away, None) is not None:
                raise connection.OvsdbError('away')

        self.ovsdb.before_write = refuse
        with (
            mock.patch.object(binder, 'FIRST_RETRY_S', 0.001),
            mock.patch.object(binder, 'RETRY_SECONDS', 0.5),
        ):
            self.binder.stop()

    def test_stop_retries_while_ovsdb_restarts(self) -> None:
        self.stop(4)
        self.assertIsNone(self.encap_ip)
        self.assertEqual((), self.records.uuids())
        self.assertFalse(self.binder.left)

    def test_stop_reports_nics_if_ovsdb_stays_away(self) -> None:
        log = self.useFixture(fixtures.FakeLogger('nova_vhpc'))
        self.stop(1_000_000)
        self.assertEqual(('u',), self.records.uuids())
        self.assertTrue(self.binder.left)
        self.assertEqual(1, log.output.count('NICs of u are not restored'))

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
        self.ovsdb.unplug(self.row)
        self.row = self.ovsdb.plug('u', MAC)
        self.manager._context.guests.remove_ended_run('u')
        self.look()
        self.bind()

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

    def serve_claims(self) -> mock.Mock:
        """Let the claims come from Placement; return its client."""
        placement = mock.create_autospec(client.PlacementClient, instance=True)
        uplink = model.Uplink(
            'eth1', 'br-own', model.BridgeKind.SHARED, 1, encap_ip='10.2.0.1'
        )
        bridge = model.Bridge('br-own', uplink.kind, (uplink,))
        placement.claimed_uplinks.return_value = frozenset(
            [model.provider_uuid('cn1', 'br-own', 'eth1')]
        )
        publication = claims.Publication(
            placement,
            publisher.Published('cn1', (), (), 0),
            model.HostTopology('cn1', (bridge,)),
        )
        self.claims = claims.UplinkClaims(lambda: publication)
        self.binder = self.make_binder()
        return placement

    def test_nics_stay_while_placement_is_away(self) -> None:
        placement = self.serve_claims()
        self.bind()
        placement.claimed_uplinks.side_effect = client.PlacementError('away')
        with mock.patch.object(binder.time, 'monotonic', return_value=1e12):
            self.binder.reconcile()
        self.assertEqual('10.2.0.1', self.encap_ip)
        self.assertEqual({}, self.binder.status()['problems'])

    def test_restarted_guest_is_bound_while_placement_is_away(self) -> None:
        placement = self.serve_claims()
        self.bind()
        placement.claimed_uplinks.side_effect = client.PlacementError('away')
        self.manager._context.guests.remove_ended_run('u')
        self.ovsdb.unplug(self.row)
        self.binder.reconcile()
        self.look()
        # os-vif may be later than libvirt.
        self.binder.reconcile()
        self.row = self.ovsdb.plug('u', MAC)
        self.bind()

    def test_nics_stay_until_the_first_publication(self) -> None:
        """Only then it is known whether the claim is gone."""
        self.bind()
        self.binder = self.make_binder()
        self.claims.uplinks.return_value = None
        self.binder.reconcile()
        self.assertEqual('10.2.0.1', self.encap_ip)

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
        self.ovsdb.unplug(self.row)
        self.row = self.ovsdb.plug('u', MAC)
        self.bind()

    def turn_off(self) -> None:
        """Let the next agent have ``bind_uplinks`` off."""
        self.enabled = False
        self.binder = self.make_binder()

    def test_claim_while_binding_is_off_is_said_once(self) -> None:
        self.turn_off()
        with self.assertLogs(binder.LOG, 'WARNING') as logs:
            self.binder.reconcile()
            self.binder._waiting.clear()
            self.binder.reconcile()
        self.assertEqual(1, len(logs.output))
        status = self.binder.status()
        self.assertEqual(('off', []), (status['state'], status['bound']))
        self.assertEqual('off', status['unsteered']['u']['cause'])
        for word in ('bind_uplinks', 'h1', MAC):
            self.assertIn(word, status['unsteered']['u']['what'])
            self.assertIn(word, status['problems']['u'])
        self.assertIsNone(self.encap_ip)

    def test_reason_of_the_host_counts_more_than_binding_off(self) -> None:
        self.ovsdb = ovsdb.MemoryOvsdb('10.1.0.1')
        self.row = self.ovsdb.plug('u', MAC)
        self.turn_off()
        self.binder.reconcile()
        unsteered = self.binder.status()['unsteered']['u']
        self.assertEqual('one-encap-ip', unsteered['cause'])

    def test_new_guest_is_left_to_settle_while_binding_is_off(self) -> None:
        self.turn_off()
        with mock.patch.object(binder, 'SETTLE_S', 100.0):
            self.binder.reconcile()
            self.assertEqual({}, self.binder.status()['problems'])
            self.claims.uplinks.assert_not_called()
        self.binder.reconcile()
        self.assertIn('u', self.binder.status()['problems'])

    def test_no_claim_while_binding_is_off_is_no_problem(self) -> None:
        self.turn_off()
        self.claims.uplinks.return_value = ()
        self.binder.reconcile()
        self.assertEqual({}, self.binder.status()['problems'])

    def test_nics_of_a_crashed_agent_are_restored_if_binding_is_off(
        self,
    ) -> None:
        self.bind()
        self.turn_off()
        self.binder.reconcile()
        self.assert_restored()
        self.assertIn('u', self.binder.status()['unsteered'])

    def test_problem_is_forgotten_once_it_is_solved(self) -> None:
        del self.ovsdb.external_ids['ovn-encap-ip']
        self.ovsdb._state = None
        self.binder.reconcile()
        self.assertIn('u', self.binder.status()['unsteered'])
        self.ovsdb.external_ids['ovn-encap-ip'] = ovsdb.ENCAP_IPS
        self.ovsdb._state = None
        self.bind()
        self.assertEqual({}, self.binder.status()['unsteered'])
        self.assertEqual({}, self.binder.status()['problems'])

    def test_nothing_is_written_while_the_network_is_unknown(self) -> None:
        self.ovsdb.flows = None
        self.binder.reconcile()
        status = self.binder.status()
        self.assertEqual({}, status['problems'])
        self.patch_time(binder, 'UNWIRED_S')
        self.binder._waiting.clear()
        self.binder.reconcile()
        self.assertIsNone(self.encap_ip)
        status = self.binder.status()
        self.assertEqual([], status['bound'])
        said = status['unsteered']['u']
        self.assertEqual('unknown-network', said['cause'])
        self.assertIn('ovs-ofctl is not installed', said['what'])

    def test_claim_steers_once_ovn_is_seen_to_use_the_encap_ip(self) -> None:
        self.patch_time(bound_guest, 'UNSEEN_PERIOD_S')
        for name in ('FLOWS_AGE_S', 'UNWIRED_AGE_S'):
            self.useFixture(fixtures.MockPatchObject(port_networks, name, 0.0))
        self.ovsdb.follows = False
        self.bind()
        status = self.binder.status()
        self.assertEqual(([], {}), (status['bound'], status['problems']))
        self.assertEqual({}, self.binder.steered_devices())
        self.patch_time(bound_guest, 'UNSEEN_S')
        problem = self.binder.status()['problems']['u']
        for word in ('h1', MAC, '10.1.0.1', '10.2.0.1', 'Port_Binding'):
            self.assertIn(word, problem)
        self.ovsdb.follows = True
        self.bind()
        status = self.binder.status()
        self.assertEqual((['u'], {}), (status['bound'], status['problems']))

    def patch_time(self, module: types.ModuleType, name: str) -> None:
        """Let a time be over at once."""
        self.useFixture(fixtures.MockPatchObject(module, name, 0.0))

    def test_encap_ip_is_restored_where_it_proves_useless(self) -> None:
        """The network was not known at first."""
        self.bind()
        with (
            mock.patch.object(
                steering.Steering,
                'carrier',
                side_effect=interfaces.UnsupportedError('provider network'),
            ),
            mock.patch.object(binder.time, 'monotonic', return_value=1e12),
        ):
            self.binder.reconcile()
        self.assert_restored()

    def test_status_says_how_a_guest_is_bound(self) -> None:
        self.bind()
        status = self.binder.status()['uplinks']['u']
        self.assertEqual('encap_ip', status['binder'])
        self.assertEqual(['br-own/eth1'], status['claimed'])
        self.assertEqual({MAC: '10.2.0.1'}, status['in_force'])
