# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0
"""The command ``nova-vhpc-bench cloud``."""

import json
import pathlib

import fixtures

from nova_vhpc.clients import openstack
from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.tests.unit.bench import test_cloud_inventory

KEYS = {'geomean', 'worst', 'clusters', 'independents', 'loss', 'seeds'}


class TestCloud(base.TestCase):
    def setUp(self):
        super().setUp()
        scratch = self.useFixture(fixtures.TempDir()).path
        self.file = pathlib.Path(scratch) / 'cloud.json'

    def run_bench(self, *arguments):
        """Return the figures of the scenarios."""
        status = bench.main(
            [
                'cloud',
                '--hosts',
                '4',
                '--seconds',
                '2',
                '--warm-up',
                '2',
                '--seeds',
                '1',
                '--jobs',
                '1',
                '--json',
                str(self.file),
                *arguments,
            ]
        )
        self.assertEqual(0, status)
        return json.loads(self.file.read_text())['scenarios']

    def test_figures_have_the_keys_of_the_contract(self):
        scenarios = self.run_bench('--scenarios', 'atc-b')
        self.assertEqual(['atc-b'], [*scenarios])
        self.assertEqual(['stock', 'ours', 'bound'], [*scenarios['atc-b']])
        for figures in scenarios['atc-b'].values():
            self.assertLessEqual(KEYS, figures.keys())
            self.assertEqual(1, figures['seeds'])
        bound = scenarios['atc-b']['bound']
        self.assertEqual(['VC1', 'VC2', 'VC3'], [*bound['clusters']])
        self.assertAlmostEqual(0.25, bound['geomean'], delta=0.01)
        self.assertLess(scenarios['atc-b']['stock']['of_bound'], 0.9)

    def test_same_program_runs_on_two_hosts_and_more(self):
        scenarios = self.run_bench(
            '--scenarios', 'atc-a', '--policies', 'stock,bound'
        )
        self.assertEqual(['atc-a-2', 'atc-a-4'], [*scenarios])
        for policies in scenarios.values():
            self.assertEqual(4, len(policies['stock']['clusters']))
            self.assertIsNone(policies['stock']['loss'])

    def test_every_policy_runs_beside_other_programs(self):
        scenarios = self.run_bench(
            '--scenarios',
            'atc-mixed',
            '--policies',
            'balance,dss,vslicer,atc-30ms,atc-6ms',
        )
        for figures in scenarios['atc-mixed'].values():
            self.assertGreater(figures['geomean'], 0.0)
            self.assertIsNotNone(figures['loss'])

    def test_slices_and_coscheduling_act_on_xen(self):
        scenarios = self.run_bench(
            '--scenarios',
            'atc-mixed',
            '--kernel',
            'xen',
            '--policies',
            'stock,cs,dss,vslicer,atc-30ms,atc-6ms,bound',
        )
        policies = scenarios['atc-mixed']
        stock = policies['stock']['geomean']
        self.assertGreater(policies['atc-30ms']['geomean'], 1.2 * stock)
        self.assertGreater(policies['cs']['geomean'], 1.2 * stock)
        self.assertNotEqual(policies['atc-6ms'], policies['atc-30ms'])

    def test_own_overcommit_costs_spinning_threads_most(self):
        scenarios = self.run_bench(
            '--scenarios', 'npc09', '--policies', 'stock,bound'
        )
        self.assertEqual(26, len(scenarios))
        parts = {
            name: policies['stock']['of_bound']
            for name, policies in scenarios.items()
        }
        for program in ('lu', 'bt'):
            for kind in ('threads', 'processes', 'hybrid'):
                fits = parts[f'npc09-{program}-{kind}-1']
                self.assertAlmostEqual(1.0, fits, delta=0.05)
        # Figures 8 and 11, section 6.
        for vcpus in (1.5, 1.75, 2):
            threads = parts[f'npc09-lu-threads-{vcpus}']
            self.assertLess(2 * threads, parts[f'npc09-lu-processes-{vcpus}'])
            self.assertLess(2 * threads, parts[f'npc09-bt-threads-{vcpus}'])
        figures = scenarios['npc09-lu-threads-2']['bound']
        self.assertLessEqual(KEYS, figures.keys())
        self.assertEqual(['lu'], [*figures['clusters']])
        self.assertAlmostEqual(0.5, figures['geomean'], delta=0.01)

    def test_inventory_says_what_finds_no_room(self):
        inventory = self.file.with_name('inventory.json')
        inventory.write_text(
            json.dumps(
                {
                    'overcommit': 2.0,
                    'hosts': [
                        {'cpus': 4, 'count': 2, 'switch': 's'},
                        {'cpus': 2, 'switch': 's'},
                    ],
                    'clusters': [
                        {'members': 2, 'vcpus': 4, 'program': 'cg'},
                    ],
                    'vms': [{'vcpus': 2, 'program': 'compile', 'count': 2}],
                }
            )
        )
        arguments = (
            '--scenarios',
            'inventory',
            '--inventory',
            str(inventory),
            '--policies',
            'stock,bound',
            '--seeds',
            '2',
        )
        fits = self.run_bench(*arguments)['inventory']['stock']
        self.assertEqual(0, fits['refused'])
        self.assertEqual(['c1'], [*fits['clusters']])
        self.assertEqual(['compile'], [*fits['independents']])
        full = self.run_bench(*arguments, '--more-clusters', '3')
        self.assertGreaterEqual(full['inventory']['stock']['refused'], 1)
        more = self.run_bench(
            *arguments, '--more-clusters', '3', '--more-hosts', '4'
        )
        self.assertEqual(0, more['inventory']['stock']['refused'])

    def test_wrong_inventory_is_reported(self):
        inventory = self.file.with_name('inventory.json')
        arguments = ['cloud', '--scenarios', 'inventory']
        self.assertEqual(2, bench.main(arguments))
        for text in (
            '{',
            '{}',
            '{"hosts": [{"cpus": 2}], "vms": [{"vcpus": 1, "program": "x"}]}',
            '{"hosts": [{"cpus": 2}], "vms": ['
            '{"vcpus": 1, "program": "web", "name": "same"},'
            '{"vcpus": 1, "program": "web", "name": "same"}]}',
        ):
            inventory.write_text(text)
            self.assertEqual(
                2, bench.main([*arguments, '--inventory', str(inventory)])
            )

    def test_inventory_of_a_cloud_can_be_written_and_read_again(self):
        cloud = test_cloud_inventory.Cloud(groups=1)
        for number in range(2):
            cloud.add(
                f's{number}', 4, group=0, specs={'vhpc:workload': 'parallel'}
            )
        connect = self.useFixture(
            fixtures.MockPatchObject(openstack, 'connect', return_value=cloud)
        )
        written = str(self.file.with_name('inventory.json'))
        arguments = ('--scenarios', 'inventory', '--policies', 'stock')
        figures = [
            self.run_bench(*arguments, *more)['inventory']['stock']
            for more in (
                ('--os-cloud', 'mine', '--write-inventory', written),
                ('--inventory', written),
            )
        ]
        self.assertEqual(1, connect.mock.call_count)
        self.assertEqual(['name0'], [*figures[0]['clusters']])
        self.assertEqual(figures[0], figures[1])

    def test_unknown_cloud_is_reported_in_one_line(self):
        errors = self.useFixture(fixtures.StringStream('stderr')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stderr', errors))
        arguments = ['cloud', '--scenarios', 'inventory', '--os-cloud']
        self.assertEqual(2, bench.main([*arguments, 'no-such-cloud']))
        errors.seek(0)
        (line,) = errors.read().splitlines()
        self.assertIn('cannot connect to the cloud', line)
        self.assertIn('no-such-cloud', line)

    def test_policy_that_the_kernel_lacks_is_reported(self):
        for kernel, policy in (('linux', 'cs'), ('xen', 'ours')):
            arguments = ['cloud', '--kernel', kernel, '--policies', policy]
            self.assertEqual(2, bench.main(arguments))

    def test_unknown_scenario_is_reported(self):
        with self.assertRaises(SystemExit) as caught:
            self.run_bench('--scenarios', 'nowhere')
        self.assertEqual(2, caught.exception.code)
