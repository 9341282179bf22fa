# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What the role of controllers reads of Nova's files."""

import json
import os
import pathlib
import subprocess
import sys

import fixtures

from nova_vhpc.tests import base

SCRIPT = (
    pathlib.Path(__file__).parents[4]
    / 'deploy/ansible/roles/nova_vhpc_scheduler/files/filters.py'
)


class FiltersTest(base.TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.nova = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('nova.conf.d', 'nova-scheduler.conf.d'):
            (self.nova / name).mkdir()
        self.ours = self.nova / 'nova-scheduler.conf.d/50-nova-vhpc.conf'
        self.write('nova.conf', enabled_filters='ComputeFilter')

    def write(self, name: str, **options: str) -> None:
        """Write a file with options of the scheduler."""
        lines = [f'{option} = {value}' for option, value in options.items()]
        text = '\n'.join(['[filter_scheduler]', *lines, ''])
        (self.nova / name).write_text(text)

    def run_script(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, SCRIPT, self.nova / 'nova.conf', self.ours],
            env={**os.environ, 'HOME': str(self.nova)},
            capture_output=True,
            text=True,
            check=False,
        )

    def lists(self) -> dict[str, list[str]]:
        ended = self.run_script()
        self.assertEqual(0, ended.returncode, ended.stderr)
        return json.loads(ended.stdout)

    def test_files_that_nova_scheduler_reads_besides_count(self) -> None:
        """Ours, which it reads after them, would drop what they set."""
        self.write('nova.conf.d/site.conf', weight_classes='site.Weigher')
        self.write(
            'nova-scheduler.conf.d/10-site.conf',
            enabled_filters='ComputeFilter,SiteFilter',
        )
        lists = self.lists()
        self.assertEqual(
            ['ComputeFilter', 'SiteFilter'], lists['enabled_filters']
        )
        self.assertEqual(['site.Weigher'], lists['weight_classes'])
        self.assertEqual(
            ['nova.scheduler.filters.all_filters'], lists['available_filters']
        )

    def test_own_file_of_an_earlier_run_does_not_count(self) -> None:
        self.write(
            'nova-scheduler.conf.d/50-nova-vhpc.conf',
            enabled_filters='FormerFilter,VirtualClusterFilter',
        )
        self.assertEqual(['ComputeFilter'], self.lists()['enabled_filters'])

    def test_file_that_would_switch_ours_off_is_named(self) -> None:
        self.write(
            'nova-scheduler.conf.d/60-more.conf', max_io_ops_per_host='4'
        )
        self.lists()
        name = 'nova-scheduler.conf.d/60-site.conf'
        self.write(name, enabled_filters='SiteFilter')
        ended = self.run_script()
        self.assertEqual(1, ended.returncode)
        (line,) = [s for s in ended.stderr.splitlines() if 'sets' in s]
        self.assertIn(
            f'{self.nova / name} sets [filter_scheduler] enabled', line
        )
