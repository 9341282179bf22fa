# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""The lab compares the default policy with stock Linux on real guests."""

import argparse
import json
import tempfile
from pathlib import Path

from nova_vhpc.bench.lab import cli
from nova_vhpc.tests import base


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
