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
    vm: dict[str, Any] | None = None, **changes: dict[str, Any]
) -> dict[str, Any]:
    """Return the document of a healthy agent with one VM, with changes."""
    whole: dict[str, Any] = {
        'agent': AGENT,
        'vms': [VM | (vm or {})],
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

    # -- VMs that nobody names ----------------------------------------------

    def test_parallel_vm_that_nobody_names_is_not_healthy(self) -> None:
        nameless = {'cluster': None}
        for state in ('off', 'file'):
            self.assert_part(
                'groups',
                'degraded',
                document(nameless, groups={'state': state}),
                'nobody says which cluster 1 VMs (vm) are in',
                '[vhpc_nova]auth_type',
            )

    def test_vm_named_by_its_flavor_needs_no_nova(self) -> None:
        self.assert_part('groups', 'off', document(groups={'state': 'off'}))

    def test_vm_that_nova_puts_in_no_cluster_is_healthy(self) -> None:
        self.assert_part('groups', 'ok', document({'cluster': None}))

    def test_host_that_nova_does_not_know_is_not_healthy(self) -> None:
        self.assert_part(
            'groups',
            'degraded',
            document(groups={'state': 'partial', 'detail': 'Nova names none'}),
            'Nova names none',
        )

    def test_nova_away_is_worse_if_it_never_answered(self) -> None:
        away = {'state': 'nova-away', 'detail': 'HTTP 503'}
        for age_s, state in ((3.0, 'degraded'), (None, 'failed')):
            self.assert_part(
                'groups',
                state,
                document(groups={**away, 'age_s': age_s}),
                'HTTP 503',
            )

    def test_unusable_groups_file_is_not_healthy(self) -> None:
        self.assert_part(
            'groups',
            'degraded',
            document(groups={'state': 'file', 'file_problem': 'no YAML'}),
            'no YAML',
        )

    # -- VMs that nobody measures -------------------------------------------

    def test_vm_without_probe_is_not_healthy(self) -> None:
        self.assert_part(
            'probes',
            'failed',
            document({'unmeasured': ['latency', 'io_events']}),
            'no probe measures I/O and the synchronisation latency of 1 VMs',
        )
        self.assert_part(
            'probes', 'degraded', document({'unmeasured': ['io_events']})
        )

    def test_process_that_is_not_found_is_named(self) -> None:
        self.assert_part(
            'probes',
            'failed',
            document({'unmeasured': ['latency'], 'pid': 0}),
            'the QEMU process of 1 VMs (vm) is not found',
            'pid: host',
        )

    def test_host_without_any_probe_is_not_healthy(self) -> None:
        self.assert_part(
            'probes',
            'failed',
            document(
                agent={
                    'probes': [],
                    'unusable_probes': {'schedstat': 'not compiled in'},
                }
            ),
            'schedstat: not compiled in',
        )

    def test_control_group_that_is_not_found_is_not_healthy(self) -> None:
        self.assert_part(
            'control_groups',
            'degraded',
            document({'control_group': False}),
            'cgroupns_mode: host',
        )

    # -- VMs that cannot be written to --------------------------------------

    def test_vm_that_cannot_be_written_is_not_healthy(self) -> None:
        broken = document({'problem': 'cannot journal vm: disk full'})
        self.assert_part('writes', 'failed', broken, 'disk full')
        broken['vms'].append(VM | {'name': 'other'})
        self.assert_part('writes', 'degraded', broken, '1 VMs (vm)')

    def test_vm_left_alone_is_not_healthy(self) -> None:
        self.assert_part(
            'writes',
            'degraded',
            document(agent={'refused': {'u1': 'XML is odd'}}),
            '1 VMs (u1) are left alone',
            'XML is odd',
        )

    def test_pause_and_dry_run_with_vms_are_not_plainly_healthy(self) -> None:
        for mode in ('paused', 'dry_run'):
            whole = document(agent={mode: True})
            self.assert_part('writes', 'degraded', whole)
            whole['vms'] = []
            self.assert_part('writes', 'ok', whole)

    def test_journal_that_cannot_be_written_is_not_healthy(self) -> None:
        self.assert_part(
            'journal',
            'failed',
            document(agent={'journal_problem': 'no journal possible'}),
            'no journal possible',
            'state_path',
        )

    # -- parts --------------------------------------------------------------

    def test_libvirt_may_take_a_while_at_the_start(self) -> None:
        for ticks, reconnects, state in (
            (5, 0, 'starting'),
            (5, 1, 'failed'),
            (500, 0, 'failed'),
        ):
            self.assert_part(
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

    def test_failing_ticks_and_policies_are_not_healthy(self) -> None:
        for key, value, state in (
            ('tick_problem', 'KeyError()', 'failed'),
            ('remarks', ['slice policy failed: x'], 'degraded'),
            ('ticks', 0, 'starting'),
        ):
            self.assert_part('decisions', state, document(agent={key: value}))

    def test_windows_that_are_not_played_are_not_healthy(self) -> None:
        turns = {'turns': [{'width_us': 1}]}
        self.assert_part('windows', 'failed', document(windows=turns))
        self.assert_part(
            'windows', 'ok', document(windows={**turns, 'playing': True})
        )
        self.assert_part(
            'windows', 'degraded', document(windows={'failing': ['u']}), '(u)'
        )

    def test_states_of_publishing(self) -> None:
        for publishing, state in (
            ({'state': 'off'}, 'off'),
            ({'state': 'dry-run'}, 'off'),
            ({'state': 'starting'}, 'starting'),
            ({'state': 'no-compute-node', 'detail': 'x'}, 'failed'),
            ({'problems': ['uplink dpdk0 is no interface']}, 'degraded'),
        ):
            self.assert_part(
                'publishing', state, document(publishing=publishing)
            )

    def test_states_of_the_bus(self) -> None:
        for peers, state in (
            ({'state': 'off'}, 'off'),
            ({'state': 'starting'}, 'starting'),
            ({'state': 'down', 'detail': 'refused'}, 'degraded'),
            ({'state': 'up', 'detail': 'another agent'}, 'degraded'),
        ):
            self.assert_part('bus', state, document(peers=peers))

    def test_host_that_follows_no_slots_is_not_healthy(self) -> None:
        for slots, state in (
            ({'state': 'off', 'detail': ''}, 'off'),
            ({'state': 'agreeing', 'detail': ''}, 'ok'),
            ({'state': 'local', 'detail': 'clock is 40 ms ahead'}, 'degraded'),
            ({'state': 'off', 'detail': 'version_cap'}, 'degraded'),
        ):
            self.assert_part('slots', state, document(peers={'slots': slots}))

    def test_notifications_that_do_not_arrive_are_not_healthy(self) -> None:
        self.assert_part(
            'groups',
            'degraded',
            document(groups={'detail': 'no exchange nova'}),
            'no exchange nova',
        )

    def test_metrics_port_in_use_is_not_healthy(self) -> None:
        for metrics, state in (
            ({'state': 'off'}, 'off'),
            ({'state': 'down', 'detail': 'address in use'}, 'degraded'),
        ):
            self.assert_part('metrics', state, document(metrics=metrics))

    def test_nics_that_are_not_bound_are_not_healthy(self) -> None:
        self.assert_part(
            'binding',
            'degraded',
            document(binding={'problems': {'u': 'is on OVS'}}),
            'is on OVS',
        )
        self.assert_part(
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
        )
        self.assert_part('binding', 'off', document(binding={'state': 'off'}))
        whole = document()
        whole['binding'] = None
        self.assert_part('binding', 'off', whole)

    def test_few_of_many_vms_are_named(self) -> None:
        whole = document()
        whole['vms'] = [
            VM | {'name': f'vm{n}', 'unmeasured': ['latency']}
            for n in range(9)
        ]
        self.assert_part(
            'probes', 'failed', whole, '9 VMs (vm0, vm1, vm2, ...)'
        )
