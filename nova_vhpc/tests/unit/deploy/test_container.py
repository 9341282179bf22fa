# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""The image and the compose file of deploy/container have what they need."""

import pathlib
import re
import shlex
import subprocess
import tomllib

import yaml

from nova_vhpc.agent.uplinks import port_networks
from nova_vhpc.conf import topology
from nova_vhpc.tests import base

TOP = pathlib.Path(__file__).parents[4]
PROJECT = tomllib.loads((TOP / 'pyproject.toml').read_text())


def text(name: str) -> str:
    """Return a file of deploy."""
    return (TOP / 'deploy' / name).read_text()


class ContainerTest(base.TestCase):
    def instructions(self) -> list[tuple[str, str]]:
        """Return the instructions of the Containerfile."""
        joined = re.sub(
            r'^#.*\n', '', text('container/Containerfile'), flags=re.M
        )
        joined = joined.replace('\\\n', ' ')
        return [
            (word, rest)
            for line in joined.splitlines()
            if line.strip()
            for word, _, rest in [line.strip().partition(' ')]
        ]

    def test_commands_are_valid_shell(self) -> None:
        for word, rest in self.instructions():
            if word == 'RUN':
                # Raises where a quotation does not end.
                self.assertTrue(shlex.split(rest))
                self.assertNotIn('sudo', rest)

    def test_extras_and_copied_files_exist(self) -> None:
        told = text('container/Containerfile')
        (extras,) = re.findall(r'\$wheel\[(.*?)\]', told)
        known = set(PROJECT['project']['optional-dependencies'])
        self.assertLess(set(extras.split(',')), known)
        (copied,) = [r for w, r in self.instructions() if w == 'COPY']
        for name in copied.split()[1:-1]:
            self.assertTrue((TOP / name).exists(), name)

    def test_image_has_the_program_that_reads_flows_of_ovn(self) -> None:
        self.assertEqual('ovs-ofctl', port_networks.PROGRAM)
        self.assertIn(' openvswitch-common ', text('container/Containerfile'))

    def test_image_keeps_the_distribution_s_libvirt_python(self) -> None:
        """Another version would be built from source, without a compiler."""
        (script,) = re.findall(
            "sed -i '(.*?)' /tmp/dist/constraints.txt",
            text('container/Containerfile'),
        )
        lines = (TOP / 'constraints.txt').read_text().splitlines()
        done = subprocess.run(
            ['sed', script, TOP / 'constraints.txt'],
            check=True,
            capture_output=True,
            text=True,
        )
        gone = set(lines) - set(done.stdout.splitlines())
        self.assertEqual(
            ['libvirt-python'], [line.partition('==')[0] for line in gone]
        )

    def test_services_run_our_programs(self) -> None:
        services = yaml.safe_load(text('container/compose.yaml'))['services']
        programs = set(PROJECT['project']['scripts'])
        for name, service in services.items():
            self.assertEqual(name, service['command'][0])
            self.assertIn(name, programs)
        agent = services['nova-vhpc-agent']
        self.assertEqual('host', agent['cgroup'])
        self.assertEqual('host', agent['pid'])
        self.assertEqual('host', agent['network_mode'])

    def test_services_come_back_when_the_host_has_booted(self) -> None:
        """Engines start no container then whose policy is on-failure."""
        services = yaml.safe_load(text('container/compose.yaml'))['services']
        for name, service in services.items():
            self.assertEqual('always', service['restart'], name)

    def test_agent_keeps_what_its_unit_keeps(self) -> None:
        services = yaml.safe_load(text('container/compose.yaml'))['services']
        volumes = [
            volume.split(':')[1]
            for volume in services['nova-vhpc-agent']['volumes']
        ]
        unit = (TOP / 'etc/nova-vhpc/nova-vhpc-agent.service').read_text()
        (state,) = re.findall('^StateDirectory=(.*)$', unit, re.M)
        (runtime,) = re.findall('^RuntimeDirectory=(.*)$', unit, re.M)
        self.assertIn(f'/var/lib/{state}', volumes)
        self.assertIn(f'/run/{runtime}', volumes)
        ovsdb = pathlib.Path(topology.DEFAULT_OVSDB.removeprefix('unix:'))
        self.assertIn(str(ovsdb.parent), volumes)
        (grace,) = re.findall('^TimeoutStopSec=(.*)$', unit, re.M)
        self.assertEqual(
            f'{grace}s', services['nova-vhpc-agent']['stop_grace_period']
        )
