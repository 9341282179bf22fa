# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.claims`."""

from unittest import mock

import fixtures
from oslotest import base

from nova_vhpc.agent.uplinks import claims
from nova_vhpc.placement import client, publisher
from nova_vhpc.topology import model

AWAY = client.PlacementError('away')


class UplinkClaimsTest(base.BaseTestCase):
    def setUp(self) -> None:
        super().setUp()
        uplinks = tuple(
            model.Uplink(nic, 'br', model.BridgeKind.SHARED, 1000)
            for nic in ('eth1', 'eth2')
        )
        self.placement = mock.create_autospec(
            client.PlacementClient, instance=True
        )
        self.answer('eth1')
        publication = claims.Publication(
            self.placement,
            publisher.Published('cn1', (), (), 0),
            model.HostTopology(
                'cn1', (model.Bridge('br', model.BridgeKind.SHARED, uplinks),)
            ),
        )
        self.claims = claims.UplinkClaims(lambda: publication)
        self.now_s = 1000.0
        self.useFixture(
            fixtures.MockPatchObject(
                claims.time, 'monotonic', lambda: self.now_s
            )
        )

    def answer(self, *nics: str) -> None:
        self.placement.claimed_uplinks.side_effect = None
        self.placement.claimed_uplinks.return_value = frozenset(
            model.provider_uuid('cn1', 'br', nic) for nic in nics
        )

    def claimed(self, server: str) -> list[str]:
        return [one.nic for one in self.claims.uplinks(server) or ()]

    def test_last_answer_counts_while_placement_is_away(self) -> None:
        self.assertEqual(['eth1'], self.claimed('u'))
        self.placement.claimed_uplinks.side_effect = AWAY
        self.assertEqual(['eth1'], self.claimed('u'))
        self.assertRaises(client.PlacementError, self.claims.uplinks, 'v')
        self.now_s += claims.PAUSE_S
        self.answer('eth2')
        self.assertEqual(['eth2'], self.claimed('u'))
        self.assertEqual(['eth2'], self.claimed('v'))

    def test_one_failure_is_enough_for_a_while(self) -> None:
        self.claimed('u')
        self.placement.claimed_uplinks.side_effect = AWAY
        for _ in range(400):
            self.claimed('u')
        self.assertEqual(2, self.placement.claimed_uplinks.call_count)
        self.now_s += claims.PAUSE_S
        self.claimed('u')
        self.assertEqual(3, self.placement.claimed_uplinks.call_count)

    def test_old_answers_are_dropped(self) -> None:
        self.claimed('u')
        self.now_s += claims.KEEP_S + 1
        self.claimed('v')
        self.placement.claimed_uplinks.side_effect = AWAY
        self.assertRaises(client.PlacementError, self.claims.uplinks, 'u')
        self.assertEqual(['eth1'], self.claimed('v'))

    def test_answer_is_kept_however_long_placement_is_away(self) -> None:
        self.claimed('u')
        self.placement.claimed_uplinks.side_effect = AWAY
        for _ in range(3):
            self.now_s += claims.KEEP_S
            self.assertEqual(['eth1'], self.claimed('u'))
