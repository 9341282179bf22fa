# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The metrics of a host on which everything happens that they can show.

The agent's own collectors, given values that a small host cannot produce at
once: slots agreed with other hosts, claimed uplinks, gang windows, quotas.
"""

import itertools
import pathlib
from typing import Any

from nova_vhpc.agent import tick_result
from nova_vhpc.agent.libvirt import cputune
from nova_vhpc.agent.metrics import endpoint, host_metrics, vm_metrics
from nova_vhpc.agent.probes import base, sampler
from nova_vhpc.agent.uplinks import claims
from nova_vhpc.control import model
from nova_vhpc.tests.unit.agent.guests import test_guest

CLUSTER = 'c0ffee00-0000-4000-8000-000000000001'


class _Reader:
    """Counts on at each call."""

    def __init__(self) -> None:
        self._calls = itertools.count(1)

    def counters(self) -> list[base.VcpuCounters]:
        n = next(self._calls)
        return [base.VcpuCounters(n * 1_000_000_000, n * 500_000_000, n)] * 2


class FullHost:
    """Makes the endpoint of such a host.

    :param root: directory for what the kernel would show.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._scrapes = itertools.count(1)
        self._guest = test_guest.make()
        self._guest.note_written({cputune.QUOTA: 50_000})
        group = root / 'vcpu0'
        group.mkdir()
        (group / 'cpu.stat').write_text('throttled_usec 5\n')
        statistics = root / 'class/net/tap0/statistics'
        statistics.mkdir(parents=True)
        for name in ('rx_packets', 'tx_packets'):
            (statistics / name).write_text('7\n')
        self._guest.reader = sampler.VmReader(
            [_Reader()],
            [],
            target=base.Target(
                'u', 'vm', 7, (1, 2), vcpu_groups=(group,), taps=('tap0',)
            ),
        )
        uplink = claims.ClaimedUplink('br-hpc', 'eth1')
        self.metrics = endpoint.Metrics(
            host_metrics.HostCollector(
                self._document, lambda: {'u': (uplink,)}
            ),
            vm_metrics.VmMetrics(
                lambda: {'u': self._guest},
                self._last_tick,
                lambda: {'u': ('tap0',)},
                str(root),
            ).text,
        )

    def _last_tick(self) -> tick_result.TickResult:
        self._guest.window_s += 0.5
        vm = model.VmView('u', 2, cluster=CLUSTER)
        turn = model.Turn(10_000, frozenset({'u'}), {})
        plan = model.Plan(
            {
                'u': model.VmPlan(
                    'u', model.CpuTune(), None, 5_000, model.Phase.IO
                )
            },
            windows=model.WindowSchedule((turn,), {}),
            cpu_shares=model.Shares({'u': 0.97}, 0.03, 1.0),
            waiting={'u': model.Waiting(model.WaitState.HELD_UP, 2, 2, 0.5)},
        )
        result = tick_result.TickResult(
            model.HostView(1, 0, 100_000, (), (vm,)), plan, 3_000.0
        )
        self.metrics.observe(result)
        return result

    def _document(self) -> dict[str, Any]:
        n = next(self._scrapes)
        return {
            'agent': {
                **{key: n for key, _, _ in host_metrics.AGENT_COUNTERS},
                **{key: 1 for key, _, _ in host_metrics.AGENT_GAUGES},
            },
            'workloads': {'parallel': 1},
            'windows': {
                'playing': True,
                'borders': 10 * n,
                'writes': 20 * n,
                'failures': n,
                'worst_late_us': 900,
                'total_late_us': 2_000.0 * n,
                'cpu_shares': {'missing': 0.03, 'played': 1.0},
            },
            'health': {'parts': {'libvirt': {'healthy': True}}},
            'publishing': {
                'state': 'published',
                'uplinks': [
                    {'bridge': 'br-hpc', 'nic': 'eth1', 'slots': 8, 'up': True}
                ],
            },
            'peers': {
                'state': 'up',
                'echo_us': 800.0,
                'sent': n,
                'received': n,
                'slots': {
                    'state': 'agreeing',
                    'clock_offset_us': 150.0,
                    'clusters': {
                        CLUSTER: {
                            'slot': {'slots': [0, 1, 7], 'epoch': 1},
                            'hosts': {'compute2': 'slots'},
                        }
                    },
                },
            },
        }
