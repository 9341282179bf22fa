# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The lab compares the default policy with stock Linux on real guests."""

import argparse
import json
import tempfile
from pathlib import Path

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import cli


class TestDefaultBeatsStock(base.TestCase):
    """Checks the direction only; the benchmark measures the size."""

    def test_default_policy_is_more_efficient_than_stock_linux(self):
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        with tempfile.TemporaryDirectory() as name:
            file = Path(name, 'lab.json')
            plots = Path(name, 'plots')
            status = cli.run(
                parser.parse_args(
                    f'--quick -k 3 -m 3 --mixes clusters '
                    f'--policies stock,default --max-other-load 9 '
                    f'--json {file} --plot {plots}'.split()
                )
            )
            self.assertEqual(0, status)
            figures = json.loads(file.read_text())['mixes']['clusters']
            drawn = sorted(path.name for path in plots.iterdir())
        self.assertGreater(
            figures['default']['efficiency'], figures['stock']['efficiency']
        )
        self.assertIn('lab-time.svg', drawn)
        for policy in ('stock', 'default'):
            for key in ('fairness', 'speedup', 'loss', 'runs'):
                self.assertIn(key, figures[policy])
