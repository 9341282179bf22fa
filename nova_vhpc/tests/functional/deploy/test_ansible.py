# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The Ansible roles, on a host with systemd and libvirt of its own."""

import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
from typing import Any

import fixtures

from nova_vhpc.tests import base
from nova_vhpc.tests.functional.deploy import container

TOP = pathlib.Path(__file__).parents[4]
ROLES = TOP / 'deploy/ansible'
BIN = pathlib.Path(sys.executable).parent

AGENT = {
    'nova_vhpc_agent_pip_environment': {
        'PIP_NO_INDEX': '1',
        'PIP_FIND_LINKS': '/wheelhouse',
        'PIP_DISABLE_PIP_VERSION_CHECK': '1',
    },
    'nova_vhpc_agent_config': {
        'vhpc_agent': {'cpu_shared_set': '0-1'},
        'vhpc_topology': {'bridges': ''},
    },
}

UNIT = 'nova-vhpc-agent.service'

LEFT_BY_OTHERS = [
    '/proc',
    '/sys',
    '/dev',
    '/run/systemd',
    '/run/udev',
    '/run/log',
    '/tmp',
    '/var/tmp',
    '/var/log',
    '/var/cache',
    '/root/.ansible',
    '/var/lib/systemd',
    '/wheels',
    '/run/dbus',
    '/run/user',
    '/run/libvirt',
    # libvirtd ends when it has had nothing to do for two minutes.
    '/run/libvirtd.pid',
    '/var/lib/libvirt',
]
"""Where systemd, libvirt and Ansible itself write."""


