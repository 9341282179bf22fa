# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of :mod:`nova_vhpc.agent.health.rules`."""

from typing import Any

from oslotest import base

from nova_vhpc.agent.health import rules
from nova_vhpc.tests.unit.agent.daemon import status_document

AGENT = {
    'libvirt_up': True,
    'reconnects': 0,
    'ticks': 1000,
    'tick_problem': '',
    'journal_problem': '',
    'paused': False,
    'dry_run': False,
    'refused': {},
    'remarks': [],
    'probes': ['schedstat', 'tap'],
    'unusable_probes': {},
}
VM = {
    'name': 'vm',
    'workload': 'parallel',
    'cluster': 'g',
    'pid': 77,
    'control_group': True,
    'unmeasured': [],
    'problem': '',
}


def document(
    vm: dict[str, Any] | None = None,
    vms: list[dict[str, Any]] | None = None,
    **changes: dict[str, Any],
) -> dict[str, Any]:
    """Return the document of a healthy agent with one VM, with changes."""
    whole: dict[str, Any] = {
        'agent': AGENT,
        'vms': [VM | (vm or {})] if vms is None else vms,
        'windows': {'playing': False, 'turns': [], 'failing': []},
        'groups': {'state': 'fresh', 'age_s': 1.0, 'file_problem': ''},
        'publishing': {'state': 'published', 'problems': []},
        'peers': {
            'state': 'up',
            'slots': {'state': 'agreeing', 'detail': ''},
        },
        'binding': {'problems': {}},
        'metrics': {'state': 'up', 'detail': ''},
    }
    for key, change in changes.items():
        whole[key] = whole[key] | change
    return whole


