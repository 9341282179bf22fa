# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The network bench with a real MPI library in real namespaces."""

import json
import os
import pathlib
import subprocess
import sys
import time

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.network import layout
from nova_vhpc_lab.testbed import supervisor
from nova_vhpc_lab.testbed.patience import PATIENCE_S

LINK_MBPS = 10.0
TRIAL = """
import threading
from nova_vhpc_lab.bench.network import layout, trial
terms = trial.Terms(50.0, 0.1)
with trial.Trial(layout.Cluster(2, 2), 'shared-separate', terms) as one:
    one._world.run(('sh', '-c', 'sleep 600 >/dev/null 2>&1 &'), 'g3')
    print('made', flush=True)
    threading.Event().wait(600)
"""


class NetworkTest(base.TestCase):
    def measure(self, *words):
        """Run the bench; return its JSON."""
        scratch = self.useFixture(fixtures.TempDir()).path
        file = pathlib.Path(scratch) / 'network.json'
        output = self.useFixture(fixtures.StringStream('stdout')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', output))
        status = bench.main(
            [
                *('network', *words),
                *('--rounds', '1', '--seconds', '0.02'),
                *('--link-mbps', str(LINK_MBPS), '--json', str(file)),
            ]
        )
        self.assertEqual(0, status)
        return json.loads(file.read_text())

    def test_smallest_cluster_in_all_configurations(self):
        before = links()
        document = self.measure('--clusters', '2x2', '--mpi', 'mpich-ofi')
        self.assertEqual(before, links())
        self.assertIn('order_matches_planner', document)
        entries = document['clusters']['2x2']['mpich-ofi']
        self.assertEqual(set(layout.ROWS), set(entries))
        for entry in entries.values():
            for figure in ('alltoall_ms', 'bandwidth_mbs', 'latency_us'):
                self.assertGreater(entry[figure], 0)
        # Two pairs share one uplink, or have two. The burst comes on top.
        link_mbs = LINK_MBPS / 8
        self.assertLess(entries['shared']['bandwidth_mbs'], 1.3 * link_mbs)
        for configuration in ('separate', 'shared-separate', 'exported'):
            rate = entries[configuration]['bandwidth_mbs']
            self.assertGreater(rate, 1.3 * link_mbs, configuration)
            self.assertLess(rate, 2.6 * link_mbs, configuration)
        # Neighbours talk over the software bridge, or through the switch.
        for configuration, entry in entries.items():
            (local,) = entry['pairs']['local']['bandwidth_mbs']
            if configuration in ('separate', 'exported'):
                self.assertLess(local[0], 1.3 * link_mbs, configuration)
            else:
                self.assertGreater(local[0], 3 * link_mbs, configuration)

    def test_single_pair_fills_both_uplinks_of_multiple_shared(self):
        words = (
            *('--clusters', '2x1', '--mpi', 'mpich-ucx'),
            *('--configurations', 'multiple-shared'),
        )
        # Two of the three message sizes are long enough. Other work on the
        # machine makes them slower, and nothing makes them faster.
        rates = []
        while max(rates, default=0.0) <= 1.25 * LINK_MBPS / 8:
            self.assertLess(len(rates), 6, rates)
            (by_library,) = self.measure(*words)['clusters'].values()
            entry = by_library['mpich-ucx']['multiple-shared']
            rates.append(entry['bandwidth_mbs'])

    def test_killed_bench_leaves_no_process(self):
        runner = subprocess.Popen(
            (sys.executable, '-c', TRIAL), stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(runner.stdout.close)
        self.addCleanup(runner.kill)
        self.assertEqual('made\n', runner.stdout.readline())
        # The namespaces exist as long as one of these processes does.
        members = supervisor.descendants(runner.pid)
        names = [pathlib.Path(f'/proc/{pid}/comm') for pid in members]
        self.assertIn('sleep\n', [name.read_text() for name in names])
        runner.kill()
        runner.wait()
        end = time.monotonic() + PATIENCE_S
        while left := [
            pid for pid in members if os.path.exists(f'/proc/{pid}')
        ]:
            self.assertLess(time.monotonic(), end, f'{left} run on')
            time.sleep(0.1)


def links():
    return sorted(os.listdir('/sys/class/net'))
