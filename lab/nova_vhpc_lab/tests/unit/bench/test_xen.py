# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The command ``nova-vhpc-bench xen``."""

import json
import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.sim import xen_trials


class XenTest(base.TestCase):
    def test_figures_of_all_slices_and_policies_are_written(self):
        scratch = self.useFixture(fixtures.TempDir()).path
        file = pathlib.Path(scratch) / 'xen.json'
        output = self.useFixture(fixtures.StringStream('stdout')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', output))
        status = bench.main(
            [
                'xen',
                '--seeds',
                '2',
                '--seconds',
                '1',
                '--warm-up',
                '0.1',
                '--json',
                str(file),
            ]
        )
        self.assertEqual(0, status)
        figures = json.loads(file.read_text())
        works = {str(work_us) for work_us in xen_trials.WORK_US}
        for part in ('slices', 'parallel', 'mixed'):
            self.assertEqual(works, figures[part].keys())
        self.assertEqual(works, figures['correlation'].keys())
        distances = figures['distance']
        self.assertEqual(len(xen_trials.SLICES_US), len(distances))
        self.assertEqual(max(distances.values()), distances['30000'])
        for work in works:
            slices = figures['slices'][work]
            self.assertEqual([1.0, 1.0, 1.0], slices['30000']['time'])
            self.assertEqual(len(xen_trials.SLICES_US), len(slices))
            for policies in (
                figures['parallel'][work],
                figures['mixed'][work],
            ):
                self.assertEqual(xen_trials.POLICIES.keys(), policies.keys())
                for policy in policies.values():
                    mean, least, most = policy['time']
                    self.assertTrue(0 < least <= mean <= most)
