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


"""Tests of :mod:`nova_vhpc.agent.clusters.bus`."""

import json
from unittest import mock

import fixtures
import hypothesis
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.agent import periodic
from nova_vhpc.agent.clusters import bus, protocol
from nova_vhpc.control.model import ClusterPlan, Phase

COUNTS = st.integers(0, 2**63 - 1)
FIELDS = {
    'cluster': 'c',
    'host': 'h',
    'boot': 1,
    'seq': 2,
    'phase': 'io',
    'lease_ms': 6000,
}


class SubscriptionTest(base.BaseTestCase):
    def test_refusal_is_logged_once_until_the_broker_accepts(self) -> None:
        """A refusal may last for hours, for instance after a new password."""
        log = self.useFixture(fixtures.FakeLogger(bus.__name__))
        with mock.patch.object(bus.messaging, 'get_rpc_client'):
            peer_bus = bus.PeerBus(None, 'h', lambda message: None)
        peer_bus.subscribe({'c'})
        self.addCleanup(peer_bus.stop)
        for refusals, clusters in ((3, {'c'}), (2, {'c', 'd'})):
            peer_bus.subscribe(clusters)
            answers = [RuntimeError('refused')] * refusals + [mock.Mock()]
            with mock.patch.object(peer_bus, '_listen', side_effect=answers):
                for _ in range(refusals):
                    self.assertRaises(
                        periodic.RetryLater, peer_bus._update_subscriptions
                    )
                self.assertIn('refused', peer_bus.detail)
                peer_bus._update_subscriptions()
            self.assertEqual(clusters, peer_bus.subscribed)
            self.assertEqual('', peer_bus.detail)
        self.assertEqual(
            [
                'Cannot listen to virtual clusters of other hosts; will '
                'retry: refused'
            ]
            * 2,
            log.output.splitlines(),
        )


class CodecTest(base.BaseTestCase):
    @hypothesis.given(
        st.builds(
            protocol.Message,
            st.text(),
            st.text(),
            COUNTS,
            COUNTS,
            st.builds(ClusterPlan, st.sampled_from(Phase), st.none() | COUNTS),
            st.integers(0, 10**6).map(lambda ms: ms * 1000),
        )
    )
    def test_encoded_message_is_decoded_unchanged(
        self, message: protocol.Message
    ) -> None:
        fields = json.loads(json.dumps(bus.encode(message)))
        self.assertEqual(message, bus.decode(fields))

    def test_unknown_fields_are_ignored(self) -> None:
        self.assertEqual(2, bus.decode({**FIELDS, 'mood': 'good'}).seq)

    def test_invalid_fields_are_refused(self) -> None:
        for name, value in (
            ('boot', 'x'),
            ('seq', -1),
            ('seq', True),
            ('lease_ms', 2**63),
            ('phase', 'sleeping'),
            ('cluster', None),
            ('host', 3),
            ('host', 'h' * (protocol.MAX_NAME + 1)),
            ('cluster', 'c' * (protocol.MAX_NAME + 1)),
            ('min_slice_us', 1.5),
        ):
            self.assertRaises(
                (KeyError, TypeError, ValueError),
                bus.decode,
                {**FIELDS, name: value},
            )
        for name in FIELDS:
            fields = {k: v for k, v in FIELDS.items() if k != name}
            self.assertRaises(KeyError, bus.decode, fields)

    def test_topic_is_unique_and_short_enough_for_amqp(self) -> None:
        self.assertEqual('vhpc.peers.g1', bus.topic('g1'))
        names = {bus.topic('x' * 500 + str(n)) for n in range(2)}
        self.assertEqual(2, len(names))
        # A groups file may have nearly any text, and the limit is in bytes.
        names |= {bus.topic('\u540d' * 90), bus.topic('\ud800' * 90)}
        self.assertEqual(4, len(names))
        self.assertLess(max(len(name.encode()) for name in names), 128)
