# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of the printed tables."""

import contextlib
import io
import os
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import report


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
