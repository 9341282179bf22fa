# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.agent.metrics.host_metrics`."""

import re

from oslotest import base

from nova_vhpc.agent.health import watch
from nova_vhpc.agent.metrics import endpoint, host_metrics
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.tests.unit.agent.daemon import status_document


def page(**parts: object) -> list[str]:
    """Return the lines of the metrics for parts of the status document."""
    claimed = parts.pop('claimed', {})
    document = {'agent': status_document.agent(), **parts}
    collector = host_metrics.HostCollector(lambda: document, lambda: claimed)
    return endpoint.Metrics(collector).page().decode().splitlines()


class HostMetricsTest(base.BaseTestCase):
    def test_each_part_has_its_health(self) -> None:
        document = status_document.document()
        lines = page(health=watch.HealthWatch().judge(document))
        for line in (
            'nova_vhpc_part_healthy{part="libvirt"} 1.0',
            'nova_vhpc_part_healthy{part="probes"} 0.0',
        ):
            self.assertIn(line, lines)

    def test_name_that_utf8_cannot_encode_does_not_cost_the_page(self) -> None:
        document = {
            'agent': status_document.agent(),
            'workloads': {'half a pair \ud800': 1},
            'peers': {
                'slots': {
                    'state': 'agreeing',
                    'clusters': {
                        '\udcff': {'slot': None, 'hosts': {'b': 'rests'}}
                    },
                }
            },
        }
        page = endpoint.Metrics(
            host_metrics.HostCollector(lambda: document),
            lambda: 'nova_vhpc_vm_vcpus{name="\ud800"} 4\n',
        ).page()
        for line in (
            b'nova_vhpc_cluster_slot_agreed{cluster="?"} 0.0',
            b'nova_vhpc_vm_vcpus{name="?"} 4',
        ):
            self.assertIn(line, page.splitlines())

    def test_tick_is_let_through_at_each_metric(self) -> None:
        paused = []
        collector = host_metrics.HostCollector(
            lambda: {'agent': status_document.agent()},
            pause=lambda: paused.append(True),
        )
        self.assertEqual(len(list(collector.collect())), len(paused))

    def test_vms_are_counted_by_workload(self) -> None:
        lines = page(workloads={'general': 2})
        self.assertIn('nova_vhpc_vms{workload="general"} 2.0', lines)
        self.assertIn('nova_vhpc_vms{workload="parallel"} 0.0', lines)

    def test_journal_that_cannot_be_written_is_shown(self) -> None:
        agent = status_document.agent()
        self.assertIn('nova_vhpc_journal_writable 1.0', page(agent=agent))
        agent['journal_problem'] = 'no space'
        self.assertIn('nova_vhpc_journal_writable 0.0', page(agent=agent))

    def test_windows_are_in_seconds(self) -> None:
        lines = page(
            windows={
                'playing': True,
                'borders': 7,
                'writes': 8,
                'failures': 9,
                'worst_late_us': 1_500,
                'total_late_us': 2_500_000.0,
                'cpu_shares': {'missing': 0.25, 'played': 1.0},
            }
        )
        for line in (
            'nova_vhpc_windows_playing 1.0',
            'nova_vhpc_window_borders_total 7.0',
            'nova_vhpc_window_writes_total 8.0',
            'nova_vhpc_window_write_failures_total 9.0',
            'nova_vhpc_window_worst_late_seconds 0.0015',
            'nova_vhpc_window_late_seconds_total 2.5',
            'nova_vhpc_missing_cpu_ratio 0.25',
            'nova_vhpc_windows_played_ratio 1.0',
        ):
            self.assertIn(line, lines)

    def test_uplinks_published_follows_the_state(self) -> None:
        for state, line in (
            ('published', 'nova_vhpc_uplinks_published 1.0'),
            ('placement-away', 'nova_vhpc_uplinks_published 0.0'),
            ('starting', 'nova_vhpc_uplinks_published 0.0'),
            ('off', None),
            ('dry-run', None),
        ):
            lines = [
                one
                for one in page(publishing={'state': state})
                if re.match('nova_vhpc_uplinks_published ', one)
            ]
            self.assertEqual([line] if line else [], lines, state)

    def test_uplinks_have_used_and_free_slots(self) -> None:
        def uplink(nic: str, slots: int, *, up: bool) -> dict:
            return {'bridge': 'br', 'nic': nic, 'slots': slots, 'up': up}

        one = claims.ClaimedUplink('br', 'eth1')
        lines = page(
            publishing={
                'state': 'published',
                'uplinks': [
                    uplink('eth1', 8, up=True),
                    uplink('eth2', 1, up=False),
                ],
            },
            claimed={'u': (one,), 'v': (one,)},
        )
        eth1, eth2 = 'bridge="br",nic="eth1"', 'bridge="br",nic="eth2"'
        for line in (
            f'nova_vhpc_uplink_slots{{{eth1},state="used"}} 2.0',
            f'nova_vhpc_uplink_slots{{{eth1},state="free"}} 6.0',
            f'nova_vhpc_uplink_slots{{{eth2},state="used"}} 0.0',
            f'nova_vhpc_uplink_slots{{{eth2},state="free"}} 1.0',
            f'nova_vhpc_uplink_up{{{eth1}}} 1.0',
            f'nova_vhpc_uplink_up{{{eth2}}} 0.0',
        ):
            self.assertIn(line, lines)

    def test_clusters_have_their_slots(self) -> None:
        slots = {
            'state': 'agreeing',
            'clock_offset_us': -1_500,
            'clusters': {
                'a': {
                    'slot': {'slots': [1, 2, 9, 10], 'epoch': 0},
                    'hosts': {'h': 'slots'},
                },
                'b': {'slot': None, 'hosts': {'h': 'refuses'}},
                'here-alone': {'slot': None, 'hosts': {}},
            },
        }
        lines = page(peers={'slots': slots})
        for line in (
            'nova_vhpc_cluster_slot_agreed{cluster="a"} 1.0',
            'nova_vhpc_cluster_slot_agreed{cluster="b"} 0.0',
            'nova_vhpc_cluster_slot_share_ratio{cluster="a"} 0.25',
            'nova_vhpc_clock_offset_seconds -0.0015',
        ):
            self.assertIn(line, lines)
        self.assertNotIn('share_ratio{cluster="b"', '\n'.join(lines))
        self.assertNotIn('here-alone', '\n'.join(lines))
