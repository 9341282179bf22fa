# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.uplinks.binders.encap_ip_writer`."""

import json

from oslotest import base

from nova_vhpc.agent.journal import record
from nova_vhpc.agent.uplinks.binders import encap_ip_writer

PORT = encap_ip_writer.PortRecord('r1', 'tap1', None, frozenset({'b', 'a'}))
GUEST = encap_ip_writer.GuestRecord(
    'u',
    (
        PORT,
        encap_ip_writer.PortRecord(
            'r2', 'tap2', '10.1.0.1', frozenset(), external=True
        ),
    ),
)


class GuestRecordTest(base.BaseTestCase):
    def parse(self, text: str) -> encap_ip_writer.GuestRecord:
        return encap_ip_writer.GuestRecord.from_json(text, 'a file')

    def test_record_survives_json(self) -> None:
        self.assertEqual(GUEST, self.parse(GUEST.to_json()))

    def test_ports_are_replaced_by_row(self) -> None:
        again = PORT.with_written('c')
        self.assertEqual(
            (again, GUEST.ports[1]), GUEST.with_ports([again]).ports
        )
        self.assertEqual({'a', 'b', 'c'}, again.written)

    def test_damaged_record_is_refused(self) -> None:
        whole = json.loads(GUEST.to_json())
        whole.pop(record.CHECKSUM_KEY)
        port = PORT.to_dict()
        for torn in (
            GUEST.to_json()[:30],
            GUEST.to_json().replace('tap1', 'tap9'),
            # Every agent writes a checksum.
            json.dumps(whole),
            record.encode({**whole, 'ports': 7}),
            record.encode({**whole, 'ports': [{}]}),
            record.encode({**whole, 'ports': ['r1']}),
            record.encode({**whole, 'ports': [{**port, 'before': 7}]}),
            record.encode({**whole, 'ports': [{**port, 'before': '\ud800'}]}),
            record.encode({**whole, 'ports': [{**port, 'written': 'ab'}]}),
            record.encode({**whole, 'ports': [{**port, 'written': [None]}]}),
        ):
            self.assertRaises(record.JournalError, self.parse, torn)

    def test_record_of_a_newer_agent_is_refused(self) -> None:
        whole = {**json.loads(GUEST.to_json()), 'version': record.VERSION + 1}
        self.assertRaises(
            record.NewerVersion, self.parse, json.dumps({**whole, 'ports': {}})
        )

    def test_empty_value_of_an_operator_survives(self) -> None:
        port = encap_ip_writer.PortRecord('r1', 'tap1', '')
        guest = encap_ip_writer.GuestRecord('u', (port,))
        self.assertEqual(guest, self.parse(guest.to_json()))

    def test_values_that_may_be_the_agents(self) -> None:
        self.assertTrue(PORT.may_be_agents(None))
        self.assertTrue(PORT.may_be_agents('a'))
        self.assertFalse(PORT.may_be_agents('z'))
