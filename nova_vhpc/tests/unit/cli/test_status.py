# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of :mod:`nova_vhpc.cli.status`."""

import contextlib
import io
import json
import pathlib
from typing import Any

import fixtures

from nova_vhpc.cli import status
from nova_vhpc.tests import base
from nova_vhpc.upgradecheck import scheduler

PART = f"""\
[filter_scheduler]
available_filters = {scheduler.ALL_FILTERS}
available_filters = {scheduler.FILTER_CLASS}
enabled_filters = ComputeFilter,{scheduler.FILTER}
weight_classes = {scheduler.WEIGHER_CLASS}
[vhpc_agent]
run_path = /nonexistent/of-nova
"""


class DefaultFilesTest(base.TestCase):
    """On a host where no service answers."""

    def setUp(self) -> None:
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.EnvironmentVariable('HOME', str(self.home)))
        for name, text in (
            ('NOVA_FILE', '[filter_scheduler]\nenabled_filters = A\n'),
            (
                'OWN_FILE',
                '[vhpc_agent]\nrun_path = /nonexistent/own\n'
                'libvirt_uri = qemu+unix:///system?socket=/nonexistent\n',
            ),
        ):
            path = self.home / name
            path.write_text(text)
            self.useFixture(fixtures.MockPatchObject(status, name, str(path)))

    def check(self, name: str) -> Any:
        """Return what a check says without --config-file."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status.main(['upgrade', 'check', '--json'])
        (found,) = (
            check
            for check in json.loads(out.getvalue())['checks']
            if check['check'] == name
        )
        return found

    def test_filter_in_directory_of_nova_scheduler_is_found(self) -> None:
        self.assertEqual(2, self.check('Filter and weigher')['result'])
        directory = self.home / '.nova/nova-scheduler.conf.d'
        directory.mkdir(parents=True)
        (directory / '50-nova-vhpc.conf').write_text(PART)
        found = self.check('Filter and weigher')
        self.assertEqual(0, found['result'], found)
        self.assertIn('/nonexistent/own/', self.check('Agent')['details'])
