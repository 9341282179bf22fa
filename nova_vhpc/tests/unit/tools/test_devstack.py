# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Tests of ``tools/devstack.sh`` and of what it makes for the container."""

import os
import pathlib
import re
import subprocess

import fixtures
import yaml

from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
TOOL = TOP / 'tools' / 'devstack.sh'
GIT = {
    'GIT_AUTHOR_NAME': 'a',
    'GIT_AUTHOR_EMAIL': 'a@example.org',
    'GIT_COMMITTER_NAME': 'a',
    'GIT_COMMITTER_EMAIL': 'a@example.org',
    'GIT_CONFIG_NOSYSTEM': '1',
}


def run(*command, **env):
    return subprocess.run(
        command,
        env={'PATH': os.environ['PATH'], 'HOME': '/nonexistent', **env},
        capture_output=True,
        text=True,
        check=False,
    )


def run_functions(script, *argv, **env):
    """Run a script that has the tool's functions; its ``main`` never runs."""
    return run(
        *('bash', '-c', f'tool=$1; shift; source "$tool"; {script}'),
        *('bash', str(TOOL), *argv),
        **env,
    )


class ArgumentsTest(base.TestCase):
    def parse(self, *argv, **env):
        """Return what the tool's arguments mean, or its error."""
        script = (
            'parse "$@"; echo "${HOSTS[*]}; $NETWORKS $BRANCH $WORK"'
            ' "keep=$KEEP restack=$RESTACK $GIT_BASE"'
        )
        return run_functions(script, *argv, **env)

    def test_wrong_arguments_are_named(self):
        for argv, env, named in (
            (['--twohosts'], {}, '--twohosts'),
            (['--directory'], {}, '--directory needs a value'),
            (['--branch'], {}, '--branch needs a value'),
            (['--branch', 'stable/2025.1'], {}, '--branch stable/2025.1'),
            (['--networks', 'linuxbridge'], {}, '--networks linuxbridge'),
            (['--directory', 'here'], {}, '--directory here'),
            ([], {'GIT_BASE': 'here'}, 'GIT_BASE=here'),
        ):
            result = self.parse(*argv, **env)
            self.assertEqual(1, result.returncode, argv)
            self.assertIn(named, result.stderr)
            self.assertEqual(1, len(result.stderr.splitlines()))

    def test_page_has_the_options_of_the_help(self):
        page = (TOP / 'doc/source/contributor/devstack.rst').read_text()
        for option in re.findall(
            r'--[a-z-]+', run(str(TOOL), '--help').stdout
        ):
            self.assertIn(option, page)


class LocalConfTest(base.TestCase):
    def local_conf(self, host, *argv):
        """Return the lines of a host's local.conf."""
        result = run_functions(
            'host=$1; shift; parse "$@"; local_conf "$host"',
            *(host, *argv),
            GIT_BASE='/srv/git',
        )
        self.assertEqual('', result.stderr)
        return result.stdout.splitlines()

    def settings(self, host, *argv):
        """Return what a host's local.conf sets, by name."""
        lines = self.local_conf(host, *argv)
        return dict(line.split('=', 1) for line in lines if '=' in line)

    def services(self, host, *argv):
        return set(self.settings(host, *argv)['ENABLED_SERVICES'].split(','))

    def job(self, name):
        """Return a job of .zuul.yaml."""
        entries = yaml.safe_load((TOP / '.zuul.yaml').read_text())
        (job,) = [
            entry['job']
            for entry in entries
            if entry.get('job', {}).get('name') == name
        ]
        return job

    def test_plugin_is_set_as_in_the_gates_jobs(self):
        job = self.job('nova-vhpc-devstack')
        subnode = self.job('nova-vhpc-devstack-multinode')['group-vars'][
            'subnode'
        ]
        for host, localrc in (
            ('controller', job['vars']['devstack_localrc']),
            ('compute1', subnode['devstack_localrc']),
        ):
            lines = self.local_conf(host, '--two-hosts')
            for name, value in localrc.items():
                self.assertIn(f'{name}={value}', lines)

    def test_open_vswitch_agent_takes_the_place_of_ovn(self):
        settings = self.settings('controller', '--networks', 'ovs')
        services = self.services('controller', '--networks', 'ovs')
        job = self.job('nova-vhpc-devstack-ovs')['vars']
        for name, value in job['devstack_localrc'].items():
            self.assertEqual(value, settings[name])
        for service, enabled in job['devstack_services'].items():
            self.assertEqual(enabled, service in services, service)


class RepositoriesTest(base.TestCase):
    """Bare clones that devstack takes without network."""

    def setUp(self):
        super().setUp()
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.source = self.home / 'source' / 'openstack' / 'nova'
        self.source.mkdir(parents=True)
        self.git('init', '-q', '-b', 'master')
        for number in range(3):
            self.git('commit', '-q', '--allow-empty', '-m', str(number))
            if number == 0:
                self.git('tag', '33.0.0')

    def git(self, *argv, at=None):
        result = run('git', '-C', str(at or self.source), *argv, **GIT)
        self.assertEqual(0, result.returncode, result.stderr)
        return result.stdout.strip()

    def clone(self, branch, *names):
        return run(
            str(TOP / 'tools' / 'container' / 'repositories.sh'),
            str(self.home / 'source'),
            str(self.home / 'target'),
            branch,
            *names,
            **GIT,
        )

    def test_clone_has_one_commit_with_the_last_tag(self):
        for _again in range(2):
            result = self.clone('master', 'nova')
            self.assertEqual((0, ''), (result.returncode, result.stderr))
            clone = self.home / 'target' / 'openstack' / 'nova.git'
            self.assertEqual(
                '1', self.git('rev-list', '--count', 'master', at=clone)
            )
            self.assertEqual(
                '33.0.0', self.git('tag', '--points-at', 'HEAD', at=clone)
            )
            self.assertEqual(
                self.git('rev-parse', 'master'),
                self.git('rev-parse', 'HEAD', at=clone),
            )

    def test_what_is_missing_is_named(self):
        for branch, name, named in (
            ('stable/2026.1', 'nova', 'no branch stable/2026.1'),
            ('master', 'neutron', 'no git repository openstack/neutron'),
        ):
            result = self.clone(branch, name)
            self.assertEqual(1, result.returncode)
            self.assertIn(named, result.stderr)
