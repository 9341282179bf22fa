# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""What ``.zuul.yaml`` names is there."""

import os
import pathlib
import re
import subprocess

import fixtures
import jinja2
import yaml

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.tools import test_releases

TOP = pathlib.Path(__file__).parents[4]


class ZuulTest(base.TestCase):
    def setUp(self):
        super().setUp()
        entries = yaml.safe_load((TOP / '.zuul.yaml').read_text())
        self.jobs = {e['job']['name']: e['job'] for e in entries if 'job' in e}
        (self.project,) = [e['project'] for e in entries if 'project' in e]

    def test_settings_and_variables_are_read_by_somebody(self):
        settings = (TOP / 'devstack' / 'settings').read_text()
        playbook = (TOP / 'playbooks' / 'devstack' / 'run.yaml').read_text()
        checked = 0
        for job in self.jobs.values():
            for name in job.get('vars', {}).get('devstack_localrc', {}):
                if name.startswith('VHPC_'):
                    self.assertIn(f'\n{name}=', settings)
                    checked += 1
            for name in job.get('vars', {}):
                if not name.startswith('devstack_'):
                    self.assertIn(f'{{{{ {name} ', playbook)
                    checked += 1
        self.assertGreater(checked, 3)
        scenario = TOP / 'nova_vhpc/tests/scenario/test_virtual_cluster.py'
        library = (TOP / 'devstack' / 'lib' / 'vhpc').read_text()
        for name in re.findall(r'VHPC_SCENARIO_\w+', playbook + library):
            self.assertIn(name, scenario.read_text())

    def test_playbooks_run_steps_that_the_gate_script_has(self):
        steps = re.findall(
            r'^    (\w+)\)',
            (TOP / 'devstack/gate.sh').read_text(),
            re.MULTILINE,
        )
        called = []
        for playbook in ('run', 'post'):
            text = (TOP / f'playbooks/devstack/{playbook}.yaml').read_text()
            called += re.findall(r'devstack/gate\.sh (\w+)', text)
        self.assertEqual(['scenario', 'logs', 'unstack'], called)
        self.assertLessEqual(set(called), set(steps))

    def test_requirements_are_checked_by_zuul_only_if_all_are_global(self):
        self.assertEqual(
            bool(test_releases.NOT_GLOBAL),
            'check-requirements' not in self.project['templates'],
        )

    def test_what_is_saved_stands_where_zuul_collects_it(self):
        """Without secrets, below the directory that the base job makes."""
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        conf = home / 'conf' / 'nova-vhpc.conf'
        conf.parent.mkdir()
        conf.write_text(
            '[placement]\npassword = SECRET\nusername = nova\n'
            '[DEFAULT]\ntransport_url=rabbit://u:SECRET@host\n'
            '[vhpc_vendordata]\nid_secret = SECRET\n'
            '[vhpc_nova]\n application_credential_secret=SECRET\n'
        )
        logs = home / 'zuul-output' / 'logs'
        logs.mkdir(parents=True)
        (play,) = yaml.safe_load(
            (TOP / 'playbooks' / 'devstack' / 'post.yaml').read_text()
        )
        (command,) = [
            task['command']
            for task in play['tasks']
            if ' logs ' in task['command']
        ]
        subprocess.run(
            jinja2.Template(command)
            .render({'ansible_user_dir': str(home)})
            .split(),
            cwd=TOP,
            env={
                'PATH': os.environ['PATH'],
                'VHPC_CONF_DIR': str(conf.parent),
                'DEST': str(home),
            },
            check=True,
            capture_output=True,
        )
        self.assertEqual(
            ['nova-vhpc-top.json', 'nova-vhpc.conf'],
            sorted(path.name for path in logs.iterdir()),
        )
        saved = (logs / 'nova-vhpc.conf').read_text()
        self.assertIn('username = nova\n', saved)
        self.assertNotIn('SECRET', saved)

    def test_smoke_test_runs_with_the_python_of_our_programs(self):
        """devstack makes no environment on CentOS Stream and Rocky Linux."""
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        system, venv = home / 'local/bin', home / 'data/venv/bin'
        (home / 'scenario.env').touch()
        for place in (system, venv):
            place.mkdir(parents=True)
            python = place / 'python3'
            python.write_text('#!/bin/sh\necho "$0" "$@"\n')
            python.chmod(0o755)
            status = place / 'nova-vhpc-status'
            status.write_text(f'#!{python}\n')
            status.chmod(0o755)
            ended = subprocess.run(
                [TOP / 'devstack/gate.sh', 'scenario'],
                env={
                    'PATH': f'{system}:{os.environ["PATH"]}',
                    'VHPC_CONF_DIR': str(home),
                    'DEST': str(home),
                },
                check=True,
                capture_output=True,
                text=True,
            )
            self.assertTrue(
                ended.stdout.startswith(f'{python} -m unittest '), ended.stdout
            )

    def test_only_plugins_are_required_of_devstack(self):
        """The role that writes local.conf fails on other names."""
        plugins = {
            plugin
            for job in self.jobs.values()
            for plugin in job.get('vars', {}).get('devstack_plugins', {})
        }
        settings = (TOP / 'devstack' / 'settings').read_text()
        required = re.findall(
            r'^plugin_requires\s+\S+\s+(\S+)', settings, re.MULTILINE
        )
        self.assertLessEqual(set(required), plugins)


class DocumentationTest(base.TestCase):
    def test_the_page_has_every_setting_and_no_other(self):
        page = (TOP / 'doc/source/contributor/devstack.rst').read_text()
        settings = (TOP / 'devstack' / 'settings').read_text()
        self.assertEqual(
            set(re.findall(r'^(VHPC_\w+)=', settings, re.MULTILINE)),
            set(re.findall(r'VHPC_\w+', page)),
        )
