# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import json
import os
import sys
import tempfile
from unittest import mock

from oslotest import base

from nova_vhpc_lab import cli as bench
from nova_vhpc_lab.bench.scheduler import run


class SchedulerBenchTest(base.BaseTestCase):
    """Tests of ``nova-vhpc-bench scheduler``."""

    def test_all_figures_are_written_and_positive(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'figures.json')
            status = bench.main(
                [
                    *('scheduler', '--hosts', '24', '--members', '4'),
                    *('--rounds', '1', '--refresh', '--json', path),
                ]
            )
            self.assertEqual(0, status)
            with open(path, encoding='utf-8') as file:
                figures = json.load(file)
        self.assertEqual((24, 4), (figures['hosts'], figures['members']))
        for key in (
            'ours_us_per_host',
            'peer_us_per_host',
            'ratio',
            'unrelated_ratio',
        ):
            self.assertGreater(figures[key], 0, key)
        self.assertEqual(
            {'anti-affinity', 'soft-affinity'}, set(figures['policies'])
        )
        self.assertEqual(96, figures['refresh']['uplinks'])

    def test_more_members_than_the_hosts_hold_are_refused(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(
                0,
                bench.main(
                    [
                        *('scheduler', '--hosts', '2', '--members', '8'),
                        *('--rounds', '1'),
                    ]
                ),
            )
        with contextlib.redirect_stderr(io.StringIO()) as err:
            status = bench.main(
                ['scheduler', '--hosts', '2', '--members', '9']
            )
        self.assertEqual(2, status)
        self.assertIn('9 members need 3 hosts', err.getvalue())

    def test_missing_package_is_reported_before_measuring(self):
        for missing, more in (
            ('nova.conf', ()),
            ('placement.direct', ('--refresh',)),
        ):
            with (
                self.subTest(missing),
                mock.patch.dict(sys.modules, {missing: None}),
                mock.patch.object(run, 'measure') as measure,
                contextlib.redirect_stderr(io.StringIO()) as err,
            ):
                status = bench.main(['scheduler', *more])
                self.assertEqual(1, status)
                measure.assert_not_called()
                self.assertIn(missing, err.getvalue())
