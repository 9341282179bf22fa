# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import threading

from hypothesis import given
from hypothesis import strategies as st

from nova_vhpc.agent.rpc import control
from nova_vhpc.conf import vendordata as vendordata_conf
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.agent.clusters import peer_agents
from nova_vhpc.tests.unit.cli import bus
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
            'period_us': 100_000,
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
                'sync_latency_us': 40_000.0,
                'waiting': {
                    'state': 'held-up',
                    'finding': 'runs beside other-tenants-server',
                },
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
                        'slot': {'slots': [1, 2, 9, 10]},
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
                held_up_now=True,
                never_sleeps=True,
                in_windows_s=12.5,
                received=0.99,
                slot_share=0.25,
                overcommit=2.5,
                network='separate',
                problem=None,
            ),
            live_of(status()),
        )

    def test_held_up_now_is_more_than_a_twentieth_of_the_last_period(self):
        for latency_us, held_up in (
            (0.0, False),
            (5_000.0, False),
            (5_001.0, True),
            (250_000.0, True),
            (None, None),
        ):
            found = live_of(status(sync_latency_us=latency_us))
            self.assertIs(held_up, found.held_up_now, latency_us)
        answer = status()
        del answer['agent']['period_us']
        self.assertIsNone(live_of(answer).held_up_now)

    def test_never_sleeps_is_what_the_agent_says_of_its_waiting(self):
        for waiting, never_sleeps in (
            ({'state': 'waits'}, False),
            ({'state': 'spins'}, True),
            ({'state': 'held-up'}, True),
            ({'state': 'dozes'}, None),
            ({}, None),
            (None, None),
        ):
            found = live_of(status(waiting=waiting))
            self.assertIs(never_sleeps, found.never_sleeps, waiting)

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


PATIENCE_S = 60.0


def cluster():
    """Member 1 on cn-0042, member 2 on cn-0043."""
    return dataclasses.replace(
        fakes.cluster([fakes.member(1, 'h1'), fakes.member(2, 'h2')]),
        host_names={fakes.uuid(1): 'cn-0042', fakes.uuid(2): 'cn-0043'},
    )


class AgentStatusesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.hang = threading.Event()
        self.addCleanup(self.hang.set)
        self.calls = []

    def call(self, host):
        self.calls.append(host)
        if host == 'cn-0043':
            self.hang.wait(PATIENCE_S)
            raise control.ControlError('no answer')
        return status()

    def test_agent_that_does_not_answer_leaves_its_member_unknown(self):
        # The second agent hangs until the test ends.
        statuses = live.AgentStatuses(self.call, 2.0, 60.0)
        found = statuses.of_members(cluster())
        self.assertFalse(self.hang.is_set())
        self.assertEqual({fakes.uuid(1)}, found.keys())
        self.assertEqual(10.0, found[fakes.uuid(1)].held_up_s)

    def test_agent_that_hangs_is_not_asked_again(self):
        statuses = live.AgentStatuses(self.call, 0.1, 0.0)
        for _again in range(3):
            statuses.of_members(cluster())
        self.assertEqual(1, self.calls.count('cn-0043'))

    def test_answer_serves_all_members_for_a_while(self):
        self.hang.set()
        statuses = live.AgentStatuses(self.call, PATIENCE_S, 600.0)
        for _again in range(3):
            self.assertEqual(
                {fakes.uuid(1)}, statuses.of_members(cluster()).keys()
            )
        self.assertEqual({'cn-0042', 'cn-0043'}, set(self.calls))
        self.assertEqual(2, len(self.calls))

    def test_member_that_does_not_run_is_unknown(self):
        self.hang.set()
        one = cluster()
        members = [dataclasses.replace(m, running=False) for m in one.members]
        statuses = live.AgentStatuses(self.call, PATIENCE_S, 60.0)
        self.assertEqual(
            {},
            statuses.of_members(
                dataclasses.replace(one, members=tuple(members))
            ),
        )


class BusTest(base.TestCase):
    """Agents answer over oslo.messaging's own RPC."""

    def conf(self, url, **options):
        conf = peer_agents.make_conf(url)
        vendordata_conf.register_opts(conf)
        for name, value in options.items():
            conf.set_override(name, value, 'vhpc_vendordata')
        return conf

    def test_agents_are_asked_by_the_call_of_the_operators_tools(self):
        agents = self.useFixture(bus.Bus())
        agents.agent('cn-0042', **status())
        statuses = live.make(self.conf('fake://'))
        found = statuses.of_members(cluster())
        # No agent listens on the other host.
        self.assertEqual({fakes.uuid(1)}, found.keys())

    def test_option_turns_asking_off(self):
        conf = self.conf('fake://', ask_agents=False)
        self.assertIsNone(live.make(conf))

    def test_without_transport_url_agents_are_not_asked(self):
        self.assertIsNone(live.make(self.conf('rabbit://')))

    def test_wrong_transport_url_is_refused_and_named(self):
        conf = self.conf('fake://')
        conf.set_override('transport_url', 'rabit://u:hunter2@h:5672/')
        error = self.assertRaises(ValueError, live.make, conf)
        self.assertIn('transport_url', str(error))
        self.assertNotIn('hunter2', str(error))