AWAY = {'state': 'nova-away', 'detail': 'HTTP 503'}
AHEAD = {'state': 'local', 'detail': 'clock is 40 ms ahead'}
BROKEN = {'problem': 'cannot journal vm: disk full'}
TURNS = {'turns': [{'width_us': 1}]}
UNMEASURED = VM | {'unmeasured': ['latency']}
ROWS = (
    # part, state, document, words that are said
    # -- VMs that nobody names
    *(
        (
            'groups',
            'degraded',
            document({'cluster': None}, groups={'state': state}),
            'nobody says which cluster 1 VMs (vm) are in',
            '[vhpc_nova]auth_type',
        )
        for state in ('off', 'file')
    ),
    ('groups', 'off', document(groups={'state': 'off'})),
    ('groups', 'ok', document({'cluster': None})),
    (
        'groups',
        'degraded',
        document(groups={'state': 'partial', 'detail': 'Nova names none'}),
        'Nova names none',
    ),
    ('groups', 'degraded', document(groups=AWAY | {'age_s': 3.0}), 'HTTP 503'),
    ('groups', 'failed', document(groups=AWAY | {'age_s': None}), 'HTTP 503'),
    (
        'groups',
        'degraded',
        document(groups={'state': 'file', 'file_problem': 'no YAML'}),
        'no YAML',
    ),
    # -- VMs that nobody measures
    (
        'probes',
        'failed',
        document({'unmeasured': ['latency', 'io_events']}),
        'no probe measures I/O and the synchronisation latency of 1 VMs',
    ),
    ('probes', 'degraded', document({'unmeasured': ['io_events']})),
    (
        'probes',
        'failed',
        document({'unmeasured': ['latency'], 'pid': 0}),
        'the QEMU process of 1 VMs (vm) is not found',
        'pid: host',
    ),
    (
        'probes',
        'failed',
        document(agent={'probes': [], 'unusable_probes': {'tap': 'no sysfs'}}),
        'tap: no sysfs',
    ),
    (
        'probes',
        'failed',
        document(vms=[UNMEASURED | {'name': f'vm{n}'} for n in range(9)]),
        '9 VMs (vm0, vm1, vm2, ...)',
    ),
    (
        'control_groups',
        'degraded',
        document({'control_group': False}),
        'cgroupns_mode: host',
    ),
    # -- VMs that cannot be written to
    ('writes', 'failed', document(BROKEN), 'disk full'),
    (
        'writes',
        'degraded',
        document(vms=[VM | BROKEN, VM | {'name': 'other'}]),
        '1 VMs (vm)',
    ),
    (
        'writes',
        'degraded',
        document(agent={'refused': {'u1': 'XML is odd'}}),
        '1 VMs (u1) are left alone',
        'XML is odd',
    ),
    *(
        row
        for mode in ('paused', 'dry_run')
        for row in (
            ('writes', 'degraded', document(agent={mode: True})),
            ('writes', 'ok', document(agent={mode: True}, vms=[])),
        )
    ),
    (
        'journal',
        'failed',
        document(agent={'journal_problem': 'no journal possible'}),
        'no journal possible',
        'state_path',
    ),
    # -- parts
    *(
        (
            'libvirt',
            state,
            document(
                agent={
                    'libvirt_up': False,
                    'ticks': ticks,
                    'reconnects': reconnects,
                }
            ),
        )
        for ticks, reconnects, state in (
            (5, 0, 'starting'),
            (5, 1, 'failed'),
            (500, 0, 'failed'),
        )
    ),
    ('decisions', 'failed', document(agent={'tick_problem': 'KeyError()'})),
    ('decisions', 'degraded', document(agent={'remarks': ['policy failed']})),
    ('decisions', 'starting', document(agent={'ticks': 0})),
    ('windows', 'failed', document(windows=TURNS)),
    ('windows', 'ok', document(windows=TURNS | {'playing': True})),
    ('windows', 'degraded', document(windows={'failing': ['u']}), '(u)'),
    *(
        (part, state, document(**{key: told}))
        for part, key, told, state in (
            ('publishing', 'publishing', {'state': 'off'}, 'off'),
            ('publishing', 'publishing', {'state': 'dry-run'}, 'off'),
            ('publishing', 'publishing', {'state': 'starting'}, 'starting'),
            (
                'publishing',
                'publishing',
                {'state': 'x', 'detail': ''},
                'failed',
            ),
            ('publishing', 'publishing', {'problems': ['dpdk0']}, 'degraded'),
            ('bus', 'peers', {'state': 'off'}, 'off'),
            ('bus', 'peers', {'state': 'starting'}, 'starting'),
            ('bus', 'peers', {'state': 'down', 'detail': 'x'}, 'degraded'),
            ('bus', 'peers', {'state': 'up', 'detail': 'x'}, 'degraded'),
            ('slots', 'peers', {'slots': {'state': 'off'}}, 'off'),
            ('slots', 'peers', {'slots': {'state': 'agreeing'}}, 'ok'),
            ('slots', 'peers', {'slots': AHEAD}, 'degraded'),
            (
                'slots',
                'peers',
                {'slots': AHEAD | {'state': 'off'}},
                'degraded',
            ),
            ('metrics', 'metrics', {'state': 'off'}, 'off'),
            ('metrics', 'metrics', {'state': 'down'}, 'degraded'),
            ('binding', 'binding', {'state': 'off'}, 'off'),
        )
    ),
    ('binding', 'off', document() | {'binding': None}),
    (
        'binding',
        'degraded',
        document(binding={'problems': {'u': 'is on OVS'}}),
        'is on OVS',
    ),
    (
        'binding',
        'degraded',
        document(
            binding={
                'problems': {'u': 'A. B', 'v': 'A. B', 'w': 'C'},
                'unsteered': {
                    uuid: {
                        'name': f'vm-{uuid}',
                        'cause': 'off',
                        'what': 'A',
                        'remedy': 'B',
                    }
                    for uuid in 'uv'
                },
            }
        ),
        '3 VMs',
        'vm-u: A; w: C',
        'B. the agent tries again',
    ),
)


class HealthRulesTest(base.BaseTestCase):
    def assert_part(
        self, part: str, state: str, whole: dict[str, Any], *words: str
    ) -> None:
        """Assert the state of one part, and that no other one is off."""
        judged = rules.assess(whole)
        self.assertEqual(state, judged[part].state)
        for word in words:
            self.assertIn(word, f'{judged[part].what}; {judged[part].action}')
        others = {name for name in judged if not judged[name].state.healthy}
        self.assertLessEqual(others, {part})
        if not judged[part].state.healthy:
            self.assertTrue(judged[part].what and judged[part].action)

    def test_states_of_parts(self) -> None:
        for part, state, whole, *words in ROWS:
            with self.subTest(part=part, state=state, words=words):
                self.assert_part(part, state, whole, *words)

    def test_all_parts_are_healthy(self) -> None:
        judged = rules.assess(document())
        self.assertEqual(
            {rules.State.OK}, {part.state for part in judged.values()}
        )
        self.assertEqual(rules.State.OK, rules.worst(judged.values()))

    def test_document_of_a_real_agent_can_be_judged(self) -> None:
        judged = rules.assess(status_document.document())
        self.assertEqual(rules.State.DEGRADED, judged['probes'].state)

    def test_document_of_an_older_agent_can_be_judged(self) -> None:
        for whole in ({}, {'agent': {}, 'vms': [{'name': 'a'}]}):
            self.assertEqual(
                rules.State.OK,
                rules.worst(rules.assess(whole).values()),
            )
