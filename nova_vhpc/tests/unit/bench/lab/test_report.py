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


"""Tests of the printed tables."""

import contextlib
import io
import os
from unittest import mock

from nova_vhpc.bench.lab import report
from nova_vhpc.tests import base


class PrintTablesTest(base.TestCase):
    def test_tables_fit_80_columns(self):
        figures = {
            'efficiency': 0.9,
            'fairness': 0.9,
            'speedup': 1234.56,
            'loss': -0.123,
            'latency_ms': {'median': 123.4, 'p99': 567.8},
            'window_late_us': 23_400,
            'runs': 100,
        }
        names = ('default', 'vslicer')
        with (
            mock.patch.dict(os.environ, COLUMNS='80'),
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            report.print_tables(
                {'mixes': {'web': dict.fromkeys(names, figures)}}
            )
        text = out.getvalue()
        self.assertNotIn('…', text)
        for word in (*names, 'efficiency', '1234.56', '-12.3%', '567.8'):
            self.assertIn(word, text)
