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

"""``nova-vhpc-bench controller``: figures that hold together."""

import contextlib
import io
import json
import pathlib
import tempfile

from nova_vhpc.cmd import bench
from nova_vhpc.tests import base


class ControllerBenchTest(base.TestCase):
    def test_figures(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, 'out.json')
            with contextlib.redirect_stdout(io.StringIO()) as out:
                status = bench.main(
                    (
                        'controller --vms 3 9 --ticks 70 '
                        f'--predictor last_value --json {path}'
                    ).split()
                )
            figures = json.loads(path.read_text())
        self.assertEqual(0, status)
        self.assertEqual({'3', '9'}, set(figures['vms']))
        for count, one in figures['vms'].items():
            self.assertLessEqual(one['median_ms'], one['p99_ms'])
            self.assertLessEqual(one['p99_ms'], one['max_ms'])
            self.assertAlmostEqual(
                1e3 * one['mean_ms'] / int(count), one['us_per_vm']
            )
        self.assertIn('us per VM', out.getvalue())

    def test_bad_arguments(self):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(
                1, bench.main(['controller', '--predictor', 'nosuch'])
            )
            self.assertEqual(1, bench.main(['controller', '--vms', '0']))
        self.assertIn('predictor = nosuch', err.getvalue())
