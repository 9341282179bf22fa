# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Console scripts without a library say which extra or package is missing."""

import importlib
import pathlib
import tomllib

import fixtures

from nova_vhpc.cli import launch
from nova_vhpc.tests import base
from nova_vhpc.tests.unit.cli import launcher

ROOT = pathlib.Path(__file__).parents[4]

# Runs the console script argv[1] as if the module argv[2] was not installed.
ARGUMENTS = {
    'ctl': ('status',),
    'explain': ('--flavor', 'm1'),
    'flavor': ('show', 'm1'),
    'hook': ('guest', 'migrate', 'begin'),
    'status': ('upgrade', 'check'),
    'top': ('--once', '--input', str(ROOT / 'doc/pictures/top-status.json')),
}

DISTRIBUTIONS = {
    'cliff': 'cliff',
    'keystoneauth1': 'keystoneauth1',
    'libvirt': 'libvirt-python',
    'openstack': 'openstacksdk',
    'oslo_config': 'oslo.config',
    'oslo_messaging': 'oslo.messaging',
    'prometheus_client': 'prometheus_client',
    'rich': 'rich',
    'stevedore': 'stevedore',
    'yaml': 'PyYAML',
}

# What a program can do nothing without.
NEEDED = {
    'agent': ('libvirt', 'oslo_messaging', 'prometheus_client', 'stevedore'),
    'ctl': ('cliff', 'oslo_config'),
    'explain': ('cliff', 'openstack', 'keystoneauth1', 'yaml'),
    'flavor': ('cliff', 'openstack', 'keystoneauth1', 'yaml'),
    'hook': ('libvirt',),
    'status': ('oslo_config', 'keystoneauth1'),
    'top': ('rich',),
    'vendordata': ('oslo_config', 'keystoneauth1'),
}


def script(program):
    """Return the entry point of a console script."""
    return f'nova_vhpc.cli.launch:{program}'


class LaunchTest(base.TestCase):
    def test_every_console_script_is_launched(self):
        project = tomllib.loads((ROOT / 'pyproject.toml').read_text())
        scripts = {
            name.removeprefix('nova-vhpc-'): value
            for name, value in project['project']['scripts'].items()
        }
        self.assertEqual(scripts, {name: script(name) for name in NEEDED})

    def test_interrupted_program_ends_with_130_and_without_a_traceback(self):
        for program in ('ctl', 'explain', 'flavor', 'status'):
            module = importlib.import_module(f'nova_vhpc.cli.{program}')
            self.useFixture(
                fixtures.MockPatchObject(
                    module, 'main', side_effect=KeyboardInterrupt
                )
            )
            self.assertEqual(130, launch.run(program))
            page = ROOT / f'doc/source/cli/nova-vhpc-{program}.rst'
            self.assertIn('\n``130``\n', page.read_text())

    def test_missing_library_is_named_with_its_package(self):
        for program, modules in NEEDED.items():
            for library in modules:
                ended = self.run_without(library, program)
                self.assertNotIn('Traceback', ended.stderr, program)
                (line,) = ended.stderr.splitlines()
                self.assertTrue(
                    line.startswith(f'nova-vhpc-{program}: cannot load '), line
                )
                self.assertIn(f'pip install {DISTRIBUTIONS[library]}"', line)
                if program != 'status':
                    self.assertIn("pip install 'nova-vhpc[", line)
                self.assertEqual(
                    {'hook': 0, 'explain': 1, 'flavor': 1}.get(program, 2),
                    ended.returncode,
                    line,
                )

    def test_program_that_does_not_need_it_works_without_a_library(self):
        ended = self.run_without('libvirt', 'status')
        self.assertNotIn('Traceback', ended.stdout + ended.stderr)
        self.assertIn("No module named 'libvirt'", ended.stdout)

    def run_without(self, library, program):
        return launcher.run_without(
            [library], script(program), *ARGUMENTS.get(program, ())
        )
