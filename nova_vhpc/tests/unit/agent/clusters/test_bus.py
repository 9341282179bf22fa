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


"""The peers' messages as they travel."""

import json
from unittest import mock

import fixtures
import hypothesis
from hypothesis import strategies as st
from oslotest import base

from nova_vhpc.agent.clusters import bus as peer_bus
from nova_vhpc.agent.clusters import protocol
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


class RefusedTest(base.BaseTestCase):
    def test_told_once_until_it_is_over(self) -> None:
        """It may go on for hours, as where a password was changed."""
        log = self.useFixture(fixtures.FakeLogger(peer_bus.__name__))
        with mock.patch.object(peer_bus.messaging, 'get_rpc_client'):
            bus = peer_bus.PeerBus(None, 'h', lambda message: None)
        server = object()
        for refusals in (3, 2):
            answers = [RuntimeError('refused')] * refusals + [server]
            with mock.patch.object(bus, '_listen', side_effect=answers):
                for _ in answers:
                    problem = bus._try_to_listen('c')
                    if problem is not None:
                        bus._tell('c', problem)
        self.assertEqual(frozenset({'c'}), bus.subscribed)
        self.assertEqual(
            ['Cannot listen to virtual cluster c; trying again: refused'] * 2,
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
    def test_there_and_back(self, message: protocol.Message) -> None:
        fields = json.loads(json.dumps(peer_bus.encode(message)))
        self.assertEqual(message, peer_bus.decode(fields))

    def test_fields_of_newer_versions_are_passed_over(self) -> None:
        self.assertEqual(2, peer_bus.decode({**FIELDS, 'mood': 'good'}).seq)

    def test_nonsense_is_refused(self) -> None:
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
                peer_bus.decode,
                {**FIELDS, name: value},
            )
        for name in FIELDS:
            fields = {k: v for k, v in FIELDS.items() if k != name}
            self.assertRaises(KeyError, peer_bus.decode, fields)

    def test_topics_fit_into_amqp_names(self) -> None:
        self.assertEqual('vhpc.peers.g1', peer_bus.topic('g1'))
        names = {peer_bus.topic('x' * 500 + str(n)) for n in range(2)}
        self.assertEqual(2, len(names))
        # Those of a groups file: nearly any text, and the limit is in bytes.
        names |= {peer_bus.topic('\u540d' * 90), peer_bus.topic('\ud800' * 90)}
        self.assertEqual(4, len(names))
        self.assertLess(max(len(name.encode()) for name in names), 128)
