# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Pages that enable a unit install it first, from wherever pip put it."""

import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import tomllib

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.doc import test_commands

TOP = test_commands.TOP
SYSTEM = '/etc/systemd/system'
OFFLINE_SINCE = 250
"""First version of systemd that rates a unit which is not loaded."""
PAGES = {
    'doc/source/admin/agent.rst': 'nova-vhpc-agent',
    'doc/source/admin/enabling.rst': 'nova-vhpc-agent',
    'doc/source/admin/vendordata.rst': 'nova-vhpc-vendordata',
    'doc/source/install/systemd.rst': 'nova-vhpc-agent',
}


def installs(text, unit):
    """The commands of the block that enables a unit, before it does."""
    for match in test_commands.BLOCK.finditer(text):
        body = textwrap.dedent(match['body'])
        before, found, _ = body.partition(f'# systemctl enable --now {unit}\n')
        if found:
            lines = before.partition('\n\n')[2] or before
            return re.sub('^# ', '', lines, flags=re.MULTILINE).replace(
                'systemctl daemon-reload', ':'
            )
    return None


class UnitsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def prefix(self, name):
        """What pip makes of the package's data files and programs."""
        prefix = self.root / name
        project = tomllib.loads((TOP / 'pyproject.toml').read_text())
        files = project['tool']['setuptools']['data-files']
        for target, patterns in files.items():
            (prefix / target).mkdir(parents=True)
            for pattern in patterns:
                for file in TOP.glob(pattern):
                    shutil.copy(file, prefix / target)
        (prefix / 'bin').mkdir()
        for program in project['project']['scripts']:
            (prefix / 'bin' / program).write_text('#!/bin/sh\n')
            (prefix / 'bin' / program).chmod(0o755)
        return prefix

    def install(self, page, unit, path):
        """Does what the page says, and reads the unit that comes of it."""
        system = self.root / 'system'
        system.mkdir(exist_ok=True)
        script = installs((TOP / page).read_text(), unit)
        self.assertIsNotNone(script, f'{page} does not enable {unit}')
        subprocess.run(
            ['bash', '-euc', script.replace(SYSTEM, str(system))],
            env={**os.environ, 'PATH': f'{path}:{os.environ["PATH"]}'},
            # Not in a clone: nobody who runs pip has one.
            cwd=self.root,
            check=True,
            timeout=240,
        )
        file = system / f'{unit}.service'
        self.assertTrue(file.exists(), f'{page} does not install {unit}')
        text = file.read_text()
        file.unlink()
        return text

    def test_units_run_the_programs_that_pip_installed(self):
        prefixes = [self.prefix('usr/local'), self.prefix('opt/venv')]
        # As some link the programs of a virtual environment.
        links = self.root / 'links'
        links.mkdir()
        for program in (prefixes[1] / 'bin').iterdir():
            (links / program.name).symlink_to(program)
        for page, unit in PAGES.items():
            for prefix, path in (
                (prefixes[0], prefixes[0] / 'bin'),
                (prefixes[1], prefixes[1] / 'bin'),
                (prefixes[1], links),
            ):
                text = self.install(page, unit, path)
                programs = re.findall('^Exec.*?=(\\S*nova-\\S+)', text, re.M)
                self.assertEqual({f'{prefix}/bin/{unit}'}, set(programs), page)

    def test_exposure_levels_are_at_most_those_of_the_documentation(self):
        version = subprocess.run(
            ['systemd-analyze', '--version'],
            check=False,
            capture_output=True,
            text=True,
        ).stdout.split()
        if len(version) < 2 or int(version[1]) < OFFLINE_SINCE:
            self.skipTest(f'needs systemd {OFFLINE_SINCE}')
        page = ' '.join(
            (TOP / 'doc/source/admin/security.rst').read_text().split()
        )
        for unit, level, place in (
            ('nova-vhpc-agent', 2.8, "the agent's {}"),
            ('nova-vhpc-vendordata', 1.5, '``nova-vhpc-vendordata`` {}'),
        ):
            self.assertIn(place.format(level), page)
            done = subprocess.run(
                [
                    *('systemd-analyze', 'security', '--no-pager'),
                    *('--offline=true', f'--threshold={level * 10:.0f}'),
                    TOP / f'etc/nova-vhpc/{unit}.service',
                ],
                check=False,
                capture_output=True,
                text=True,
            )
            self.assertEqual(0, done.returncode, done.stdout[-200:])

    def test_units_forbid_the_same_where_both_can(self):
        """A directive that only one has is left out for a known reason."""
        agent, vendordata = (
            dict(
                line.split('=', 1)
                for line in (TOP / f'etc/nova-vhpc/nova-vhpc-{name}.service')
                .read_text()
                .splitlines()
                if re.match('[A-Z][A-Za-z]+=', line)
            )
            for name in ('agent', 'vendordata')
        )
        missing = {
            key
            for key in vendordata
            if re.match('Protect|Private|Restrict[A-Z]|Lock|Memory', key)
            and key not in agent
        }
        self.assertEqual(
            {
                # The probes read other processes and the host's cgroups.
                'ProtectControlGroups',
                'ProtectProc',
                # The agent is root, for libvirt and QEMU's threads.
                'PrivateUsers',
            },
            missing,
        )
        self.assertEqual(
            agent['SystemCallFilter'], vendordata['SystemCallFilter']
        )