def wheel(directory: pathlib.Path, version: str) -> pathlib.Path:
    """Build the package with a version."""
    subprocess.run(
        [
            *(sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps'),
            *('--no-build-isolation', '-w', str(directory), str(TOP)),
        ],
        env={**os.environ, 'PBR_VERSION': version},
        check=True,
    )
    return directory / f'nova_vhpc-{version}-py3-none-any.whl'


def purelib() -> pathlib.Path:
    """Return the directory with the packages that run the tests."""
    return pathlib.Path(sysconfig.get_path('purelib'))


class AnsibleTest(base.TestCase):
    """Each run of a playbook takes some ten seconds: few tests, long ones."""

    host: container.Container
    wheels: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        directory = fixtures.TempDir()
        directory.setUp()
        cls.addClassCleanup(directory.cleanUp)
        cls.host = container.Container(
            container.make_root(), {'/nova': purelib()}
        )
        cls.host.setUp()
        cls.addClassCleanup(cls.host.cleanUp)
        cls.host.run('mkdir', '/wheels')
        cls.wheels = {}
        for version in ('1.0.0', '1.1.0'):
            built = wheel(pathlib.Path(directory.path), version)
            cls.wheels[version] = f'/wheels/{built.name}'
            cls.host.put(built, cls.wheels[version])

    def play(
        self,
        playbook: str,
        group: str,
        options: dict[str, Any],
        *more: str,
        failed: int = 0,
    ) -> dict[str, Any]:
        """Run a playbook and return Ansible's counts.

        :param failed: number of tasks that must fail.
        """
        home = self.useFixture(fixtures.TempDir()).path
        variables = {
            'ansible_ssh_executable': str(self.host.ssh()),
            'ansible_ssh_transfer_method': 'piped',
            'ansible_ssh_args': '',
            'ansible_pipelining': True,
            'ansible_become': False,
            'ansible_python_interpreter': '/usr/bin/python3',
            **options,
        }
        inventory = pathlib.Path(home, 'hosts.json')
        inventory.write_text(
            json.dumps({group: {'hosts': {'host': None}, 'vars': variables}})
        )
        ended = subprocess.run(
            [BIN / 'ansible-playbook', '-i', inventory, *more, playbook],
            cwd=ROLES,
            env={
                **os.environ,
                'ANSIBLE_HOME': home,
                'ANSIBLE_NOCOLOR': '1',
                'PATH': f'{BIN}:{os.environ["PATH"]}',
            },
            capture_output=True,
            text=True,
            check=False,
        )
        recap = ended.stdout.rpartition('PLAY RECAP')[2]
        counts: dict[str, Any] = {
            name: int(number)
            for name, number in re.findall(r'(\w+)=(\d+)', recap)
        }
        self.assertEqual(
            (2 * bool(failed), failed),
            (ended.returncode, counts.get('failed')),
            ended.stdout + ended.stderr,
        )
        return counts | {'output': ended.stdout}

    def agent(self, *more: str, **options: Any) -> dict[str, Any]:
        """Run the playbook that installs the agent."""
        options = {f'nova_vhpc_agent_{n}': v for n, v in options.items()}
        return self.play(
            'site.yml', 'vhpc_computes', {**AGENT, **options}, *more
        )

    def listing(self) -> set[str]:
        """Return all files of the host with mode and owner, and its users."""
        out = []
        for path in LEFT_BY_OTHERS:
            out += ['-path', path, '-o']
        files = self.host.run(
            *('find', '/', '(', *out, '-name', '__pycache__', ')', '-prune'),
            *('-o', '-printf', '%p %M %u:%g %l\n'),
        ).stdout.splitlines()
        locks = self.host.run('find', '/run/libvirt', '-name', '*vhpc*')
        users = self.host.run('getent', 'passwd').stdout.splitlines()
        groups = self.host.run('getent', 'group').stdout.splitlines()
        units = self.host.run(
            'systemctl', 'list-units', '--all', '--plain', '--no-legend',
            '*vhpc*',
        )  # fmt: skip
        return {
            *files,
            *users,
            *groups,
            *locks.stdout.splitlines(),
            *units.stdout.splitlines(),
        }

    def show(self, name: str) -> str:
        """Return a property of the agent's unit."""
        shown = self.host.run('systemctl', 'show', '-P', name, UNIT)
        return shown.stdout.strip()

    def version(self) -> str:
        """Return the version that is installed."""
        return self.host.run(
            *('/opt/nova-vhpc/bin/python', '-c'),
            'from importlib import metadata as m; '
            'print(m.version("nova-vhpc"))',
        ).stdout.strip()

    def test_agent_from_first_look_to_removal(self) -> None:
        before = self.listing()
        old, new = (f'{self.wheels[v]}[agent]' for v in ('1.0.0', '1.1.0'))

        self.agent('--check', package=old)
        self.assertEqual(before, self.listing())

        counts = self.agent(package=old)
        self.assertGreater(counts['changed'], 0)
        self.assertEqual('active', self.show('ActiveState'))
        self.assertEqual('enabled', self.show('UnitFileState'))
        config = self.host.run('cat', '/etc/nova-vhpc/nova-vhpc.conf').stdout
        self.assertIn('dry_run = True', config)
        log = self.host.run('journalctl', '-u', UNIT).stdout
        self.assertIn('dry run', log)

        counts = self.agent(package=old)
        self.assertEqual(0, counts['changed'], counts['output'])

        self.agent(package=old, state='enabled')
        config = self.host.run('cat', '/etc/nova-vhpc/nova-vhpc.conf').stdout
        self.assertIn('dry_run = False', config)

        pid = self.show('MainPID')
        self.assertEqual('1.0.0', self.version())
        self.agent(package=new, state='enabled')
        self.assertEqual('1.1.0', self.version())
        self.assertNotEqual(pid, self.show('MainPID'))
        self.assertEqual('active', self.show('ActiveState'))

        hooks = ('ls', '/etc/libvirt/hooks/qemu.d')
        self.assertEqual('nova-vhpc\n', self.host.run(*hooks).stdout)
        # As by -e, or from an inventory in INI format.
        counts = self.agent(package=new, state='enabled', hook='false')
        self.assertEqual('', self.host.run(*hooks).stdout)
        self.assertEqual(2, counts['changed'], counts['output'])

        record = '/var/lib/nova-vhpc/journal/x.json'
        program = '/opt/nova-vhpc/bin/nova-vhpc-agent'
        # The running agent would put a record aside that it cannot read.
        self.host.run('systemctl', 'stop', UNIT)
        self.host.run('touch', record)
        self.host.run('mv', program, f'{program}.away')
        withdraw = ('withdraw.yml', 'vhpc_computes', AGENT)
        told = self.play(*withdraw, failed=1)['output']
        self.assertIn('1 records in /var/lib/nova-vhpc', told)
        self.assertIn('Nothing was deleted', told)
        self.host.run('mv', f'{program}.away', program)
        self.host.run('rm', record)

        counts = self.play(*withdraw)
        self.assertIn('Placement was not asked', counts['output'])
        after = self.listing()
        self.assertEqual(set(), after - before)
        self.assertEqual(set(), before - after)
        counts = self.play('withdraw.yml', 'vhpc_computes', AGENT)
        self.assertEqual(0, counts['changed'], counts['output'])

    def scheduler(self, playbook: str) -> dict[str, Any]:
        """Run the playbook that installs filter and weigher."""
        return self.play(
            playbook,
            'vhpc_schedulers',
            {
                'nova_vhpc_scheduler_venv': '/opt/nova',
                'nova_vhpc_scheduler_package': self.wheels['1.0.0'],
                'nova_vhpc_scheduler_pip_environment': {'PIP_NO_INDEX': '1'},
                'nova_vhpc_scheduler_services': ['nova-scheduler.service'],
                'nova_vhpc_scheduler_config': {
                    'vhpc_scheduler': {'unknown_topology': 'allow'}
                },
            },
        )

    def lists(self) -> dict[str, Any]:
        """Return what nova-scheduler reads from its files."""
        code = (
            'import json, nova.conf; nova.conf.CONF([], project="nova", '
            'prog="nova-scheduler"); o = nova.conf.CONF.filter_scheduler; '
            'print(json.dumps([list(o.enabled_filters), '
            'list(o.available_filters), list(o.weight_classes)]))'
        )
        told = self.host.run('/opt/nova/bin/python', '-c', code).stdout
        return dict(
            zip(
                ('enabled', 'available', 'weights'),
                json.loads(told),
                strict=True,
            )
        )

    def make_nova(self) -> None:
        """Give the host a nova, its file, and a service by its name."""
        self.host.run('python3', '-m', 'venv', '/opt/nova')
        site = self.host.run(
            *('/opt/nova/bin/python', '-c'),
            'import sysconfig; print(sysconfig.get_path("purelib"))',
        ).stdout.strip()
        unit = '/etc/systemd/system/nova-scheduler.service'
        self.host.run('mkdir', '-p', '/etc/nova')
        for path, content in {
            f'{site}/nova.pth': '/nova\n',
            unit: '[Service]\nExecStart=/bin/sleep infinity\n',
            '/etc/nova/nova.conf': '[filter_scheduler]\nenabled_filters = '
            'ComputeFilter,NUMATopologyFilter\n',
        }.items():
            file = self.host.scratch / 'file'
            file.write_text(content)
            self.host.put(file, path)
        self.host.run('systemctl', 'daemon-reload')
        self.host.run('systemctl', 'start', 'nova-scheduler')

    def test_scheduler_gets_our_filter_beside_those_of_nova_conf(self) -> None:
        self.make_nova()
        before = self.lists()
        show = ('systemctl', 'show', '-P', 'MainPID', 'nova-scheduler')
        pid = self.host.run(*show).stdout

        self.scheduler('site.yml')
        self.assertNotEqual(pid, self.host.run(*show).stdout)
        lists = self.lists()
        self.assertEqual(
            ['ComputeFilter', 'NUMATopologyFilter', 'VirtualClusterFilter'],
            lists['enabled'],
        )
        self.assertEqual(
            [
                *before['available'],
                'nova_vhpc.scheduler.filters.VirtualClusterFilter',
            ],
            lists['available'],
        )
        self.assertEqual(
            [
                *before['weights'],
                'nova_vhpc.scheduler.weights.VirtualClusterWeigher',
            ],
            lists['weights'],
        )
        self.host.run(
            '/opt/nova/bin/python', '-c', 'import nova_vhpc.scheduler.weights'
        )
        counts = self.scheduler('site.yml')
        self.assertEqual(0, counts['changed'], counts['output'])

        pid = self.host.run(*show).stdout
        self.scheduler('withdraw.yml')
        self.assertNotEqual(pid, self.host.run(*show).stdout)
        self.assertEqual(before, self.lists())
        left = self.host.run('ls', '/etc/nova').stdout.split()
        self.assertEqual(['nova.conf'], left)
        gone = self.host.run(
            *('/opt/nova/bin/python', '-c', 'import nova_vhpc'), check=False
        )
        self.assertIn('ModuleNotFoundError', gone.stderr)
