# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.vendordata import fakes
from nova_vhpc.vendordata import live

SERVER = fakes.uuid(1)
OPERATORS = ('cn-0042', 'bond0', 'br-hpc1', 'other-tenants-server')
"""Names that an agent's answer has, and a tenant must not see."""

_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ['vms', 'agent', 'peers', 'slots', 'binding', 'uuid']
            ),
            inner,
        )
    ),
    max_leaves=12,
)


def status(**vm):
    """An agent's answer to ``status``."""
    return {
        'agent': {
            'host': 'cn-0042',
            'paused': False,
            'overcommit': 2.46,
            'remarks': ['other-tenants-server: cannot be written'],
        },
        'vms': [
            {'uuid': fakes.uuid(9), 'name': 'other-tenants-server'},
            {
                'uuid': SERVER,
                'run_s': 30.00004,
                'delay_s': 10.0,
                'window_s': 12.5,
                'received': 0.9876,
                'problem': '',
                'external': False,
                **vm,
            },
        ],
        'peers': {
            'slots': {
                'clusters': {
                    fakes.GROUP: {
                        'slot': {'first': 1, 'every': 4},
                        'hosts': {'cn-0042': 'slots'},
                    }
                }
            }
        },
        'binding': {
            'bound': [SERVER],
            'problems': {},
            'uplinks': {SERVER: {'in_force': {'br-hpc1/bond0': 'x'}}},
        },
    }


def live_of(answer):
    return live.live_of(answer, SERVER, fakes.GROUP, 'separate')


class LiveTest(base.TestCase):
    def test_numbers_of_the_member_and_its_cluster(self):
        self.assertEqual(
            live.Live(
                run_s=30.0,
                held_up_s=10.0,
                in_windows_s=12.5,
                received=0.99,
                slot_share=0.25,
                overcommit=2.5,
                network='separate',
                problem=None,
            ),
            live_of(status()),
        )

    def test_claim_that_steers_nothing_is_said(self):
        answer = status()
        answer['binding'] = {
            'bound': [],
            'problems': {SERVER: 'bond0 of br-hpc1 on cn-0042 is down'},
        }
        found = live_of(answer)
        self.assertEqual('default uplink', found.network)
        self.assertEqual(live.NOT_STEERED, found.problem)

    def test_member_without_claim_has_an_unknown_network(self):
        answer = status()
        answer['binding'] = None
        self.assertIsNone(live_of(answer).network)

    def test_problem_is_told_in_words_of_ours(self):
        for vm, expected in (
            ({'problem': 'bond0 of cn-0042: no such device'}, live.FAILING),
            ({'external': True}, live.EXTERNAL),
            ({}, None),
        ):
            self.assertEqual(expected, live_of(status(**vm)).problem)
        answer = status()
        answer['agent']['paused'] = True
        self.assertEqual(live.PAUSED, live_of(answer).problem)

    def test_nothing_of_the_operator_or_of_others_is_told(self):
        answer = status(problem='bond0 of br-hpc1 on cn-0042 is down')
        answer['binding']['problems'] = {SERVER: 'br-hpc1 of cn-0042'}
        text = json.dumps(dataclasses.asdict(live_of(answer)))
        for name in OPERATORS:
            self.assertNotIn(name, text)

    def test_agent_of_an_earlier_version_leaves_fields_unknown(self):
        answer = {
            'agent': {'paused': False},
            'vms': [{'uuid': SERVER, 'received': 0.5}],
        }
        self.assertEqual(live.Live(received=0.5), live_of(answer))

    def test_unknown_member_and_unreadable_answer_are_none(self):
        answer = status()
        del answer['vms'][1]
        for damaged in (answer, None, [], {}, {'vms': 3}, {'vms': [None]}):
            self.assertIsNone(live_of(damaged))
        # Infinity is no JSON.
        self.assertIsNone(live_of(status(run_s=float('inf'))))

    @given(_JSON)
    def test_any_answer_is_read_or_left(self, answer):
        found = live_of(answer)
        if found is not None:
            json.dumps(dataclasses.asdict(found), allow_nan=False)
