# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The command ``nova-vhpc-bench calibration``."""

import json
import pathlib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench import calibration
from nova_vhpc_lab.bench.lab import measured_ranges


class TestCalibration(base.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.scratch / 'file.json'

    def test_measured_and_simulated_figures_stand_side_by_side(self):
        output = self.useFixture(fixtures.StringStream('stdout')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', output))
        status = bench.main(
            [
                *('calibration', '--mixes', 'alone', '--seeds', '2'),
                *('--json', str(self.file)),
            ]
        )
        self.assertEqual(0, status)
        document = json.loads(self.file.read_text())
        self.assertEqual({'alone'}, document['simulated'].keys())
        for name in ('simulated', 'measured'):
            self.assertGreater(
                document[name]['alone']['stock']['efficiency'][0], 0.9
            )

    def test_mix_that_cannot_be_simulated_is_refused(self):
        for name in ('network', 'none'):
            self.assertEqual(2, bench.main(['calibration', '--mixes', name]))

    def test_file_that_is_no_lab_json_is_refused(self):
        for text in ('{}', 'no JSON'):
            self.file.write_text(text)
            self.assertEqual(
                2, bench.main(['calibration', '--renew', str(self.file)])
            )

    def test_renewed_ranges_are_written_to_their_file(self):
        ranges = self.scratch / 'ranges.json'
        self.useFixture(
            fixtures.MonkeyPatch(f'{calibration.__name__}.RANGES', ranges)
        )
        entry = {
            'runs': 1,
            'when': '2026-01-01',
            'efficiencies': [0.5],
            'intervals': {'fairness': [0.9, 0.9, 0.9]},
        }
        self.file.write_text(
            json.dumps(
                {
                    'scheme': {'settle_s': 8.0, 'measure_s': 4.0},
                    'mixes': {'block': {'stock': entry}},
                }
            )
        )
        self.assertEqual(
            0, bench.main(['calibration', '--renew', str(self.file)])
        )
        written = json.loads(ranges.read_text())
        self.assertEqual([0.5] * 3, written['block']['stock']['efficiency'])
        for name, by_policy in measured_ranges.load().items():
            if name != 'block':
                self.assertEqual(by_policy, written[name])
